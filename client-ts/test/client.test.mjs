// What the client does by itself, against a server that answers as it is told.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { beginSignIn, createClient, finishSignIn, JanuaError, memoryStore, webStore } from '../dist/index.js'

const url = 'https://id.example.com'
const json = (body, status = 200, headers = {}) => Response.json(body, { status, headers })
const problem = (code, status, headers) => json({ type: 'x', title: code, status, code, requestId: 'r1' }, status, headers)

/** A client whose requests `answer` sees. */
function talking(answer, options = {}) {
  const sent = []
  const fake = async (address, init) => {
    const { pathname, search } = new URL(address)
    const request = { path: pathname + search, method: init.method, headers: new Headers(init.headers), body: init.body, init }
    sent.push(request)
    init.signal?.throwIfAborted()
    return answer(request, sent.length)
  }
  return { janua: createClient({ url, fetch: fake, ...options }), sent }
}

test('paths are filled, queries written, and nothing leads to another path', async () => {
  const { janua, sent } = talking(() => json({}))
  await janua.get('/apps/{appId}/users', { path: { appId: 'a/b c' }, query: { search: 'ä&b', limit: 2, cursor: null } })
  assert.equal(sent[0].path, '/apps/a%2Fb%20c/users?search=%C3%A4%26b&limit=2')
  for (const appId of ['.', '..', '', undefined]) {
    await assert.rejects(janua.get('/apps/{appId}', { path: { appId } }), TypeError)
  }
  assert.equal(sent.length, 1)
})

test('a refusal has its code, its fields and its request id', async () => {
  const body = { title: 'Check the fields.', status: 400, code: 'invalid', requestId: 'r9', errors: [{ field: 'name', code: 'required', message: 'x' }] }
  const { janua } = talking(() => json(body, 400))
  const error = await janua.post('/apps', { body: { name: '' } }).catch((error) => error)
  assert.ok(error instanceof JanuaError && error instanceof Error)
  assert.deepEqual([error.code, error.status, error.requestId, error.errors[0].field], ['invalid', 400, 'r9', 'name'])
  const result = await janua.try('post', '/apps', { body: { name: '' } })
  assert.deepEqual([result.ok, result.error.code, result.data], [false, 'invalid', undefined])
})

test('errors of OAuth, of SCIM and of proxies are read as well', async () => {
  const answers = [
    json({ error: 'invalid_grant', error_description: 'Used.' }, 400),
    json({ schemas: [], status: '409', scimType: 'uniqueness', detail: 'Taken.' }, 409),
    new Response('<h1>Bad gateway</h1>', { status: 502 }),
  ]
  const { janua } = talking((_, count) => answers[count - 1])
  const read = async () => {
    const { error } = await janua.try('get', '/auth/me')
    return [error.code, error.message]
  }
  assert.deepEqual(await read(), ['invalid_grant', 'Used.'])
  assert.deepEqual(await read(), ['uniqueness', 'Taken.'])
  assert.deepEqual(await read(), ['unexpected_response', 'HTTP 502'])
})

test('a creating POST has an Idempotency-Key that its retries share', async () => {
  const { janua, sent } = talking((_, count) => (count === 1 ? problem('overloaded', 503, { 'Retry-After': '0' }) : json({ id: '1' })))
  await janua.post('/apps', { body: { name: 'Shop' } })
  const keys = sent.map(({ headers }) => headers.get('idempotency-key'))
  assert.match(keys[0], /^[0-9a-f]{32}$/)
  assert.deepEqual(keys, [keys[0], keys[0]])
  await janua.post('/apps', { body: { name: 'Shop' } })
  assert.notEqual(sent[2].headers.get('idempotency-key'), keys[0])
  await janua.post('/apps', { body: { name: 'Shop' }, idempotencyKey: 'mine' })
  assert.equal(sent[3].headers.get('idempotency-key'), 'mine')
  await janua.post('/apps', { body: { name: 'Shop' }, idempotencyKey: false })
  await janua.post('/auth/login', { body: { email: 'a', password: 'b' } })
  await janua.get('/apps')
  assert.deepEqual(sent.slice(4).map(({ headers }) => headers.has('idempotency-key')), [false, false, false])
})

