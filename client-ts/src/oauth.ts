import { JanuaError, readError, type Code } from './error.js'
import { sessionOf, type Session } from './session.js'
import type { Janua } from './client.js'

export interface SignInRequest {
  /** The ID of your app. */
  clientId: string
  /** One of the app's redirect URIs. */
  redirectUri: string
  /** Default: `openid profile email offline_access`; the last one asks for a refresh token. */
  scope?: string | undefined
  /** The server that the token is for (RFC 8707). */
  resource?: string | undefined
}

/** The state of a sign-in until the browser comes back. Keep it in `sessionStorage` or in a cookie of your server. */
export interface PendingSignIn {
  clientId: string
  redirectUri: string
  state: string
  verifier: string
}

const base64url = (bytes: Uint8Array) =>
  btoa(String.fromCharCode(...bytes)).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')
const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)))

/** Begins a sign-in on the pages of the service (authorization code with PKCE). Send the browser to `url`. */
export async function beginSignIn(janua: Janua, request: SignInRequest): Promise<{ url: string; pending: PendingSignIn }> {
  const { clientId, redirectUri, scope = 'openid profile email offline_access', resource } = request
  const pending = { clientId, redirectUri, state: random(), verifier: random() }
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(pending.verifier))
  const query = new URLSearchParams({
    response_type: 'code',
    client_id: clientId,
    redirect_uri: redirectUri,
    scope,
    state: pending.state,
    code_challenge: base64url(new Uint8Array(digest)),
    code_challenge_method: 'S256',
    ...(resource && { resource }),
  })
  return { url: `${janua.url}/oauth/authorize?${query}`, pending }
}

/** Finishes a sign-in: `query` is the query of the redirect URI. The client has the session from then on. */
export async function finishSignIn(
  janua: Janua,
  query: URLSearchParams | string,
  pending: PendingSignIn | null | undefined,
): Promise<Session> {
  const answer = new URLSearchParams(query)
  const isOurs = !!pending && answer.get('state') === pending.state && (answer.get('iss') ?? janua.url) === janua.url
  if (!isOurs) throw new JanuaError<Code>('unexpected_response', 0, 'This sign-in was not started here.')
  const refused = answer.get('error')
  if (refused) throw new JanuaError(refused as Code, 400, answer.get('error_description') ?? refused)
  const { clientId, redirectUri, verifier } = pending
  const body = new URLSearchParams({
    grant_type: 'authorization_code',
    client_id: clientId,
    redirect_uri: redirectUri,
    code: answer.get('code') ?? '',
    code_verifier: verifier,
  })
  const response = await janua.request('POST', '/oauth/token', { body, headers: { Authorization: '' } })
  if (!response.ok) throw await readError(response)
  const session = sessionOf(await response.json(), null, clientId)
  if (!session) throw new JanuaError<Code>('unexpected_response', response.status, 'The answer has no access token.')
  await janua.setSession(session)
  return session
}
