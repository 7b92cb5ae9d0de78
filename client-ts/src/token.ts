/** Why a token is refused. */
export type TokenErrorCode =
  | 'missing'
  | 'malformed'
  | 'algorithm'
  | 'not_access_token'
  | 'machine'
  | 'user'
  | 'unknown_key'
  | 'signature'
  | 'expired'
  | 'issuer'
  | 'audience'
  | 'keys_unavailable'

const MESSAGES: Record<TokenErrorCode, string> = {
  missing: 'the request carries no token',
  malformed: 'this is not a token',
  algorithm: 'the token is not signed with RS256',
  not_access_token: 'this is not an access token',
  machine: 'the token belongs to a machine, not to a user',
  user: 'the token belongs to a user, not to a machine',
  unknown_key: "the token's key is not one of the service's",
  signature: 'the signature is wrong',
  expired: 'the token has expired',
  issuer: 'the token is of another service',
  audience: 'the token is for another app or server',
  keys_unavailable: "the service's keys cannot be fetched",
}

/** A refused token. Answer 401, or 503 for `keys_unavailable`. */
export class TokenError extends Error {
  override readonly name = 'TokenError'
  constructor(
    readonly code: TokenErrorCode,
    options?: ErrorOptions,
  ) {
    super(MESSAGES[code], options)
  }
}

/** The claims of an access token. */
export interface Claims {
  iss: string
  /** The ID of the user; of the machine, for machines that act for themselves. */
  sub: string
  /** Seconds since 1970. */
  exp: number
  /** Where the token counts: the ID of an app, or the URLs of servers. */
  aud: string[]
  sid?: string
  email?: string
  orgId?: string
  orgSlug?: string
  role?: string
  appId?: string
  /** The OAuth client that holds the token. */
  client_id?: string
  /** The granted scopes, separated by spaces. */
  scope?: string
  /** Machines only: `app`, `agent`, `framework` or `mcp`. */
  type?: string
  /** The machine that acts for the user `sub`. */
  act?: { sub: string; type?: string; act?: unknown }
  [more: string]: unknown
}

export interface VerifierOptions {
  /** The base URL of the service, which is also the issuer of its tokens. */
  url: string
  /** Only tokens for it are accepted: the ID of your app, or the URL of your server as clients write it in `resource`. */
  audience?: string | undefined
  fetch?: typeof fetch | undefined
  /** Seconds since 1970; for tests. */
  now?: (() => number) | undefined
}

/** A `Request`, or the request of Node, Express and the like. */
export interface RequestLike {
  headers: Headers | Record<string, string | string[] | undefined>
}

type Keys = Map<string, CryptoKey>