test('429 and 503 are repeated after Retry-After, in seconds or as a date', async () => {
  const soon = new Date(Date.now() + 1000).toUTCString()
  for (const after of ['0', soon, '1']) {
    const { janua, sent } = talking((_, count) => (count < 3 ? problem('rate_limited', 429, { 'Retry-After': after }) : json({ apps: [] })))
    const began = performance.now()
    await janua.get('/apps')
    assert.equal(sent.length, 3, after)
    if (after === '1') assert.ok(performance.now() - began > 1900)
  }
})

test('retries end: after two, or where the server asks for more patience than the client has', async () => {
  const one = talking(() => problem('overloaded', 503, { 'Retry-After': '0' }))
  await assert.rejects(one.janua.get('/apps'), { code: 'overloaded', status: 503 })
  assert.equal(one.sent.length, 3)
  const two = talking(() => problem('rate_limited', 429, { 'Retry-After': '31' }))
  await assert.rejects(two.janua.get('/apps'), { code: 'rate_limited' })
  assert.equal(two.sent.length, 1)
  const three = talking(() => problem('rate_limited', 429, { 'Retry-After': '0' }), { retries: 0 })
  await assert.rejects(three.janua.get('/apps'), { code: 'rate_limited' })
  assert.equal(three.sent.length, 1)
  const four = talking(() => problem('unavailable', 503))
  await assert.rejects(four.janua.patch('/user/profile', { body: {} }), { code: 'unavailable' })
  assert.equal(four.sent.length, 1, 'without Retry-After a PATCH may have been carried out')
  const five = talking(() => problem('internal', 500))
  await assert.rejects(five.janua.get('/apps'), { code: 'internal' })
  assert.equal(five.sent.length, 1)
})

test('a lost connection is repeated where that does nothing twice', async () => {
  const lost = () => talking(() => { throw new TypeError('fetch failed') })
  for (const [call, times] of [
    [(janua) => janua.get('/apps'), 3],
    [(janua) => janua.post('/apps', { body: { name: 'Shop' } }), 3],
    [(janua) => janua.delete('/apps/{appId}', { path: { appId: '1' } }), 3],
    [(janua) => janua.post('/auth/login', { body: { email: 'a', password: 'b' } }), 1],
    [(janua) => janua.patch('/user/profile', { body: {} }), 1],
    [(janua) => janua.request('POST', '/apps', { body: new Blob(['x']).stream() }), 1],
  ]) {
    const { janua, sent } = lost()
    const error = await call(janua).catch((error) => error)
    assert.deepEqual([error.code, error.status, error.cause.message, sent.length], ['network_error', 0, 'fetch failed', times])
  }
})

test('pages follow one another, and entries come one by one', async () => {
  const pages = { '': { apps: [{ id: '1' }, { id: '2' }], nextCursor: 'b' }, b: { apps: [], nextCursor: 'c' }, c: { apps: [{ id: '3' }], nextCursor: null } }
  const { janua, sent } = talking(({ path }) => json(pages[new URL(url + path).searchParams.get('cursor') ?? '']))
  const ids = []
  for await (const app of janua.list('/apps', { query: { limit: 2 } })) ids.push(app.id)
  assert.deepEqual(ids, ['1', '2', '3'])
  assert.deepEqual(sent.map(({ path }) => path), ['/apps?limit=2', '/apps?limit=2&cursor=b', '/apps?limit=2&cursor=c'])
  for await (const app of janua.list('/apps')) if (app.id === '1') break
  assert.equal(sent.length, 4, 'a loop that ends early asks for no further page')
  const { janua: registry } = talking((_, count) => json({ servers: [{ n: count }], metadata: { nextCursor: count < 2 ? 'x' : null } }))
  const servers = []
  for await (const server of registry.list('/v0.1/servers')) servers.push(server.n)
  assert.deepEqual(servers, [1, 2])
})

