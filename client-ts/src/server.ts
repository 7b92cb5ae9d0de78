// For servers whose users sign in with Janua: verifies access tokens and webhooks. WebCrypto alone, so that it runs in
// Node, Deno, Bun and workers.
export { createVerifier, presentedToken, TokenError, Verifier } from './token.js'
export type { Claims, RequestLike, TokenErrorCode, VerifierOptions } from './token.js'
export { verifyWebhook, WebhookError } from './webhook.js'
export type { VerifyWebhookOptions, WebhookErrorCode } from './webhook.js'
export type { WebhookEvent } from './types.js'
