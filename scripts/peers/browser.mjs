// A person in front of a real browser: Chromium, driven over its own protocol. What is done is said on the output; a step
// that does not work ends the program. Every page is looked at by axe, and photographed when a folder is given.
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { mkdirSync, readFileSync, readdirSync, statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { createServer } from 'node:http'
import { site } from './browser-site.mjs'

const require = createRequire(process.env.TEST_NODE + '/package.json')
const { chromium } = require('playwright-core')
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8')

const [base, outbox, pictures] = process.argv.slice(2)
const password = 'correct horse battery staple'
const step = (name) => console.log(`ok ${name}`)

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--disable-background-networking', '--disable-sync',
    '--disable-component-update', '--no-first-run'],
})

const seen = new Set()

// No serious finding on any page, light and dark; and a picture of each, wide and narrow.
async function look(page, name) {
  if (seen.has(name)) return
  seen.add(name)
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme })
    await page.evaluate(axe)
    const { violations } = await page.evaluate(() => window.axe.run())
    const bad = violations.filter((found) => ['serious', 'critical'].includes(found.impact))
    assert.deepEqual(bad.map((found) => [found.id, found.nodes[0].html]), [], `${name}, ${colorScheme}`)
    if (!pictures) continue
    mkdirSync(pictures, { recursive: true })
    for (const [size, width] of [['wide', 1200], ['narrow', 390]]) {
      await page.setViewportSize({ width, height: 800 })
      await page.screenshot({ path: `${pictures}/${name}-${colorScheme}-${size}.png` })
    }
  }
  await page.emulateMedia({ colorScheme: 'light' })
}

// The token in the newest mail to somebody that has one.
async function mailed(address, path) {
  for (let i = 0; i < 200; i++) {
    const files = readdirSync(outbox).map((name) => `${outbox}/${name}`)
    files.sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs)
    for (const file of files) {
      const mail = readFileSync(file, 'utf8').replaceAll('=\r\n', '').replaceAll('=\n', '').replaceAll('=3D', '=')
      const link = mail.match(new RegExp(`${path}\\?token=([\\w-]+)`))
      if (mail.includes(`To: ${address}`) && link) return `${base}${link[0].replace(/^.*?\//, '/')}`
    }
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  throw new Error(`no mail to ${address} with ${path}`)
}

// No page may ask anybody else for anything, or break its own policy.
async function newPage(options) {
  const context = await browser.newContext(options)
  const page = await context.newPage()
  page.on('request', (request) => {
    const { origin } = new URL(request.url())
    assert.ok([base, elsewhere.origin, 'null'].includes(origin), `a page asked ${request.url()}`)
  })
  page.on('console', (message) => {
    assert.ok(!message.text().includes('Content Security Policy'), message.text())
  })
  page.on('pageerror', (error) => assert.fail(error))
  return page
}

async function signIn(page, email, secret = password) {
  await page.getByLabel('Email address').fill(email)
  await page.getByLabel('Password').fill(secret)
  await page.getByRole('button', { name: 'Sign in', exact: true }).click()
}