/** A server with one live access token. */
function renewing(options = {}) {
  let [live, refresh, refreshes] = ['a1', 'r1', 0]
  const made = talking(async ({ path, headers, body }) => {
    if (path === '/auth/refresh') {
      refreshes += 1
      await new Promise((resolve) => setTimeout(resolve, 20))
      if (JSON.parse(body).refreshToken !== refresh) return problem('unauthenticated', 401)
      ;[live, refresh] = [`a${refreshes + 1}`, `r${refreshes + 1}`]
      return json({ accessToken: live, refreshToken: refresh, expiresIn: 900, user: {} })
    }
    const isLive = headers.get('authorization') === `Bearer ${live}`
    if (path === '/auth/sessions') await new Promise((resolve) => setTimeout(resolve, 100))
    return isLive ? json({ id: 'ada' }) : problem('unauthenticated', 401)
  }, options)
  return { ...made, refreshes: () => refreshes, revoke: () => { refresh = 'none' } }
}

test('many calls with an expired token renew it once', async () => {
  const seen = []
  const session = { accessToken: 'old', refreshToken: 'r1' }
  const { janua, refreshes } = renewing({ session, onSession: (session) => seen.push(session?.accessToken) })
  await Promise.all(Array.from({ length: 32 }, () => janua.get('/auth/me')))
  assert.equal(refreshes(), 1)
  assert.deepEqual(seen, ['a2'])
  const kept = await janua.session()
  assert.deepEqual([kept.accessToken, kept.refreshToken], ['a2', 'r2'])
  assert.ok(kept.expiresAt > Date.now() + 890_000)
  await janua.get('/auth/me')
  assert.equal(refreshes(), 1)
})

test('a refusal that comes after the renewal takes the new token', async () => {
  const { janua, refreshes } = renewing({ session: { accessToken: 'old', refreshToken: 'r1' } })
  await Promise.all([janua.get('/auth/sessions'), janua.get('/auth/me')])
  assert.equal(refreshes(), 1)
})

test('a token that is about to expire is renewed before the call', async () => {
  const session = { accessToken: 'a1', refreshToken: 'r1', expiresAt: Date.now() + 5_000 }
  const { janua, refreshes, sent } = renewing({ session })
  await janua.get('/auth/me')
  assert.deepEqual([refreshes(), sent.length], [1, 2])
})

test('clients that share a store do not use a refresh token twice', async () => {
  const store = memoryStore({ accessToken: 'old', refreshToken: 'r1' })
  const one = renewing({ session: store })
  await one.janua.get('/auth/me')
  const two = createClient({ url, session: store, fetch: async (_, init) => json({ by: new Headers(init.headers).get('authorization') }) })
  assert.deepEqual(await two.get('/auth/me'), { by: 'Bearer a2' })
})

test('a session that is over is forgotten, and one that cannot be renewed just now is kept', async () => {
  const seen = []
  const over = renewing({ session: { accessToken: 'old', refreshToken: 'gone' }, onSession: (session) => seen.push(session) })
  await assert.rejects(over.janua.get('/auth/me'), { code: 'unauthenticated' })
  assert.deepEqual([await over.janua.session(), seen, over.refreshes()], [null, [null], 1])
  await assert.rejects(over.janua.get('/auth/me'), { code: 'unauthenticated' })
  assert.equal(over.refreshes(), 1, 'there is nothing left to renew with')
  const session = { accessToken: 'old', refreshToken: 'r1' }
  const away = talking(({ path }) => (path === '/auth/refresh' ? problem('internal', 500) : problem('unauthenticated', 401)), { session })
  await assert.rejects(away.janua.get('/auth/me'), { code: 'internal' })
  assert.deepEqual(await away.janua.session(), session)
})

test('credentials of a call replace the session', async () => {
  const { janua, sent, refreshes } = renewing({ session: { accessToken: 'a1', refreshToken: 'r1' } })
  await assert.rejects(janua.get('/machine/me', { headers: { Authorization: 'Bearer machine' } }), { code: 'unauthenticated' })
  assert.deepEqual([sent[0].headers.get('authorization'), refreshes()], ['Bearer machine', 0])
})

