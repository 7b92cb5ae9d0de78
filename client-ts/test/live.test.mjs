// The client against the running binary.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import { createClient, upload } from '../dist/index.js'
import { createVerifier, verifyWebhook } from '../dist/server.js'
import { counting, PASSWORD, startJanua } from './janua.mjs'

let server, owner, app, appKey, secretKey

before(async () => {
  server = await startJanua({ JANUA_PLATFORM_OWNERS: 'owner@example.com' })
  owner = await server.signUp('owner@example.com')
  app = await owner.post('/apps', { body: { name: 'Shop' } })
  const key = (type) => owner.post('/apps/{appId}/keys', { path: { appId: app.id }, body: { type, environment: 'live' } })
  ;[appKey, secretKey] = [(await key('publishable')).value, (await key('secret')).value]
})
after(() => server?.stop())

test('the types are those of the server', async () => {
  const script = new URL('../scripts/types.mjs', import.meta.url).pathname
  await promisify(execFile)(process.execPath, [script, server.url, '--check'])
})

test('every list has its entries in one property', async () => {
  const { paths, components } = await owner.get('/openapi.json')
  const resolve = (schema) => (schema.$ref ? components.schemas[schema.$ref.split('/').pop()] : schema)
  let lists = 0
  for (const [path, { get }] of Object.entries(paths)) {
    if (!get?.parameters?.some(({ name }) => name === 'cursor')) continue
    const { properties } = resolve(get.responses[200].content['application/json'].schema)
    const arrays = Object.keys(properties).filter((name) => [resolve(properties[name]).type].flat().includes('array'))
    assert.equal(arrays.filter((name) => name !== 'totals').length, 1, path)
    assert.ok('nextCursor' in properties || 'metadata' in properties, path)
    lists += 1
  }
  assert.ok(lists >= 40)
})

test('a refusal has the code of the description', async () => {
  const janua = createClient({ url: server.url })
  const wrong = await janua.try('post', '/auth/login', { body: { email: 'owner@example.com', password: 'not this one' } })
  assert.deepEqual([wrong.error.code, wrong.error.status], ['invalid_credentials', 401])
  assert.match(wrong.error.requestId, /./)
  const missing = await owner.try('get', '/apps/{appId}', { path: { appId: '01a1eb5b-c825-7000-8477-91a96fc7e25f' } })
  assert.equal(missing.error.code, 'not_found')
  const invalid = await owner.try('post', '/apps', { body: { name: '' } })
  assert.deepEqual([invalid.error.code, invalid.error.errors[0].field], ['invalid', 'name'])
  await assert.rejects(janua.get('/auth/me'), { code: 'unauthenticated' })
})

test('a session is renewed once for thirty-two calls', async () => {
  const { fetch, to } = counting()
  const janua = createClient({ url: server.url, fetch })
  await janua.signIn('owner@example.com', PASSWORD)
  const session = await janua.session()
  assert.ok(session.refreshToken && session.expiresAt > Date.now())
  await janua.setSession({ ...session, accessToken: 'expired' })
  const users = await Promise.all(Array.from({ length: 32 }, () => janua.get('/auth/me')))
  assert.ok(users.every((user) => JSON.stringify(user).includes('owner@example.com')))
  assert.equal(to('/auth/refresh').length, 1)
  await janua.signOut()
  await janua.setSession(session)
  await assert.rejects(janua.get('/auth/me'), { code: 'unauthenticated' })
  assert.equal(await janua.session(), null, 'a session that was ended is forgotten')
})

/** The code of an authenticator app (RFC 6238), `ahead` steps from now. */
async function totp(secret, ahead = 0) {
  const bits = [...secret].map((letter) => 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.indexOf(letter).toString(2).padStart(5, '0')).join('')
  const bytes = Uint8Array.from(bits.match(/.{8}/g), (byte) => parseInt(byte, 2))
  const key = await crypto.subtle.importKey('raw', bytes, { name: 'HMAC', hash: 'SHA-1' }, false, ['sign'])
  const step = new DataView(new ArrayBuffer(8))
  step.setBigUint64(0, BigInt(Math.floor(Date.now() / 30_000) + ahead))
  const mac = new DataView(await crypto.subtle.sign('HMAC', key, step.buffer))
  return String((mac.getUint32(mac.getUint8(19) & 15) & 0x7fffffff) % 1_000_000).padStart(6, '0')
}

