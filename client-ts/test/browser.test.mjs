// The client in Chromium: on a page of an app, in two tabs and in a worker.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { after, before, test } from 'node:test'
import { startChromium } from './chromium.mjs'
import { PASSWORD, startJanua } from './janua.mjs'

let server, chromium, site, origin, settings

before(async () => {
  server = await startJanua()
  const owner = await server.signUp('ada@example.com')
  site = createServer(async (request, response) => {
    const name = request.url.slice(1)
    if (name.endsWith('.js')) {
      const file = name === 'worker.js' ? 'test/worker.js' : `dist/${name}`
      response.setHeader('content-type', 'text/javascript')
      return response.end(await readFile(new URL(`../${file}`, import.meta.url)))
    }
    response.setHeader('content-type', 'text/html').end('<!doctype html><title>App</title>')
  })
  site.listen(0, '127.0.0.1')
  await once(site, 'listening')
  origin = `http://localhost:${site.address().port}`
  const app = await owner.post('/apps', { body: { name: 'Shop', allowedOrigins: [origin] } })
  const key = await owner.post('/apps/{appId}/keys', { path: { appId: app.id }, body: { type: 'publishable', environment: 'live' } })
  settings = { url: server.url, appKey: key.value, appId: app.id, password: PASSWORD }
  chromium = await startChromium()
})

after(async () => {
  await chromium?.close()
  site?.close()
  await server?.stop()
})

async function open(context) {
  const page = await (context ?? (await chromium.newContext())).newPage()
  await page.goto(origin)
  return page
}

test('a page signs in, calls, reads lists and hears of errors', async () => {
  const page = await open()
  const seen = await page.evaluate(async ({ url, appKey, password }) => {
    const { createClient } = await import('/index.js')
    const janua = createClient({ url, appKey })
    const wrong = await janua.try('post', '/auth/login', { body: { email: 'ada@example.com', password: 'not this one' } })
    await janua.signIn('ada@example.com', password)
    const session = await janua.session()
    await janua.setSession({ ...session, accessToken: 'expired' })
    const [user] = await Promise.all([janua.get('/auth/me'), janua.get('/auth/me')])
    const sessions = await janua.get('/auth/sessions')
    const files = []
    for await (const file of janua.list('/storage/objects')) files.push(file)
    return [wrong.error.code, typeof wrong.error.requestId, user.email, sessions.sessions.length, files.length]
  }, settings)
  assert.deepEqual(seen, ['invalid_credentials', 'string', 'ada@example.com', 1, 0])
})

test('a page uploads with progress, at once and in chunks', async () => {
  const page = await open()
  const seen = await page.evaluate(async ({ url, appKey, password }) => {
    const { createClient, upload } = await import('/index.js')
    const janua = createClient({ url, appKey })
    await janua.signIn('ada@example.com', password)
    const results = []
    for (const resumable of [false, true]) {
      const file = new File([new Uint8Array(3_000_000).fill(7)], 'seven.bin')
      const steps = []
      const object = await upload(janua, file, { resumable, chunkSize: 1_000_000, onProgress: (sent, total) => steps.push(sent / total) })
      const bytes = new Uint8Array(await (await fetch(object.downloadUrl)).arrayBuffer())
      results.push([object.name, object.status, bytes.length, bytes.every((byte) => byte === 7), steps.at(-1), steps.length >= 3])
    }
    const controller = new AbortController()
    const ended = await upload(janua, new File([new Uint8Array(3_000_000)], 'x'), { signal: controller.signal, onProgress: () => controller.abort('enough') })
      .catch((reason) => reason)
    return [...results, ended]
  }, settings)
  const expected = ['seven.bin', 'ready', 3_000_000, true, 1, true]
  assert.deepEqual(seen, [expected, expected, 'enough'])
})

test('cookies: the browser holds the session, and no script sees a token', async () => {
  const page = await open()
  const seen = await page.evaluate(async ({ url, appKey, password }) => {
    const { createClient } = await import('/index.js')
    const janua = createClient({ url, appKey, session: 'cookie' })
    await janua.signIn('ada@example.com', password)
    const other = createClient({ url, appKey, session: 'cookie' })
    const user = await other.get('/auth/me')
    await other.signOut()
    const after = await janua.try('get', '/auth/me')
    return [await janua.session(), user.email, document.cookie, after.error.code]
  }, settings)
  assert.deepEqual(seen, [null, 'ada@example.com', '', 'unauthenticated'])
})

test('two tabs with one store renew a session once', async () => {
  const context = await chromium.newContext()
  const [one, two] = [await open(context), await open(context)]
  let refreshes = 0
  context.on('request', (request) => { if (request.method() === 'POST' && request.url().endsWith('/auth/refresh')) refreshes += 1 })
  await one.evaluate(async ({ url, appKey, password }) => {
    const { createClient, webStore } = await import('/index.js')
    const janua = createClient({ url, appKey, session: webStore(localStorage) })
    await janua.signIn('ada@example.com', password)
    await janua.setSession({ ...(await janua.session()), accessToken: 'expired' })
  }, settings)
  const call = (page) => page.evaluate(async ({ url, appKey }) => {
    const { createClient, webStore } = await import('/index.js')
    const janua = createClient({ url, appKey, session: webStore(localStorage) })
    return Promise.all(Array.from({ length: 8 }, async () => (await janua.get('/auth/me')).email))
  }, settings)
  const emails = (await Promise.all([call(one), call(two)])).flat()
  assert.deepEqual([new Set(emails), emails.length], [new Set(['ada@example.com']), 16])
  assert.equal(refreshes, 1)
})

test('a worker calls, verifies a token and verifies a webhook', async () => {
  const page = await open()
  const seen = await page.evaluate((settings) => new Promise((resolve, reject) => {
    const worker = new Worker('/worker.js', { type: 'module' })
    worker.onmessage = ({ data }) => resolve(data)
    worker.onerror = (event) => reject(new Error(event.message))
    worker.postMessage(settings)
  }), settings)
  assert.deepEqual(seen, ['ada@example.com', settings.appId, 'user', 'signature_mismatch'])
})
