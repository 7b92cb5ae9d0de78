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

const [base, outbox, firstOwner, provider, pictures] = process.argv.slice(2)
const password = 'correct horse battery staple'
const step = (name) => console.log(`ok ${name}`)

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--disable-background-networking', '--disable-sync',
    '--disable-component-update', '--no-first-run'],
})

const seen = new Set()

// No serious finding on any page, light and wide or dark and narrow; and a picture of each, in all four ways.
async function look(page, name) {
  if (seen.has(name)) return
  seen.add(name)
  const before = page.viewportSize()
  for (const [colorScheme, size, width] of [['light', 'wide', 1200], ['dark', 'narrow', 390], ['light', 'narrow', 390],
    ['dark', 'wide', 1200]]) {
    const isExamined = (colorScheme === 'light') === (size === 'wide')
    if (!isExamined && !pictures) continue
    await page.emulateMedia({ colorScheme })
    await page.setViewportSize({ width, height: 800 })
    if (isExamined) {
      await page.evaluate(axe)
      const { violations } = await page.evaluate(() => window.axe.run())
      const bad = violations.filter((found) => ['serious', 'critical'].includes(found.impact))
      assert.deepEqual(bad.map((found) => [found.id, found.nodes[0].html]), [], `${name}, ${colorScheme}, ${size}`)
      for (const narrow of size === 'narrow' ? [width, 360] : [width]) {
        await page.setViewportSize({ width: narrow, height: 800 })
        const tooWide = await page.evaluate(() => {
          const over = document.documentElement.scrollWidth - window.innerWidth
          const isOver = (one) => one.getBoundingClientRect().right > window.innerWidth + 0.5 && !one.closest('pre')
          return over > 0 ? [over, [...document.querySelectorAll('body *')].find(isOver)?.outerHTML.slice(0, 120)] : []
        })
        assert.deepEqual(tooWide, [], `${name} is too wide for ${narrow} pixels`)
      }
      await page.setViewportSize({ width, height: 800 })
    }
    if (pictures) {
      mkdirSync(pictures, { recursive: true })
      await page.screenshot({ path: `${pictures}/${name}-${colorScheme}-${size}.png` })
    }
  }
  await page.emulateMedia({ colorScheme: 'light' })
  await page.setViewportSize(before)
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
  // The provider's own page would like to; it is not let.
  await context.route((url) => !['localhost', '127.0.0.1'].includes(url.hostname), (route) => route.abort())
  page.on('request', (request) => {
    if (request.frame().url().startsWith(provider)) return
    const { origin } = new URL(request.url())
    assert.ok([base, elsewhere.origin, provider, 'null'].includes(origin), `a page asked ${request.url()}`)
  })
  page.on('console', (message) => {
    assert.ok(!message.text().includes('Content Security Policy'), message.text())
  })
  page.on('pageerror', (error) => assert.fail(error))
  return page
}

