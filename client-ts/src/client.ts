import { JanuaError, readError, type Code } from './error.js'
import { memoryStore, sessionOf, type Session, type SessionStore } from './session.js'
import type {
  Answer,
  Arguments,
  Bytes,
  CallOptions,
  Entry,
  ListPath,
  Method,
  Options,
  PathOf,
  Result,
} from './types.js'

export interface ClientOptions {
  /** The base URL of the service, such as `https://id.example.com`. */
  url: string
  /** A key of your app. Only a publishable key (`pk_…`) belongs into a browser. */
  appKey?: string | undefined
  /**
   * Where the session is: a store, a session, or `'cookie'` for pages on the service's origin or on an allowed origin of
   * an app, whose browser holds it. Default: in memory.
   */
  session?: SessionStore | Session | 'cookie' | undefined
  /** How often a call is repeated after a 429, a 503 or a lost connection. Default: 2. */
  retries?: number | undefined
  /** The longest `Retry-After` that is waited for, in milliseconds. Default: 30000. */
  maxWait?: number | undefined
  /** Another `fetch`. */
  fetch?: typeof fetch | undefined
  /** Sent with every request. */
  headers?: Record<string, string> | undefined
  /** Called when the user signs in, when tokens are renewed, and with `null` when the session ends. */
  onSession?: ((session: Session | null) => void) | undefined
}

/** A request as `request` takes it: `path` may have `{names}` that `path` of the options fills. */
export interface RequestOptions extends CallOptions {
  path?: Record<string, unknown> | undefined
  query?: Record<string, unknown> | undefined
  /** Bytes and forms (`URLSearchParams`) are sent as they are, everything else as JSON. */
  body?: unknown
  /** Whether a lost connection may be repeated. Default: not for PATCH, nor for a POST without an `Idempotency-Key`. */
  repeatable?: boolean | undefined
}

// Answers that open an account are never replayed, so a key would only cost a preflight.
const NEVER_REPLAYED = /^\/(auth|oauth)\//
// Sign-ins whose body says how tokens are delivered.
const SIGN_IN = /^\/auth\/(login|magic-link\/verify|accept-invite|passkey\/login-verify|oauth\/)/
// Tokens are renewed when they are about to expire, which saves a refused request.
const EARLY = 10_000

export class Janua {
  readonly url: string
  readonly appKey: string | undefined
  readonly #options: ClientOptions
  readonly #store: SessionStore | undefined
  #refreshing: Promise<boolean> | undefined
  #generation = 0

  constructor(options: ClientOptions) {
    this.url = options.url.replace(/\/+$/, '')
    this.appKey = options.appKey
    this.#options = options
    const { session } = options
    if (session !== 'cookie') this.#store = session && 'get' in session ? session : memoryStore(session ?? null)
  }

  get<P extends PathOf<'get'>>(path: P, ...[options]: Arguments<Options<'get', P>>): Promise<Answer<'get', P>> {
    return this.#call('get', path, options)
  }

  post<P extends PathOf<'post'>>(path: P, ...[options]: Arguments<Options<'post', P>>): Promise<Answer<'post', P>> {
    return this.#call('post', path, options)
  }

  put<P extends PathOf<'put'>>(path: P, ...[options]: Arguments<Options<'put', P>>): Promise<Answer<'put', P>> {
    return this.#call('put', path, options)
  }

  patch<P extends PathOf<'patch'>>(path: P, ...[options]: Arguments<Options<'patch', P>>): Promise<Answer<'patch', P>> {
    return this.#call('patch', path, options)
  }

  delete<P extends PathOf<'delete'>>(
    path: P,
    ...[options]: Arguments<Options<'delete', P>>
  ): Promise<Answer<'delete', P>> {
    return this.#call('delete', path, options)
  }