const call = (page, method, path, body) =>
  page.evaluate(async ([method, path, body]) => {
    const answer = await fetch(path, {
      method,
      headers: { 'content-type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body),
    })
    const text = await answer.text()
    return { status: answer.status, body: text ? JSON.parse(text) : null }
  }, [method, path, body])

// A client's page, to come back to.
const elsewhere = await new Promise((resolve) => {
  const server = createServer((_, answer) => answer.end('<!doctype html><title>Back</title>You are back.'))
  server.listen(0, '127.0.0.1', () => resolve({ server, origin: `http://127.0.0.1:${server.address().port}` }))
})

// Sign-up to verified to signed in.
const ada = await newPage()
await ada.goto(`${base}/sign-up`)
await look(ada, 'sign-up')
await ada.getByLabel('Your name').fill('Ada')
await ada.getByLabel('Email address').fill('ada@example.com')
await ada.getByLabel('Password').fill(password)
await ada.getByRole('button', { name: 'Make the account' }).click()
await ada.getByText('Look into your mail').waitFor()
await look(ada, 'note')
await ada.goto(await mailed('ada@example.com', '/auth/verify'))
await ada.getByRole('button', { name: 'Confirm this address' }).click()
await ada.getByText('Your address is confirmed').waitFor()
await ada.goto(`${base}/sign-in`)
await look(ada, 'sign-in')
await signIn(ada, 'ada@example.com', 'a wrong password')
await ada.getByRole('alert').first().waitFor()
await look(ada, 'sign-in-wrong')
await signIn(ada, 'ada@example.com')
await ada.getByText('You are signed in').waitFor()
step('sign-up to verified to signed in')

// A passkey, with an authenticator that is none.
const wire = await ada.context().newCDPSession(ada)
await wire.send('WebAuthn.enable')
await wire.send('WebAuthn.addVirtualAuthenticator', {
  options: { protocol: 'ctap2', transport: 'internal', hasResidentKey: true, hasUserVerification: true,
    isUserVerified: true, automaticPresenceSimulation: true },
})
const registered = await ada.evaluate(async () => {
  const post = (path, body) => fetch(path, {
    method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body),
  })
  const { publicKey } = await (await post('/auth/passkey/register-options', {})).json()
  const credential = await navigator.credentials.create({
    publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(publicKey),
  })
  return (await post('/auth/passkey/register-verify', { credential: credential.toJSON() })).status
})
assert.equal(registered, 200)
assert.equal((await call(ada, 'POST', '/auth/logout')).status, 204)
await ada.goto(`${base}/sign-in?continue=%2Fdevice`)
await ada.waitForURL(`${base}/device`)
step('a passkey, offered by the browser')
await call(ada, 'POST', '/auth/logout')

// An app of somebody else's, and its people.
const eve = await newPage()
await eve.goto(`${base}/sign-up`)
await eve.getByLabel('Your name').fill('Eve')
await eve.getByLabel('Email address').fill('eve@example.com')
await eve.getByLabel('Password').fill(password)
await eve.getByRole('button', { name: 'Make the account' }).click()
await eve.goto(await mailed('eve@example.com', '/auth/verify'))
await eve.getByRole('button').click()
await eve.goto(`${base}/sign-in`)
await signIn(eve, 'eve@example.com')
await eve.getByText('You are signed in').waitFor()
const redirect = `${elsewhere.origin}/callback`
const app = await call(eve, 'POST', '/apps', { name: 'Eve’s Emporium', redirectUris: [redirect] })
assert.equal(app.status, 200)

const verifier = randomBytes(32).toString('base64url')
const authorize = `${base}/oauth/authorize?` + new URLSearchParams({
  response_type: 'code', client_id: app.body.id, redirect_uri: redirect, scope: 'openid profile email', state: 'xyz',
  code_challenge: createHash('sha256').update(verifier).digest('base64url'), code_challenge_method: 'S256',
})
const bob = await newPage({ viewport: { width: 390, height: 800 } })
await bob.goto(authorize)
await bob.getByText('to go on to Eve’s Emporium').waitFor()
await signIn(bob, 'ada@example.com')
await bob.getByRole('heading', { name: 'Eve’s Emporium would like to' }).waitFor()
await look(bob, 'consent')
await bob.getByRole('button', { name: 'Allow' }).click()
await bob.waitForURL(`${redirect}?*`)
const code = new URL(bob.url()).searchParams.get('code')
const redeemed = await fetch(`${base}/oauth/token`, {
  method: 'POST',
  body: new URLSearchParams({ grant_type: 'authorization_code', client_id: app.body.id, code, redirect_uri: redirect,
    code_verifier: verifier }),
})
assert.equal(redeemed.status, 200)
// On a person's own machine any program could listen there, so it is asked each time.
await bob.goto(authorize)
await bob.getByRole('button', { name: 'Deny' }).click()
await bob.waitForURL(`${redirect}?*`)
assert.equal(new URL(bob.url()).searchParams.get('error'), 'access_denied')
step('the consent of a person to a client')

