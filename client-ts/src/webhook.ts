import type { RequestLike } from './token.js'
import type { WebhookEvent } from './types.js'

/** Why a delivery is refused. */
export type WebhookErrorCode = 'malformed_header' | 'timestamp_outside_tolerance' | 'signature_mismatch'

/** A refused delivery. Answer 400. */
export class WebhookError extends Error {
  override readonly name = 'WebhookError'
  constructor(readonly code: WebhookErrorCode) {
    super(code)
  }
}

export interface VerifyWebhookOptions {
  /** The headers of the request, or the request itself. */
  headers: RequestLike['headers']
  /** The body exactly as it was received, before anything parses it. */
  body: string | Uint8Array
  /** `secret` of the webhook (64 characters), or `standardSecret` (`whsec_…`) for one with `standardHeaders`. */
  secret: string
  /** Seconds since 1970; for tests. */
  now?: number | undefined
}

/** How far the clocks of sender and receiver may be apart, in seconds. */
const TOLERANCE = 300n
const LARGEST = 2n ** 64n - 1n

/**
 * Verifies a delivery and answers its event. Every signature is compared, since there are two while a secret is rotated.
 * Skip a `deliveryId` that you have processed.
 */
export async function verifyWebhook(options: VerifyWebhookOptions): Promise<WebhookEvent> {
  const { secret } = options
  const body = typeof options.body === 'string' ? new TextEncoder().encode(options.body) : options.body
  const now = BigInt(Math.floor(options.now ?? Date.now() / 1000))
  // The secret decides the form, never the request.
  const { at, head, key, signatures } = secret.startsWith('whsec_')
    ? standardForm(options.headers, secret)
    : ownForm(options.headers, secret)
  if (!/^[0-9]+$/.test(at) || signatures.length === 0 || BigInt(at) > LARGEST) throw new WebhookError('malformed_header')
  const apart = BigInt(at) > now ? BigInt(at) - now : now - BigInt(at)
  if (apart > TOLERANCE) throw new WebhookError('timestamp_outside_tolerance')
  if (key.length === 0) throw new TypeError('the secret of the webhook is empty or malformed')
  const prefix = new TextEncoder().encode(head)
  const signed = new Uint8Array(prefix.length + body.length)
  signed.set(prefix)
  signed.set(body, prefix.length)
  const hmac = await crypto.subtle.importKey('raw', key, { name: 'HMAC', hash: 'SHA-256' }, false, ['verify'])
  // `verify` takes the same time wherever a signature differs, and all of them are tried.
  const found = await Promise.all(signatures.map((given) => crypto.subtle.verify('HMAC', hmac, given, signed)))
  if (!found.includes(true)) throw new WebhookError('signature_mismatch')
  return JSON.parse(new TextDecoder().decode(body)) as WebhookEvent
}

interface Form {
  at: string
  /** The signed text before the body. */
  head: string
  key: Uint8Array<ArrayBuffer>
  signatures: Uint8Array<ArrayBuffer>[]
}

/** `Webhook-Signature: t=SECONDS,v1=HEX`, with another `v1` while the secret is rotated. */
function ownForm(headers: RequestLike['headers'], secret: string): Form {
  let at = ''
  const signatures: Uint8Array<ArrayBuffer>[] = []
  for (const part of read(headers, 'webhook-signature').split(',')) {
    const [, name, value = ''] = part.trim().match(/^([^=]*)=(.*)$/s) ?? []
    if (name === 't') at = value
    if (name === 'v1') signatures.push(fromHex(value))
  }
  return { at, head: `${at}.`, key: new TextEncoder().encode(secret), signatures }
}

/** Standard Webhooks: `Webhook-Signature: v1,BASE64 v1,BASE64` over the ID, the time and the body. */
function standardForm(headers: RequestLike['headers'], secret: string): Form {
  const [id, at] = [read(headers, 'webhook-id'), read(headers, 'webhook-timestamp')]
  const parts = read(headers, 'webhook-signature').split(' ')
  const signatures = parts.filter((part) => part.startsWith('v1,')).map((part) => fromBase64(part.slice(3)))
  return { at: id ? at : '', head: `${id}.${at}.`, key: fromBase64(secret.slice('whsec_'.length)), signatures }
}

function read(headers: RequestLike['headers'], name: string): string {
  const value = headers instanceof Headers ? headers.get(name) : headers[name]
  return (Array.isArray(value) ? value.join(',') : value) ?? ''
}

/** Empty for malformed text, so that it matches no signature. */
function fromHex(text: string): Uint8Array<ArrayBuffer> {
  if (!/^([0-9a-f]{2})*$/i.test(text)) return new Uint8Array()
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16))
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  try {
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))
  } catch {
    return new Uint8Array()
  }
}