test('cookies: the browser has the session, and a 401 renews it once', async () => {
  let [refreshes, live] = [0, false]
  const { janua, sent } = talking(async ({ path }) => {
    if (path !== '/auth/refresh') return live ? json({}) : problem('unauthenticated', 401)
    refreshes += 1
    await new Promise((resolve) => setTimeout(resolve, 20))
    live = true
    return json({ accessToken: 'x', expiresIn: 900, user: {} })
  }, { session: 'cookie' })
  await Promise.all(Array.from({ length: 8 }, () => janua.get('/auth/me')))
  assert.equal(refreshes, 1)
  assert.ok(sent.every(({ init, headers }) => init.credentials === 'include' && !headers.has('authorization')))
  await janua.post('/auth/login', { body: { email: 'a', password: 'b' } })
  assert.deepEqual(JSON.parse(sent.at(-1).body), { email: 'a', password: 'b' }, 'tokens stay in cookies')
})

test('a sign-in is kept, and signing out forgets it even if the session is over', async () => {
  const { janua, sent } = talking(({ path }) =>
    path === '/auth/login' ? json({ accessToken: 'a', refreshToken: 'r', expiresIn: 900, user: {} }) : problem('unauthenticated', 401))
  await janua.signIn('ada@example.com', 'secret')
  assert.equal(JSON.parse(sent[0].body).options.tokenDelivery, 'body')
  assert.equal((await janua.session()).refreshToken, 'r')
  await janua.signOut()
  assert.equal(await janua.session(), null)
})

test('an aborted call ends with the reason, also while it waits', async () => {
  const { janua } = talking(() => problem('rate_limited', 429, { 'Retry-After': '20' }))
  const began = performance.now()
  await assert.rejects(janua.get('/apps', { signal: AbortSignal.timeout(30) }), { name: 'TimeoutError' })
  assert.ok(performance.now() - began < 5_000)
  await assert.rejects(janua.get('/apps', { signal: AbortSignal.abort('enough') }), (reason) => reason === 'enough')
  await assert.rejects(janua.try('get', '/apps', { signal: AbortSignal.abort('enough') }), (reason) => reason === 'enough')
  // One that stops waiting does not stop the renewal for the others.
  const { janua: other, refreshes } = renewing({ session: { accessToken: 'old', refreshToken: 'r1' } })
  const controller = new AbortController()
  const [first, second] = [other.get('/auth/me', { signal: controller.signal }), other.get('/auth/me')]
  setTimeout(() => controller.abort('bored'), 5)
  await assert.rejects(first, (reason) => reason === 'bored')
  assert.deepEqual([await second, refreshes()], [{ id: 'ada' }, 1])
})

test('a sign-in on the pages of the service: PKCE, state and issuer', async () => {
  const { janua, sent } = talking(({ path }) =>
    path === '/oauth/token' ? json({ access_token: 'a', refresh_token: 'r', expires_in: 900, token_type: 'Bearer' }) : json({}))
  const { url: link, pending } = await beginSignIn(janua, { clientId: 'app', redirectUri: 'https://app.example/cb' })
  const query = new URL(link).searchParams
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(pending.verifier))
  assert.equal(query.get('code_challenge'), Buffer.from(digest).toString('base64url'))
  const back = (more) => new URLSearchParams({ state: pending.state, iss: url, code: 'c', ...more })
  for (const wrong of [back({ state: 'x' }), back({ iss: 'https://evil.example' })]) {
    await assert.rejects(finishSignIn(janua, wrong, pending), { code: 'unexpected_response' })
  }
  await assert.rejects(finishSignIn(janua, back({}), null), { code: 'unexpected_response' })
  await assert.rejects(finishSignIn(janua, back({ error: 'access_denied' }), pending), { code: 'access_denied' })
  assert.equal(sent.length, 0)
  await finishSignIn(janua, back({}), pending)
  assert.equal(new URLSearchParams(sent[0].body).get('code_verifier'), pending.verifier)
  assert.deepEqual([(await janua.session()).clientId, (await janua.session()).refreshToken], ['app', 'r'])
})

test('a web store writes what it reads', () => {
  const items = new Map()
  const storage = { getItem: (name) => items.get(name) ?? null, setItem: (name, value) => items.set(name, value), removeItem: (name) => items.delete(name) }
  const store = webStore(storage)
  assert.equal(store.get(), null)
  store.set({ accessToken: 'a' })
  assert.deepEqual(store.get(), { accessToken: 'a' })
  store.set(null)
  assert.equal(items.size, 0)
})