test('a sign-in with a second factor', async () => {
  const user = await server.signUp('mia@example.com')
  const { secret } = await user.post('/auth/2fa/setup', { body: { password: PASSWORD } })
  await user.post('/auth/2fa/enable', { body: { code: await totp(secret) } })
  const janua = createClient({ url: server.url })
  const answer = await janua.signIn('mia@example.com', PASSWORD)
  assert.deepEqual([answer.requiresMfa, await janua.session()], [true, null])
  // A code is accepted once, so this is the next one.
  await janua.post('/auth/2fa/login-verify', { body: { mfaTicket: answer.mfaTicket, code: await totp(secret, 1) } })
  const session = await janua.session()
  assert.ok(session.accessToken && session.refreshToken)
  assert.equal((await janua.get('/auth/me')).email, 'mia@example.com')
})

test('a lost answer creates nothing twice', async () => {
  let lost = 0
  const lossy = async (url, init) => {
    const response = await fetch(url, init)
    if (init.method === 'POST' && lost++ === 0) throw new TypeError('connection reset')
    return response
  }
  const janua = createClient({ url: server.url, fetch: lossy, session: await owner.session() })
  const created = await janua.post('/apps', { body: { name: 'Once' } })
  assert.equal(lost, 2)
  const names = []
  for await (const one of owner.list('/apps')) if (one.name === 'Once') names.push(one.id)
  assert.deepEqual(names, [created.id])
})

test('calls beyond the rate limit wait as long as the server says', async () => {
  const limited = await startJanua({ JANUA_RATE_LIMITS: 'on', JANUA_RATE_LIMIT_PER_MINUTE: '120' })
  try {
    let refused = 0
    const counted = async (url, init) => {
      const response = await fetch(url, init)
      if (response.status === 429) refused += 1
      return response
    }
    const janua = createClient({ url: limited.url, fetch: counted, retries: 8 })
    await Promise.all(Array.from({ length: 126 }, () => janua.get('/legal')))
    assert.ok(refused > 0)
  } finally {
    await limited.stop()
  }
})

test('all pages of a list', async () => {
  for (const name of ['One', 'Two', 'Three']) await owner.post('/apps', { body: { name } })
  const { fetch, to } = counting()
  const janua = createClient({ url: server.url, fetch, session: await owner.session() })
  const names = []
  for await (const { name } of janua.list('/apps', { query: { limit: 2 } })) names.push(name)
  for (const name of ['Shop', 'One', 'Two', 'Three']) assert.ok(names.includes(name))
  assert.equal(to('/apps').length, Math.ceil(names.length / 2))
})

const download = async (object) => new Uint8Array(await (await fetch(object.downloadUrl)).arrayBuffer())

test('a file is uploaded with a signed URL', async () => {
  const janua = createClient({ url: server.url, appKey, session: await owner.session() })
  const bytes = crypto.getRandomValues(new Uint8Array(60_000))
  const steps = []
  const object = await upload(janua, bytes, { name: 'ümlaut.bin', metadata: { album: '2026' }, onProgress: (...step) => steps.push(step) })
  assert.deepEqual([object.status, object.name, object.metadata.album], ['ready', 'ümlaut.bin', '2026'])
  assert.deepEqual(steps.at(-1), [60_000, 60_000])
  assert.deepEqual(await download(object), bytes)
  const names = []
  for await (const { name } of janua.list('/storage/objects', { query: { limit: 1 } })) names.push(name)
  assert.ok(names.includes('ümlaut.bin'))
})

test('a file in chunks goes on where the connection broke', async () => {
  let patches = 0
  const breaking = async (url, init) => {
    if (init.method !== 'PATCH') return fetch(url, init)
    patches += 1
    // The second chunk does not leave; the fourth arrives, and its answer is lost.
    if (patches === 2) throw new TypeError('connection refused')
    const response = await fetch(url, init)
    if (patches === 4) throw new TypeError('connection reset')
    return response
  }
  const janua = createClient({ url: server.url, appKey, session: await owner.session(), fetch: breaking })
  const bytes = crypto.getRandomValues(new Uint8Array(50_000))
  const steps = []
  const object = await upload(janua, new Blob([bytes], { type: 'application/x-test' }), {
    name: 'large.bin', resumable: true, chunkSize: 10_000, visibility: 'public', onProgress: (sent) => steps.push(sent),
  })
  assert.deepEqual([object.status, object.name, object.contentType, object.visibility], ['ready', 'large.bin', 'application/x-test', 'public'])
  assert.deepEqual([...new Set(steps)], [0, 10_000, 20_000, 30_000, 40_000, 50_000])
  assert.equal(patches, 6)
  assert.deepEqual(await download(object), bytes)
})