/** How long a key set is good for, in seconds. A key is published for longer before it signs. */
const KEPT = 300
/** How long to wait for the service, in milliseconds. */
const PATIENCE = 10_000
const COOKIES = ['__Host-service_access', 'service_access']
const RS256 = { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' }

/** The token of a request: the cookie first, then `Authorization`. */
export function presentedToken(request: RequestLike): string | undefined {
  const header = (name: string) => {
    const { headers } = request
    const value = headers instanceof Headers ? headers.get(name) : headers[name]
    return (Array.isArray(value) ? value.join('; ') : value) ?? ''
  }
  const pairs = header('cookie')
    .split(';')
    .map((pair) => pair.trim().match(/^([^=]*)=(.*)$/s) ?? [])
  for (const cookie of COOKIES) {
    const value = pairs.find(([, name, value]) => name === cookie && value)?.[2]
    if (value) return value
  }
  return header('authorization').trim().match(/^bearer +(\S.*)$/i)?.[1]
}

/** Verifies access tokens of one service, without asking it. Create one and keep it. */
export class Verifier {
  readonly #issuer: string
  readonly #options: VerifierOptions
  #keys: Promise<Keys> | undefined
  #since = 0

  constructor(options: VerifierOptions) {
    this.#issuer = options.url.replace(/\/+$/, '')
    this.#options = options
  }

  /** Verifies the user of a request, by its cookie or `Authorization` header. */
  async verifyRequest(request: RequestLike): Promise<Claims> {
    const token = presentedToken(request)
    if (token === undefined) throw new TokenError('missing')
    return this.verify(token)
  }

  /** Verifies a user's access token. ID tokens and tokens of machines are refused. */
  async verify(token: string): Promise<Claims> {
    const claims = await this.#verify(token)
    if (claims.type !== undefined) throw new TokenError('machine')
    return claims
  }

  /** Verifies an access token of an app, agent or MCP server. `type` says which. */
  async verifyMachine(token: string): Promise<Claims> {
    const claims = await this.#verify(token)
    if (claims.type === undefined) throw new TokenError('user')
    return claims
  }

  async #verify(token: string): Promise<Claims> {
    const [head, body, mac, ...rest] = token.split('.')
    if (head === undefined || body === undefined || mac === undefined || rest.length > 0) throw new TokenError('malformed')
    const header = readPart(head)
    if (typeof header['alg'] !== 'string') throw new TokenError('malformed')
    if (header['alg'] !== 'RS256') throw new TokenError('algorithm')
    // An ID token is signed by the same keys, but grants no access (RFC 9068, 4).
    if (!/^(application\/)?at\+jwt$/i.test(String(header['typ'] ?? ''))) throw new TokenError('not_access_token')
    const signature = decode(mac)
    const key = (await this.#publicKeys()).get(String(header['kid'] ?? ''))
    if (!key) throw new TokenError('unknown_key')
    const isWeak = (key.algorithm as RsaHashedKeyAlgorithm).modulusLength < 2048
    const signed = new TextEncoder().encode(`${head}.${body}`)
    if (isWeak || !(await crypto.subtle.verify(RS256, key, signature, signed))) throw new TokenError('signature')
    const claims = readClaims(readPart(body))
    if (claims.exp <= this.#now()) throw new TokenError('expired')
    if (claims.iss !== this.#issuer) throw new TokenError('issuer')
    const { audience } = this.#options
    if (audience !== undefined && !claims.aud.includes(audience)) throw new TokenError('audience')
    return claims
  }

  #now(): number {
    return this.#options.now?.() ?? Math.floor(Date.now() / 1000)
  }

  /** The keys of the service, fetched by one caller for all that wait. */
  #publicKeys(): Promise<Keys> {
    const now = this.#now()
    if (this.#keys && now - this.#since < KEPT) return this.#keys
    this.#since = now
    const fetched = this.#fetchKeys().catch((cause: unknown) => {
      this.#keys = undefined
      throw new TokenError('keys_unavailable', { cause })
    })
    return (this.#keys = fetched)
  }

  async #fetchKeys(): Promise<Keys> {
    const url = `${this.#issuer}/.well-known/jwks.json`
    const signal = AbortSignal.timeout(PATIENCE)
    const response = await (this.#options.fetch ?? fetch)(url, { redirect: 'error', signal })
    if (!response.ok) throw new Error(`${url}: HTTP ${response.status}`)
    const { keys } = (await response.json()) as { keys: JsonWebKey[] }
    const found: Keys = new Map()
    for (const { kty, n, e, kid } of keys as (JsonWebKey & { kid?: string })[]) {
      if (kty !== 'RSA' || !n || !e) continue
      try {
        found.set(kid ?? '', await crypto.subtle.importKey('jwk', { kty, n, e }, RS256, false, ['verify']))
      } catch {
        // A key that this runtime does not understand signs nothing that it accepts.
      }
    }
    return found
  }
}

/** Creates a verifier. */
export function createVerifier(options: VerifierOptions): Verifier {
  return new Verifier(options)
}

/** base64url without padding, in its one canonical form. */
function decode(text: string): Uint8Array<ArrayBuffer> {
  try {
    if (!/^[\w-]*$/.test(text)) throw new Error()
    const binary = atob(text.replaceAll('-', '+').replaceAll('_', '/'))
    const canonical = btoa(binary).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')
    if (canonical !== text) throw new Error()
    return Uint8Array.from(binary, (letter) => letter.charCodeAt(0))
  } catch {
    throw new TokenError('malformed')
  }
}

function readPart(part: string): Record<string, unknown> {
  const bytes = decode(part)
  try {
    const value: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
    if (value && typeof value === 'object' && !Array.isArray(value)) return value as Record<string, unknown>
  } catch {}
  throw new TokenError('malformed')
}

const TEXTS = ['sid', 'email', 'orgId', 'orgSlug', 'role', 'appId', 'client_id', 'scope', 'type']

function readClaims(body: Record<string, unknown>): Claims {
  const { iss, sub, exp } = body
  const aud = typeof body['aud'] === 'string' ? [body['aud']] : (body['aud'] ?? [])
  // A null claim counts as absent.
  const claims = Object.fromEntries(Object.entries(body).filter(([, value]) => value !== null))
  const isWhole =
    typeof iss === 'string' &&
    typeof sub === 'string' &&
    Number.isInteger(exp) &&
    (exp as number) >= 0 &&
    Array.isArray(aud) &&
    aud.every((one) => typeof one === 'string') &&
    TEXTS.every((name) => claims[name] === undefined || typeof claims[name] === 'string')
  if (!isWhole) throw new TokenError('malformed')
  return { ...claims, aud } as Claims
}
