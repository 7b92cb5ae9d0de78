// The vectors that the clients in Rust and Python are held to as well.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { createVerifier, presentedToken, verifyWebhook } from '../dist/server.js'

const folder = process.env.TEST_VECTORS ?? new URL('../../client/vectors', import.meta.url).pathname
const read = async (name) => JSON.parse(await readFile(`${folder}/${name}.json`, 'utf8'))
const code = (promise) => promise.then(() => undefined, (error) => error.code ?? error)

test('tokens', async () => {
  const { issuer, keys, cases } = await read('tokens')
  assert.ok(cases.length > 90)
  for (const { name, kind, token, audience, now, claims, reason } of cases) {
    let fetched
    const answer = async (url) => ((fetched = url), Response.json(keys))
    const verifier = createVerifier({ url: issuer, audience, now: () => now, fetch: answer })
    const judged = kind === 'machine' ? verifier.verifyMachine(token) : verifier.verify(token)
    assert.equal(await code(judged), reason, name)
    if (!reason) {
      const found = await judged
      for (const [claim, value] of Object.entries(claims)) assert.deepEqual(found[claim], value, `${name}: ${claim}`)
      assert.equal(fetched, `${issuer}/.well-known/jwks.json`)
    }
  }
})

for (const file of ['webhooks', 'standard-webhooks']) {
  test(file, async () => {
    const { cases } = await read(file)
    assert.ok(cases.length >= 15)
    for (const { name, headers, body, secret, now, reason } of cases) {
      const judged = verifyWebhook({ headers, body, secret, now })
      assert.equal(await code(judged), reason, name)
      if (!reason) assert.deepEqual(await judged, JSON.parse(body), name)
      const bytes = verifyWebhook({ headers, body: new TextEncoder().encode(body), secret, now })
      assert.equal(await code(bytes), reason, `${name}, as bytes`)
    }
  })
}

test('keys are fetched once for all that wait, again after five minutes, and again after a failure', async () => {
  const { issuer, keys, cases } = await read('tokens')
  const { token, now: then } = cases.find((one) => !one.reason)
  let [fetches, now, isUp] = [0, then, true]
  const answer = async () => (fetches++, isUp ? Response.json(keys) : new Response('', { status: 503 }))
  const verifier = createVerifier({ url: `${issuer}/`, now: () => now, fetch: answer })
  await Promise.all(Array.from({ length: 20 }, () => verifier.verify(token)))
  assert.equal(fetches, 1)
  now += 299
  await verifier.verify(token)
  assert.equal(fetches, 1)
  now += 1
  isUp = false
  assert.equal(await code(verifier.verify(token)), 'keys_unavailable')
  isUp = true
  await verifier.verify(token)
  assert.equal(fetches, 3)
})

test('the token of a request is its cookie, then its header', () => {
  const of = (headers) => presentedToken({ headers })
  const authorization = 'Bearer b'
  assert.equal(of({ cookie: 'x=1; __Host-service_access=h; service_access=l', authorization }), 'h')
  assert.equal(of(new Headers({ cookie: 'service_access=l', authorization })), 'l')
  assert.equal(of({ cookie: 'service_access=', authorization }), 'b')
  assert.equal(of({ authorization: 'bearer b' }), 'b')
  assert.equal(of({ authorization: 'Basic b' }), undefined)
  assert.equal(of({ cookie: 'other=1' }), undefined)
})