// A device.
const begun = await (await fetch(`${base}/auth/device/code`, {
  method: 'POST', body: new URLSearchParams({ client_id: app.body.id, scope: 'openid' }),
})).json()
await bob.goto(begun.verification_uri_complete)
await look(bob, 'device')
await bob.getByRole('button', { name: 'Go on' }).click()
await bob.getByRole('heading', { name: 'Eve’s Emporium wants to sign in on a device' }).waitFor()
await look(bob, 'device-decide')
await bob.getByRole('button', { name: 'Let it in' }).click()
await bob.getByText('The device is in').waitFor()
step('a device is let in')

// An authenticator app: set up, and asked for at the next sign-in.
function totp(uri, skip = 0) {
  const secret = new URL(uri).searchParams.get('secret')
  const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'
  const bits = [...secret].map((c) => letters.indexOf(c).toString(2).padStart(5, '0')).join('')
  const key = Buffer.from(bits.match(/.{8}/g).map((byte) => parseInt(byte, 2)))
  const counter = Buffer.alloc(8)
  counter.writeBigUInt64BE(BigInt(Math.floor(Date.now() / 30000) + skip))
  const digest = require('node:crypto').createHmac('sha1', key).update(counter).digest()
  const number = digest.readUInt32BE(digest[19] & 15) & 0x7fffffff
  return String(number % 1000000).padStart(6, '0')
}
const setUp = await call(eve, 'POST', '/auth/2fa/setup')
assert.equal((await call(eve, 'POST', '/auth/2fa/enable', { code: totp(setUp.body.otpauthUri) })).status, 200)
await call(eve, 'POST', '/auth/logout')
await eve.goto(`${base}/sign-in?continue=%2Fdevice`)
await signIn(eve, 'eve@example.com')
await eve.getByRole('heading', { name: 'One more step' }).waitFor()
await look(eve, 'second-factor')
await eve.getByLabel('Code').fill(totp(setUp.body.otpauthUri, 1))
await eve.getByRole('button', { name: 'Go on' }).click()
await eve.waitForURL(`${base}/device`)
step('an authenticator app at sign-in')

// One browser ends the session of another.
const other = await newPage()
await other.goto(`${base}/sign-in`)
await signIn(other, 'ada@example.com')
await other.getByText('You are signed in').waitFor()
assert.equal((await call(bob, 'DELETE', '/auth/sessions')).status, 204)
assert.equal((await call(other, 'GET', '/auth/me')).status, 401)
step('a session ended in one browser is over in another')

// What else can be seen.
for (const [path, name] of [['/forgot-password', 'forgot-password'], ['/auth/reset-password?token=x', 'reset-password'],
  ['/auth/magic-link/verify?token=x', 'sign-in-link'], ['/oauth/authorize?client_id=x', 'error'], ['/oauth/logout', 'signed-out']]) {
  await other.goto(base + path)
  await look(other, name)
}
// Nobody frames a page of ours.
const framing = await (await browser.newContext()).newPage()
const refused = framing.waitForEvent('console', (message) => message.text().includes("frame-ancestors 'none'"))
await framing.goto(redirect)
await framing.evaluate((src) => {
  const frame = document.createElement('iframe')
  frame.src = src
  document.body.append(frame)
}, `${base}/sign-in`)
await refused
step(`${seen.size} pages without a serious finding of axe, in light and dark; none can be framed`)

await site({ base, newPage, look, call, signIn, step, authorize, app: app.body.id, owner: eve, email: 'ada@example.com' })

await browser.close()
elsewhere.server.close()
console.log('done')
process.exit(0)