  /** The same without exceptions: `{ ok, data, error }`, where `error.code` is one of the operation's codes. */
  async try<M extends Method, P extends PathOf<M>>(
    method: M,
    path: P,
    ...[options]: Arguments<Options<M, P>>
  ): Promise<Result<M, P>> {
    try {
      return { ok: true, data: await this.#call<Answer<M, P>>(method, path, options) }
    } catch (error) {
      if (error instanceof JanuaError) return { ok: false, error } as Result<M, P>
      throw error
    }
  }

  /** The pages of a list, one answer after the other. */
  async *pages<P extends ListPath>(
    path: P,
    ...[options]: Arguments<Options<'get', P>>
  ): AsyncGenerator<Answer<'get', P>, void, undefined> {
    const given = options as RequestOptions | undefined
    let cursor = given?.query?.['cursor']
    do {
      const page = await this.#call<Page>('get', path, { ...given, query: { ...given?.query, cursor } })
      yield page as Answer<'get', P>
      cursor = page.nextCursor ?? page.metadata?.nextCursor
    } while (cursor)
  }

  /** The entries of a list, over all of its pages: `for await (const app of janua.list('/apps'))`. */
  async *list<P extends ListPath>(
    path: P,
    ...args: Arguments<Options<'get', P>>
  ): AsyncGenerator<Entry<P>, void, undefined> {
    for await (const page of this.pages(path, ...args)) {
      yield* Object.values(page as object).find(Array.isArray) as Entry<P>[]
    }
  }

  /** Signs in with a password. The answer may ask for a second factor: then post to `/auth/2fa/login-verify`. */
  signIn(email: string, password: string): Promise<Answer<'post', '/auth/login'>> {
    return this.#call('post', '/auth/login', { body: { email, password } })
  }

  /** Ends the session on the server and forgets it here. A session that is over already is no error. */
  async signOut(): Promise<void> {
    try {
      await this.#call('post', '/auth/logout', {})
    } catch (error) {
      if ((error as JanuaError).status !== 401) throw error
    }
    await this.setSession(null)
  }

  /** The session, or null if no user is signed in or the browser holds it in cookies. */
  async session(): Promise<Session | null> {
    return (await this.#store?.get()) ?? null
  }

  async setSession(session: Session | null): Promise<void> {
    this.#generation += 1
    await this.#store?.set(session)
    this.#options.onSession?.(session)
  }

  /** Sends a request with the session, renewals and retries of this client, and answers as `fetch` does. */
  async request(method: string, path: string, options: RequestOptions = {}): Promise<Response> {
    method = method.toUpperCase()
    const { signal, body } = options
    const headers = new Headers({ ...this.#options.headers, ...options.headers })
    if (this.appKey) headers.set('X-Service-App-Key', this.appKey)
    const key = options.idempotencyKey ?? (method === 'POST' && !NEVER_REPLAYED.test(path) && randomName())
    if (key) headers.set('Idempotency-Key', key)
    const init: RequestInit = { method, headers, signal: signal ?? null, credentials: this.#store ? 'omit' : 'include' }
    if (isBytes(body)) {
      if (!headers.has('Content-Type')) headers.set('Content-Type', 'application/octet-stream')
      // A stream is sent once, and only as it comes.
      Object.assign(init, { body }, body instanceof ReadableStream && { duplex: 'half' })
    } else if (body instanceof URLSearchParams) {
      init.body = body
    } else if (body !== undefined) {
      headers.set('Content-Type', 'application/json')
      const isSignIn = this.#store && SIGN_IN.test(path)
      init.body = JSON.stringify(isSignIn ? { options: { tokenDelivery: 'body' }, ...(body as object) } : body)
    }
    const url = this.url + fill(path, options)
    const canResend = !(body instanceof ReadableStream)
    // A repeated POST without a key could do something twice.
    const isHarmless = canResend && (options.repeatable ?? (method === 'POST' ? !!key : method !== 'PATCH'))
    // A caller's own credentials replace the session; empty ones send none.
    const own = headers.has('Authorization')
    if (headers.get('Authorization') === '') headers.delete('Authorization')
    let renewed = false
    for (let attempt = 0; ; ) {
      const mayRetry = canResend && attempt++ < (this.#options.retries ?? 2)
      let session = own ? null : await this.session()
      if (session?.refreshToken && (session.expiresAt ?? Infinity) < Date.now() + EARLY && !renewed) {
        renewed = true
        await unlessAborted(this.#renew(session.accessToken), signal)
        session = await this.session()
      }
      if (session) headers.set('Authorization', `Bearer ${session.accessToken}`)
      else if (!own) headers.delete('Authorization')
      const generation = this.#generation
      let response: Response
      try {
        response = await (this.#options.fetch ?? fetch)(url, init)
      } catch (cause) {
        signal?.throwIfAborted()
        if (!mayRetry || !isHarmless) throw new JanuaError<Code>('network_error', 0, String(cause), {}, undefined, { cause })
        await pause(backoff(attempt), signal)
        continue
      }
      if (response.status === 401 && !own && !renewed && canResend) {
        const { code } = await readError(response.clone())
        if (code === 'unauthenticated' || code === 'invalid_token') {
          renewed = true
          const isNew = generation !== this.#generation && !session
          if (isNew || (await unlessAborted(this.#renew(session?.accessToken), signal))) {
            attempt -= 1
            continue
          }
        }
      }
      if (mayRetry && (response.status === 429 || response.status === 503)) {
        const asked = retryAfter(response.headers)
        // Without `Retry-After` a 503 may come after the work was done.
        const wait = asked ?? (isHarmless ? backoff(attempt) : Infinity)
        if (wait <= (this.#options.maxWait ?? 30_000)) {
          await response.body?.cancel()
          // Callers that were refused together do not come back together.
          await pause(wait * (1 + Math.random() / 4), signal)
          continue
        }
      }
      return response
    }
  }

  async #call<T>(method: string, path: string, options?: unknown): Promise<T> {
    const response = await this.request(method, path, options as RequestOptions)
    if (!response.ok) throw await readError(response)
    const type = response.headers.get('content-type') ?? ''
    const text = await response.text()
    if (text === '') return undefined as T
    if (!/[/+]json/.test(type)) return text as T
    const answer = JSON.parse(text) as T
    if (this.#store && /^\/(auth|user)\//.test(path)) {
      // A switch of organization renews the access token alone; a sign-in begins another session.
      const session = sessionOf(answer, path.startsWith('/user/') ? await this.session() : null)
      if (session) await this.setSession(session)
    }
    return answer
  }

  /** Renews the tokens, once for all calls that need it. Answers whether the session lives. */
  #renew(used: string | undefined): Promise<boolean> {
    return (this.#refreshing ??= this.#renewInTurn(used).finally(() => (this.#refreshing = undefined)))
  }

  /** Tabs that share a store take turns: a refresh token that is used twice ends the session. */
  async #renewInTurn(used: string | undefined): Promise<boolean> {
    const { locks } = (globalThis as { navigator?: Partial<Navigator> }).navigator ?? {}
    const renew = () => this.#renewNow(used)
    if (!locks) return renew()
    const name = `janua ${this.url}`
    const first = await locks.request(name, { ifAvailable: true }, (lock) => (lock ? renew() : undefined))
    return (
      first ??
      locks.request(name, async () => {
        // What the other tab stored takes a moment to be read here.
        for (let left = 10; this.#store && left > 0 && (await this.session())?.accessToken === used; left -= 1) await pause(20, undefined)
        return renew()
      })
    )
  }

  async #renewNow(used: string | undefined): Promise<boolean> {
    const session = await this.session()
    if (this.#store) {
      if (session && session.accessToken !== used) return true
      if (!session?.refreshToken) return false
    }
    const { refreshToken, clientId } = session ?? {}
    const body = clientId
      ? new URLSearchParams({ grant_type: 'refresh_token', refresh_token: refreshToken!, client_id: clientId })
      : { refreshToken }
    // The server answers the same successor for ten seconds, so a lost answer is asked for again at once.
    const options = { body, headers: { Authorization: '' }, repeatable: true }
    const response = await this.request('POST', clientId ? '/oauth/token' : '/auth/refresh', options)
    if (response.ok) {
      const next = sessionOf(await response.json(), session)
      if (this.#store) await this.setSession(next ?? null)
      this.#generation += 1
      return true
    }
    const error = await readError(response)
    // Anything else is not the end of the session: the server may be away.
    if (error.status !== 400 && error.status !== 401 && error.status !== 403) throw error
    await this.setSession(null)
    return false
  }
}

type Page = { nextCursor?: string | null; metadata?: { nextCursor?: string | null } }

function fill(path: string, { path: parameters = {}, query = {} }: RequestOptions): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = parameters[name]
    // `.` and `..` would be taken out of the path, and lead to another operation.
    if (value === undefined || /^\.{0,2}$/.test(String(value))) throw new TypeError(`path.${name} is missing or invalid`)
    return encodeURIComponent(String(value))
  })
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one != null) search.append(name, String(one))
  }
  return String(search) ? `${filled}?${search}` : filled
}

const isBytes = (body: unknown): body is Bytes =>
  body instanceof Blob || body instanceof ArrayBuffer || ArrayBuffer.isView(body) || body instanceof ReadableStream

// Not `crypto.randomUUID`, which pages without TLS do not have.
const randomName = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, '0')).join('')

const backoff = (attempt: number) => 250 * 2 ** attempt * (0.5 + Math.random() / 2)

/** `Retry-After` in milliseconds: seconds or a date (RFC 9110, 10.2.3). */
function retryAfter(headers: Headers): number | undefined {
  const text = headers.get('retry-after')
  if (!text) return undefined
  const wait = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - Date.now()
  return Number.isNaN(wait) ? undefined : Math.max(0, wait)
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return unlessAborted(new Promise((resolve) => setTimeout(resolve, ms)), signal)
}

/** Stops waiting when the signal aborts. The promise itself goes on, as other calls may wait for it. */
function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return promise
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason)
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort)
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}

/** Creates a client. It holds no global state: create as many as you need. */
export function createClient(options: ClientOptions): Janua {
  return new Janua(options)
}