test('an upload ends with its signal', async () => {
  const janua = createClient({ url: server.url, appKey, session: await owner.session() })
  const controller = new AbortController()
  const options = { resumable: true, chunkSize: 1000, signal: controller.signal, onProgress: (sent) => sent >= 2000 && controller.abort('enough') }
  await assert.rejects(upload(janua, new Uint8Array(50_000), options), (reason) => reason === 'enough')
})

test('tokens of users, of an app and of an agent', async () => {
  const user = createClient({ url: server.url, appKey })
  await user.signIn('owner@example.com', PASSWORD)
  const { accessToken } = await user.session()
  const verifier = createVerifier({ url: server.url, audience: app.id })
  const claims = await verifier.verifyRequest({ headers: { authorization: `Bearer ${accessToken}` } })
  assert.deepEqual([claims.email, claims.aud, claims.appId], ['owner@example.com', [app.id], app.id])
  await assert.rejects(createVerifier({ url: server.url, audience: 'another' }).verify(accessToken), { code: 'audience' })
  await assert.rejects(verifier.verifyMachine(accessToken), { code: 'user' })

  const service = createVerifier({ url: server.url })
  const grant = async (form) => {
    const body = new URLSearchParams({ grant_type: 'client_credentials', ...form })
    return (await (await owner.request('POST', '/oauth/token', { body, headers: { Authorization: '' } })).json()).access_token
  }
  const ofApp = await grant({ client_id: app.id, client_secret: secretKey })
  assert.equal((await service.verifyMachine(ofApp)).type, 'app')
  await assert.rejects(verifier.verify(ofApp), { code: 'machine' })
  const agent = await owner.post('/framework-agent/register', { body: { name: 'Helper', framework: 'langgraph', scopes: ['orders:read'] } })
  const ofAgent = await grant({ client_id: agent.clientId, client_secret: agent.clientSecret })
  const machine = await service.verifyMachine(ofAgent)
  assert.deepEqual([machine.type, machine.sub, machine.scope], ['framework', agent.clientId, 'orders:read'])
  await assert.rejects(service.verify(ofAgent), { code: 'machine' })
  const me = await owner.get('/machine/me', { headers: { Authorization: `Bearer ${ofAgent}` } })
  assert.equal(me.id, agent.clientId)
})

test('deliveries are verified with either secret of a rotation, and in the form of Standard Webhooks', async () => {
  const deliveries = []
  const receiver = createServer(async (request, response) => {
    const chunks = []
    for await (const chunk of request) chunks.push(chunk)
    deliveries.push({ headers: request.headers, body: Buffer.concat(chunks) })
    response.writeHead(204).end()
    receiver.emit('delivery')
  })
  receiver.listen(0, '127.0.0.1')
  await once(receiver, 'listening')
  try {
    const path = { appId: app.id }
    const url = `http://127.0.0.1:${receiver.address().port}/hooks`
    const receive = async (webhookId) => {
      const arrived = once(receiver, 'delivery')
      await owner.post('/apps/{appId}/webhooks/{webhookId}/test', { path: { ...path, webhookId }, body: { event: 'user.signed_in' } })
      await arrived
      return deliveries.at(-1)
    }
    const webhook = await owner.post('/apps/{appId}/webhooks', { path, body: { url, events: ['user.signed_in'] } })
    const event = await verifyWebhook({ ...(await receive(webhook.id)), secret: webhook.secret })
    assert.deepEqual([event.event, event.test], ['user.signed_in', true])
    const rotated = await owner.patch('/apps/{appId}/webhooks/{webhookId}', { path: { ...path, webhookId: webhook.id }, body: { rotateSecret: true } })
    const delivery = await receive(webhook.id)
    for (const secret of [webhook.secret, rotated.secret]) await verifyWebhook({ ...delivery, secret })
    await assert.rejects(verifyWebhook({ ...delivery, secret: 'f'.repeat(64) }), { code: 'signature_mismatch' })
    const standard = await owner.post('/apps/{appId}/webhooks', { path, body: { url, events: ['user.signed_in'], standardHeaders: true } })
    await verifyWebhook({ ...(await receive(standard.id)), secret: standard.standardSecret })
  } finally {
    receiver.close()
  }
})