// Presses what leads to another document, and waits until that one is there: what comes next must not meet the old one.
async function press(button) {
  const arrived = button.page().waitForEvent('load')
  await button.click()
  await arrived
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

// A client's page, to come back to; and a receiver of webhooks.
const received = []
const elsewhere = await new Promise((resolve) => {
  const server = createServer((request, answer) => {
    if (request.method === 'POST') received.push(request.headers)
    answer.end('<!doctype html><title>Back</title>You are back.')
  })
  server.listen(0, '127.0.0.1', () => resolve({ server, origin: `http://127.0.0.1:${server.address().port}` }))
})

const until = async (what, isSo) => {
  for (let i = 0; i < 200; i++) {
    if (await isSo()) return
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  throw new Error(`${what} did not happen`)
}

// The owner of a new installation: the account, the first app, a key, a webhook, a delivery and the same once more.
const root = await newPage()
await root.goto(`${base}/first-owner?token=${firstOwner}`)
await look(root, 'first-owner')
await root.getByLabel('Your name').fill('Grace')
await root.getByLabel('Email address').fill('grace@example.com')
await root.getByLabel('Password').fill(password)
await root.getByRole('button', { name: 'Make the owner' }).click()
await root.waitForURL(`${base}/console`)
await root.getByRole('heading', { name: 'Your first five minutes' }).waitFor()
await look(root, 'console-new')
await root.getByLabel('A new app').fill('Hopper’s Harbour')
await root.getByRole('button', { name: 'Make the app' }).click()
await root.getByRole('heading', { name: 'Hopper’s Harbour' }).waitFor()
await root.getByLabel('Redirect URIs').fill(`${elsewhere.origin}/callback`)
await press(root.getByRole('button', { name: 'Save' }))
await look(root, 'console-app')
await root.getByRole('link', { name: 'Keys' }).click()
await root.getByText('There are none yet').waitFor()
await root.getByRole('button', { name: 'Make the key' }).click()
const publishable = await root.getByLabel('The new key, shown only now').inputValue()
assert.match(publishable, /^pk_live_/)
await look(root, 'console-keys')
await root.getByRole('link', { name: 'Webhooks' }).click()
await root.getByLabel('Address', { exact: true }).fill(`${elsewhere.origin}/hook`)
await root.getByRole('button', { name: 'Make the webhook' }).click()
assert.equal((await root.getByLabel('The secret of the new webhook').inputValue()).length, 64)
await look(root, 'console-webhook-new')
await root.getByRole('link', { name: 'send it a test' }).click()
await press(root.getByRole('button', { name: 'Send a test' }))
await until('a delivery', () => received.length === 1)
await until('the record of it', async () => {
  await root.reload()
  return root.getByText('delivered', { exact: true }).isVisible()
})
await root.locator('details.delivery summary').first().click()
await look(root, 'console-webhook')
await press(root.getByRole('button', { name: 'Deliver again' }))
await until('the same delivery again', () => received.length === 2)
step('an app, a key and a webhook made, a delivery received and delivered again')
await root.goto(`${base}/console`)
await root.getByText('See somebody sign in').waitFor()
await look(root, 'console-steps')
const entered = await fetch(`${base}/auth/login`, {
  method: 'POST',
  headers: { 'content-type': 'application/json', 'x-service-app-key': publishable },
  body: JSON.stringify({ email: 'grace@example.com', password }),
})
assert.equal(entered.status, 200)
await root.goto(`${base}/console`)
await root.getByRole('heading', { name: 'Apps' }).waitFor()
assert.equal(await root.getByRole('heading', { name: 'Your first five minutes' }).count(), 0)
await look(root, 'console')
await root.getByRole('link', { name: 'Hopper’s Harbour' }).click()
await root.getByRole('link', { name: 'People' }).click()
await root.getByText('grace@example.com').last().waitFor()
await look(root, 'console-people')
await root.getByRole('link', { name: 'Domain' }).click()
await root.getByLabel('Domain').fill('harbour.example')
await root.getByRole('button', { name: 'Add it' }).click()
await root.getByLabel('Value').waitFor()
await look(root, 'console-domain')
await root.getByRole('link', { name: 'Organization' }).click()
await look(root, 'console-org')
await root.getByRole('link', { name: 'Members' }).click()
await root.getByLabel('Ask somebody in').fill('lin@example.com')
await root.getByRole('button', { name: 'Send an invitation' }).click()
await root.getByText('lin@example.com').waitFor()
await look(root, 'console-members')
await root.getByRole('link', { name: 'SCIM' }).click()
await root.getByLabel('What is it for?').fill('Okta')
await root.getByRole('button', { name: 'Make a token' }).click()
await root.getByLabel('The new token').waitFor()
await look(root, 'console-scim')
await root.getByRole('navigation', { name: 'Organization' }).getByRole('link', { name: 'Activity' }).click()
await root.getByText('Member invited').waitFor()
await look(root, 'console-activity')
step('an organization, its members, its identity provider')

// Those who run the platform.
await root.getByRole('link', { name: 'Platform' }).click()
await root.getByRole('heading', { name: 'Signing keys' }).waitFor()
await look(root, 'platform')
await root.getByRole('link', { name: 'Incidents' }).click()
await root.getByLabel('Title').fill('Mail is slow')
await root.getByLabel('What is known').fill('The provider looks into it.')
await root.getByRole('button', { name: 'Tell everybody' }).click()
await root.getByRole('heading', { name: 'Mail is slow' }).waitFor()
await look(root, 'platform-incidents')
await root.getByLabel('What is new').fill('It is well again.')
await root.getByLabel('It is now').selectOption('resolved')
await root.getByRole('button', { name: 'Tell everybody' }).first().click()
await root.getByText('resolved').first().waitFor()
await root.getByRole('link', { name: 'Abuse' }).click()
await look(root, 'platform-abuse')
await mailed('lin@example.com', '/auth/accept-invite')
await root.getByRole('link', { name: 'Outbox' }).click()
await look(root, 'outbox')
await root.getByRole('link', { name: /invite|join/i }).first().click()
const letter = root.frameLocator('iframe.mail')
await letter.getByRole('link').first().waitFor()
await look(root, 'outbox-mail')
const opened = root.context().waitForEvent('page')
await letter.getByRole('link').first().click()
await (await opened).getByRole('heading', { name: /organization/ }).waitFor()
step('the platform and its outbox')

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
await ada.waitForURL(`${base}/account`)
step('sign-up to verified to signed in')

// A passkey, with an authenticator that is none.
const wire = await ada.context().newCDPSession(ada)
await wire.send('WebAuthn.enable')
await wire.send('WebAuthn.addVirtualAuthenticator', {
  options: { protocol: 'ctap2', transport: 'internal', hasResidentKey: true, hasUserVerification: true,
    isUserVerified: true, automaticPresenceSimulation: true },
})
await look(ada, 'account')
// The smallest picture there is.
const dot = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
await ada.getByLabel('Choose a picture').setInputFiles({ name: 'me.png', mimeType: 'image/png', buffer: Buffer.from(dot, 'base64') })
await ada.getByRole('img', { name: 'Your picture' }).waitFor()
step('a picture of oneself')
await ada.getByLabel('About you').fill('Enchantress of numbers')
await press(ada.getByRole('button', { name: 'Save' }))
await ada.getByRole('link', { name: 'Security' }).click()
await ada.getByLabel('A name for a new one').fill('My laptop')
await ada.getByRole('button', { name: 'Make a passkey' }).click()
await ada.getByRole('cell', { name: 'My laptop' }).waitFor()
await look(ada, 'account-security')
for (const name of ['Sessions', 'Apps', 'Activity', 'Your data']) {
  await ada.getByRole('navigation', { name: 'Account' }).getByRole('link', { name }).click()
  await look(ada, `account-${name.split(' ').pop().toLowerCase()}`)
}
// A long list goes on where it is.
for (let i = 0; i < 60; i++) assert.equal((await call(ada, 'PATCH', '/user/profile', { name: `Ada ${i}` })).status, 200)
await ada.goto(`${base}/account/activity`)
await ada.evaluate(() => (window.isSame = true))
assert.equal(await ada.locator('#rows tr').count(), 50)
await ada.getByRole('link', { name: 'Show older' }).click()
await ada.getByText('Account created').waitFor()
assert.ok((await ada.locator('#rows tr').count()) > 60 && (await ada.evaluate(() => window.isSame)))
step('a long list goes on where it is')
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
await press(eve.getByRole('button', { name: 'Make the account' }))
await eve.goto(await mailed('eve@example.com', '/auth/verify'))
await press(eve.getByRole('button', { name: 'Confirm this address' }))
await eve.goto(`${base}/sign-in`)
await signIn(eve, 'eve@example.com')
await eve.waitForURL(`${base}/account`)
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
// Who agreed is not asked again at a place that is registered to the letter, unless the client wants that.
await bob.goto(`${base}/account`)
await bob.goto(authorize)
await bob.waitForURL(`${redirect}?*`)
assert.ok(new URL(bob.url()).searchParams.get('code'))
await bob.goto(`${authorize}&prompt=consent`)
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
await eve.goto(`${base}/account/security`)
await eve.getByRole('button', { name: 'Set up an authenticator app' }).click()
await eve.getByRole('img', { name: 'The secret as a QR code' }).waitFor()
await look(eve, 'account-authenticator')
const otpauthUri = `otpauth://totp/x?secret=${await eve.getByLabel('The secret', { exact: true }).inputValue()}`
await eve.getByLabel('The code the app shows').fill(totp(otpauthUri))
await eve.getByRole('button', { name: 'Switch it on' }).click()
await eve.getByRole('heading', { name: 'Your recovery codes' }).waitFor()
await look(eve, 'account-recovery-codes')
await call(eve, 'POST', '/auth/logout')
await eve.goto(`${base}/sign-in?continue=%2Fdevice`)
await signIn(eve, 'eve@example.com')
await eve.getByRole('heading', { name: 'One more step' }).waitFor()
await look(eve, 'second-factor')
await eve.getByLabel('Code').fill(totp(otpauthUri, 1))
await eve.getByRole('button', { name: 'Go on' }).click()
await eve.waitForURL(`${base}/device`)
step('an authenticator app at sign-in')

// One browser ends the session of another.
const other = await newPage()
await other.goto(`${base}/sign-in`)
await signIn(other, 'ada@example.com')
await other.waitForURL(`${base}/account`)
await bob.goto(`${base}/account/sessions`)
await until('the other session to end', async () => {
  const button = bob.getByRole('button', { name: /^End it/ }).first()
  if (!(await button.isVisible())) return true
  await press(button)
  return false
})
assert.equal((await call(other, 'GET', '/auth/me')).status, 401)
await other.goto(`${base}/account`)
await other.getByRole('heading', { name: 'Sign in' }).waitFor()
step('a session ended in one browser is over in another')

// With an account elsewhere.
const lin = await newPage()
await lin.goto(`${base}/sign-in?continue=%2Faccount%2Fsessions`)
await lin.getByRole('button', { name: 'Go on with Google' }).click()
await lin.waitForURL(`${provider}/**`)
await lin.locator('input[name=login]').fill('lin')
await lin.locator('input[name=password]').fill('any')
await lin.locator('button[type=submit]').click()
await lin.locator('form').locator('button[type=submit]').click()
await lin.waitForURL(`${base}/account/sessions`)
await lin.getByText('lin@example.com').waitFor()
step('signing in with an account elsewhere')

// Without a script.
const plain = await newPage({ javaScriptEnabled: false })
await plain.goto(`${base}/account`)
await signIn(plain, 'ada@example.com')
await plain.getByLabel('About you').fill('No script at all')
await press(plain.getByRole('button', { name: 'Save' }))
assert.equal(await plain.getByLabel('About you').inputValue(), 'No script at all')
await plain.goto(`${base}/console`)
await plain.getByLabel('A new app').fill('Plain')
await plain.getByRole('button', { name: 'Make the app' }).click()
await plain.getByText('Delete this app…').click()
await plain.getByRole('button', { name: 'Delete Plain' }).click()
await plain.waitForURL(`${base}/console`)
assert.equal(await plain.getByRole('link', { name: 'Plain' }).count(), 0)
step('the account and the console without a script')

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

await site({ base, newPage, look, call, signIn, step, authorize, app: app.body.id, owner: eve, root, email: 'ada@example.com' })

await browser.close()
elsewhere.server.close()
console.log('done')
process.exit(0)
