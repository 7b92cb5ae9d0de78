/** The tokens of a session. */
export interface Session {
  accessToken: string
  /** None: the session ends with the access token. */
  refreshToken?: string | undefined
  /** Milliseconds since 1970. */
  expiresAt?: number | undefined
  /** The OAuth client that the tokens belong to, if they came from `/oauth/token`. */
  clientId?: string | undefined
}

/** Where a session is kept. Both methods may be asynchronous. */
export interface SessionStore {
  get(): Session | null | Promise<Session | null>
  set(session: Session | null): void | Promise<void>
}

/** Keeps a session until the page or process ends. The default, and the safest place in a browser. */
export function memoryStore(session: Session | null = null): SessionStore {
  return {
    get: () => session,
    set: (next) => {
      session = next
    },
  }
}

/** Keeps a session in `localStorage` or `sessionStorage`, where every script of the page can read it. */
export function webStore(storage: Storage, name = 'janua.session'): SessionStore {
  return {
    get: () => JSON.parse(storage.getItem(name) ?? 'null') as Session | null,
    set: (next) => (next ? storage.setItem(name, JSON.stringify(next)) : storage.removeItem(name)),
  }
}

/** The session in an answer of the server, in either of its spellings. */
export function sessionOf(answer: unknown, before?: Session | null, clientId = before?.clientId): Session | undefined {
  const body = Object(answer) as Record<string, unknown>
  const accessToken = body['accessToken'] ?? body['access_token']
  if (typeof accessToken !== 'string') return undefined
  const life = body['expiresIn'] ?? body['expires_in']
  // OAuth clients may keep their refresh token.
  const refreshToken = (body['refreshToken'] ?? body['refresh_token'] ?? before?.refreshToken) as string | undefined
  return {
    accessToken,
    refreshToken,
    expiresAt: typeof life === 'number' ? Date.now() + life * 1000 : undefined,
    clientId,
  }
}
