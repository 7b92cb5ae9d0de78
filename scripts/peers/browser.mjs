// A person in front of a real browser: Chromium, driven over its own protocol. What is done is said on the output; a step
// that does not work ends the program. Every page is looked at by axe, and photographed when a folder is given.
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { mkdirSync, readFileSync, readdirSync, statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { createServer } from 'node:http'
import { barriers, excess, wrongHtml } from './browser-look.mjs'
import { site } from './browser-site.mjs'
import { walk } from './browser-walk.mjs'

const require = createRequire(process.env.TEST_NODE + '/package.json')
const { chromium } = require('playwright-core')

const [base, outbox, firstOwner, provider, pictures] = process.argv.slice(2)
const password = 'correct horse battery staple'
const step = (name) => console.log(`ok ${name}`)

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--disable-background-networking', '--disable-sync',
    '--disable-component-update', '--no-first-run'],
})

const documents = new WeakMap()
// What the server sent is right HTML.
async function examine(page, name) {
  const text = await documents.get(page)
  if (!text) return
  const found = await wrongHtml(text)
  assert.deepEqual(found, [], `${name} as HTML`)
}

const seen = new Set()

// No finding on any page, light and wide or dark and narrow, and nothing wider than a small phone; and a picture of each,
// in all four ways.
async function look(page, name) {
  if (seen.has(name)) return
  seen.add(name)
  await examine(page, name)
  const before = page.viewportSize()
  for (const [colorScheme, size, width] of [['light', 'wide', 1440], ['dark', 'narrow', 390], ['light', 'narrow', 390],
    ['dark', 'wide', 1440]]) {
    const isExamined = (colorScheme === 'light') === (size === 'wide')
    if (!isExamined && !pictures) continue
    // Without motion: a button that is still changing its color has a contrast of its own.
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
    await page.setViewportSize({ width, height: 800 })
    if (isExamined) {
      assert.deepEqual(await barriers(page), [], `${name}, ${colorScheme}, ${size}`)
      for (const narrow of size === 'narrow' ? [width, 360] : [width]) {
        await page.setViewportSize({ width: narrow, height: 800 })
        assert.deepEqual(await excess(page), [], `${name} is too wide for ${narrow} pixels`)
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
      const mail = readFileSync(file, 'utf8')
      const link = mail.match(new RegExp(`${path}\\?token=([\\w-]+)`))
      if (mail.includes(`To: ${address}`) && link) return `${base}${link[0].replace(/^.*?\//, '/')}`
    }
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  throw new Error(`no mail to ${address} with ${path}`)
}

// The 6-digit code in the newest mail to somebody that has one.
async function mailedCode(address) {
  await mailed(address, '/auth/verify')
  const files = readdirSync(outbox).map((name) => readFileSync(`${outbox}/${name}`, 'utf8'))
  const mail = files.find((text) => text.includes(`To: ${address}`) && text.includes('/auth/verify'))
  return mail.match(/Code: (\d{6})/)[1]
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
  page.on('response', (response) => {
    const isDocument = response.request().isNavigationRequest() && response.frame() === page.mainFrame()
    if (isDocument && response.url().startsWith(base) && response.status() !== 303) {
      documents.set(page, response.text().catch(() => ''))
    }
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
  await page.getByLabel('Email', { exact: true }).fill(email)
  await page.getByLabel('Password', { exact: true }).fill(secret)
  // The name ends in "Last used" where it is.
  await page.getByRole('button', { name: /^Sign in/ }).click()
}

// A page says once what was done: a reload says nothing, and no address tells of the form.
async function told(page, words) {
  await page.getByRole('status').getByText(words, { exact: true }).waitFor()
  assert.ok(!page.url().includes('/act'), page.url())
  await page.reload()
  assert.equal(await page.getByText(words, { exact: true }).count(), 0, `${words} is said once`)
}

// A link of the navigation at the side.
const nav = (page, name) => page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name, exact: true })

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
await root.goto(base)
await root.getByText("Create the owner's account at").waitFor()
await look(root, 'home-unclaimed')
await root.goto(`${base}/first-owner?token=${firstOwner}`)
await look(root, 'first-owner')
await root.getByLabel('Name', { exact: true }).fill('Grace')
await root.getByLabel('Email', { exact: true }).fill('grace@example.com')
await root.getByLabel('Password', { exact: true }).fill(password)
await root.getByRole('button', { name: 'Create owner account' }).click()
await root.waitForURL(`${base}/console`)
await root.getByRole('heading', { name: 'Get started' }).waitFor()
await look(root, 'console-new')
// A dialog is a page of its own: what is behind it cannot be reached, and Escape leads back.
await root.getByRole('link', { name: 'Create app' }).first().click()
await root.getByRole('dialog', { name: 'Create app' }).waitFor()
assert.ok(await root.locator('.shell').evaluate((shell) => shell.inert), 'the page behind the dialog cannot be reached')
await look(root, 'console-new-app')
await root.keyboard.press('Escape')
await root.waitForURL(`${base}/console`)
await root.getByRole('link', { name: 'Create app' }).first().click()
await root.getByLabel('App name').fill('Hopper’s Harbour')
await root.getByRole('button', { name: 'Create app' }).click()
await root.getByRole('heading', { name: 'Overview' }).waitFor()
await told(root, 'App created.')
await look(root, 'console-app-overview')
await nav(root, 'Settings').click()
await root.getByLabel('Redirect URLs').fill(`${elsewhere.origin}/callback`)
await press(root.getByRole('button', { name: 'Save', exact: true }))
await told(root, 'Saved.')
// A refused form says why at its field, which has the focus, and keeps what was typed.
await root.getByLabel('Brand color').fill('bluish')
await press(root.getByRole('button', { name: 'Save color' }))
await root.getByText('Use a hex color such as #1d4ed8.').waitFor()
assert.equal(await root.evaluate(() => document.activeElement.id), 'color')
assert.equal(await root.getByLabel('Brand color').inputValue(), 'bluish')
await look(root, 'console-app-refused')
await root.goto(root.url())
await look(root, 'console-app')
await nav(root, 'Quick start').click()
await root.getByText('Waiting for the first sign-in').waitFor()
await root.getByText('Python', { exact: true }).click()
await root.getByText('class Handler').waitFor()
await look(root, 'console-quick-start')
await nav(root, 'API keys').click()
await root.getByText('No API keys yet').waitFor()
await look(root, 'console-keys-none')
await root.getByRole('link', { name: 'Create key' }).first().click()
await look(root, 'console-keys-new')
await root.getByRole('button', { name: 'Create key' }).click()
const publishable = await root.getByLabel('New key', { exact: true }).inputValue()
assert.match(publishable, /^pk_live_/)
await look(root, 'console-keys')
await told(root, 'Key created.')
assert.equal(await root.getByLabel('New key', { exact: true }).count(), 0, 'a key is shown once')
assert.equal(await root.locator('#rows > tr').count(), 1, 'a reload creates no second one')
await nav(root, 'Webhooks').click()
await root.getByRole('link', { name: 'Add endpoint' }).first().click()
await look(root, 'console-webhooks-new')
await root.getByLabel('Endpoint URL').fill(`${elsewhere.origin}/hook`)
await root.getByRole('button', { name: 'Add endpoint' }).click()
assert.equal((await root.getByLabel('Signing secret', { exact: true }).inputValue()).length, 64)
await look(root, 'console-webhook-new')
await root.getByRole('link', { name: 'Open endpoint' }).click()
await press(root.getByRole('button', { name: 'Send test event' }))
await until('a delivery', () => received.length === 1)
await until('the record of it', async () => {
  await root.reload()
  return root.locator('details.delivery').getByText('Delivered', { exact: true }).isVisible()
})
await root.locator('details.delivery summary').first().click()
await look(root, 'console-webhook')
await press(root.getByRole('button', { name: 'Send again' }))
await until('the same delivery again', () => received.length === 2)
step('an app, a key and an endpoint created, a delivery received and sent again')
await root.goto(`${base}/console`)
await root.getByText('Sign in a user').waitFor()
await look(root, 'console-steps')
const entered = await fetch(`${base}/auth/login`, {
  method: 'POST',
  headers: { 'content-type': 'application/json', 'x-service-app-key': publishable },
  body: JSON.stringify({ email: 'grace@example.com', password }),
})
assert.equal(entered.status, 200)
await root.goto(`${base}/console`)
await root.getByRole('heading', { name: 'Apps' }).waitFor()
assert.equal(await root.getByRole('heading', { name: 'Get started' }).count(), 0)
await look(root, 'console')
await root.getByRole('main').getByRole('link', { name: 'Hopper’s Harbour' }).click()
await nav(root, 'Users').click()
await root.getByRole('main').getByText('grace@example.com').waitFor()
await look(root, 'console-users')
await nav(root, 'Domains').click()
await look(root, 'console-domains')
await root.getByRole('link', { name: 'set the domain of the app' }).click()
await root.getByLabel('Domain', { exact: true }).fill('harbour.example')
await root.getByRole('button', { name: 'Add domain' }).click()
await root.getByLabel('Value', { exact: true }).waitFor()
await look(root, 'console-domain')
await root.getByRole('navigation', { name: 'Breadcrumb' }).getByRole('link').first().click()
await look(root, 'console-org')
await nav(root, 'Members').click()
await root.getByRole('link', { name: 'Invite member' }).click()
await root.getByLabel('Email', { exact: true }).fill('lin@example.com')
await root.getByRole('button', { name: 'Send invitation' }).click()
await root.getByText('Invitation sent to lin@example.com.').waitFor()
// The script takes the notice's own parameter out of the address.
await root.waitForURL((url) => !url.searchParams.has('told'))
await look(root, 'console-members')
await nav(root, 'SCIM').click()
await root.getByRole('link', { name: 'Create token' }).first().click()
await root.getByLabel('Name', { exact: true }).fill('Okta')
await root.getByRole('button', { name: 'Create token' }).click()
await root.getByLabel('New token', { exact: true }).waitFor()
await look(root, 'console-scim')
// A question before an act is a popover: it opens and closes without leaving the page.
await root.getByRole('button', { name: 'Revoke token Okta' }).click()
await root.getByRole('dialog', { name: 'Revoke Okta?' }).waitFor()
await look(root, 'console-revoke')
await root.getByRole('button', { name: 'Cancel' }).click()
await root.getByRole('dialog', { name: 'Revoke Okta?' }).waitFor({ state: 'hidden' })
await nav(root, 'Activity').click()
await root.locator('#rows').getByText('Member invited').waitFor()
await root.getByRole('cell', { name: 'Grace', exact: true }).first().waitFor()
await look(root, 'console-activity')
await root.getByLabel('Type').selectOption('SCIM_TOKEN_CREATED')
await press(root.getByRole('button', { name: 'Filter' }))
await root.locator('#rows').getByText('SCIM token created').waitFor()
assert.equal(await root.locator('#rows').getByText('Member invited').count(), 0, 'the filter holds')
const file = root.waitForEvent('download')
await root.getByRole('link', { name: 'Download CSV' }).click()
assert.match(readFileSync(await (await file).path(), 'utf8'), /^time,type,actor,/)
// Search, by a key of the keyboard.
await root.keyboard.press('/')
await root.getByRole('dialog', { name: 'Search' }).getByRole('searchbox').fill('harbour keys')
await root.getByRole('dialog', { name: 'Search' }).getByRole('link', { name: /API keys/ }).waitFor()
await root.keyboard.press('ArrowDown')
await press({ page: () => root, click: () => root.keyboard.press('Enter') })
await root.getByRole('heading', { name: 'API keys' }).waitFor()
await root.goto(`${base}/console/search?q=grace`)
await look(root, 'console-search')
step('an organization, its members, its identity provider')

// Those who run the platform.
await root.getByRole('button', { name: 'Account menu' }).click()
await look(root, 'console-menu')
await root.getByRole('banner').getByRole('link', { name: 'Platform' }).click()
await root.getByRole('heading', { name: 'Signing keys' }).waitFor()
await look(root, 'platform')
await nav(root, 'Incidents').click()
await root.getByRole('link', { name: 'Report incident' }).first().click()
await root.getByLabel('Title').fill('Mail is slow')
await root.getByLabel('Message').fill('The provider looks into it.')
await root.getByRole('button', { name: 'Publish incident' }).click()
await root.getByRole('heading', { name: 'Mail is slow' }).waitFor()
await look(root, 'platform-incidents')
await root.getByLabel('Update').fill('It is well again.')
await root.getByLabel('State').selectOption('resolved')
await root.getByRole('button', { name: 'Publish update' }).click()
await root.locator('.badge', { hasText: 'Resolved' }).waitFor()
await nav(root, 'Abuse').click()
await look(root, 'platform-abuse')
await mailed('lin@example.com', '/auth/accept-invite')
await nav(root, 'Outbox').click()
await look(root, 'outbox')
await root.getByRole('link', { name: /invite|join/i }).first().click()
const letter = root.frameLocator('iframe.mail')
await letter.getByRole('link').first().waitFor()
await look(root, 'outbox-mail')
const opened = root.context().waitForEvent('page')
await letter.getByRole('link').first().click()
await (await opened).getByRole('heading', { name: /organization/ }).waitFor()
await look(await opened, 'invite')
step('the platform and its outbox')

// Every mail, from its sample.
await root.goto(`${base}/console/mails`)
await look(root, 'mail-samples')
await root.getByRole('link', { name: 'New sign-in to your account' }).click()
await root.frameLocator('iframe.mail').getByRole('link', { name: 'Secure your account' }).waitFor()
await root.getByText('Plain text', { exact: true }).click()
await root.getByText('IP address: 192.0.2.1').waitFor()
await look(root, 'mail-sample')
step('every mail from its sample')

// Every part that pages are made of.
await root.goto(`${base}/console/design`)
await look(root, 'design')
await root.goto(`${base}/console/design?new=sample`)
await look(root, 'design-dialog')
// On a phone the navigation is a drawer.
await root.setViewportSize({ width: 390, height: 800 })
await root.goto(`${base}/console`)
assert.equal(await nav(root, 'Apps').count(), 0, 'it is closed')
await root.getByRole('button', { name: 'Open navigation' }).click()
await nav(root, 'Apps').waitFor()
await root.keyboard.press('Escape')
assert.equal(await nav(root, 'Apps').count(), 0, 'Escape closes it')
await root.setViewportSize({ width: 1280, height: 720 })
step('every part on one page, and the navigation on a phone')

// Sign-up to verified to signed in.
const ada = await newPage()
await ada.goto(`${base}/sign-up`)
await look(ada, 'sign-up')
await ada.getByLabel('Name', { exact: true }).fill('Ada')
await ada.getByLabel('Email', { exact: true }).fill('ada@example.com')
await ada.getByLabel('Password', { exact: true }).fill(password)
await ada.getByRole('button', { name: 'Show password' }).click()
assert.equal(await ada.getByLabel('Password', { exact: true }).getAttribute('type'), 'text', 'it can be looked at')
await ada.getByRole('button', { name: 'Create account' }).click()
await ada.getByText('Check your email').waitFor()
await look(ada, 'check-email')
// In another browser the link asks first; in this one it leads straight on.
const confirmation = await mailed('ada@example.com', '/auth/verify')
const phone = await newPage({ viewport: { width: 390, height: 800 } })
await phone.goto(confirmation)
await phone.getByRole('button', { name: 'Confirm email' }).waitFor()
await look(phone, 'verify')
await ada.goto(confirmation)
await ada.waitForURL(`${base}/account`)
await phone.goto(confirmation)
await phone.getByRole('button', { name: 'Send new link' }).waitFor()
await look(phone, 'link-expired')
assert.equal((await call(ada, 'POST', '/auth/logout')).status, 204)
await ada.goto(`${base}/sign-in`)
await ada.getByRole('button', { name: 'Continue with a passkey' }).waitFor()
const moved = await ada.evaluate(() => new Promise((resolve) => {
  let sum = 0
  new PerformanceObserver((list) => list.getEntries().forEach((shift) => (sum += shift.value)))
    .observe({ type: 'layout-shift', buffered: true })
  setTimeout(() => resolve(sum), 500)
}))
assert.equal(moved, 0, 'nothing moves while the sign-in page loads')
assert.equal(await ada.getByRole('button', { name: 'Sign in', exact: true }).getAttribute('data-last'), null)
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
await ada.getByLabel('Upload picture').setInputFiles({ name: 'me.png', mimeType: 'image/png', buffer: Buffer.from(dot, 'base64') })
await ada.getByRole('img', { name: 'Your picture' }).waitFor()
step('a picture of oneself')
await ada.getByLabel('About you').fill('Enchantress of numbers')
await press(ada.getByRole('button', { name: 'Save' }))
await nav(ada, 'Security').click()
await ada.getByLabel('Name of the new passkey').fill('My laptop')
await ada.getByRole('button', { name: 'Add passkey' }).click()
await ada.getByRole('cell', { name: 'My laptop', exact: true }).waitFor()
await look(ada, 'account-security')
for (const name of ['Sessions', 'Connected apps', 'Activity', 'Your data']) {
  await nav(ada, name).click()
  await look(ada, `account-${name.split(' ').pop().toLowerCase()}`)
}
// A long list goes on where it is.
for (let i = 0; i < 60; i++) assert.equal((await call(ada, 'PATCH', '/user/profile', { name: `Ada ${i}` })).status, 200)
await ada.goto(`${base}/account/activity`)
await ada.evaluate(() => (window.isSame = true))
assert.equal(await ada.locator('#rows tr').count(), 50)
await ada.getByRole('link', { name: 'Show older' }).click()
await ada.locator('#rows').getByText('Account created').waitFor()
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
await eve.getByLabel('Name', { exact: true }).fill('Eve')
await eve.getByLabel('Email', { exact: true }).fill('eve@example.com')
await eve.getByLabel('Password', { exact: true }).fill(password)
await press(eve.getByRole('button', { name: 'Create account' }))
await eve.goto(await mailed('eve@example.com', '/auth/verify'))
await eve.waitForURL(`${base}/account`)
await call(eve, 'POST', '/auth/logout')
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
await bob.getByText('to continue to Eve’s Emporium').waitFor()
await signIn(bob, 'ada@example.com')
await bob.getByRole('heading', { name: 'Eve’s Emporium wants to access your account' }).waitFor()
await look(bob, 'consent')
await bob.getByRole('button', { name: 'Allow access' }).click()
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

// New people on the way to an app end there: with the code of the mail, and by its link on a phone.
async function signUpForApp(page, name, email) {
  await page.goto(authorize)
  await page.getByRole('link', { name: 'Create an account' }).click()
  await page.getByText('to continue to Eve’s Emporium').waitFor()
  await page.getByLabel('Name', { exact: true }).fill(name)
  await page.getByLabel('Email', { exact: true }).fill(email)
  await page.getByLabel('Password', { exact: true }).fill(password)
  await page.getByRole('button', { name: 'Create account' }).click()
  await page.getByRole('heading', { name: 'Check your email' }).waitFor()
}
async function endsAtApp(page) {
  await page.getByRole('button', { name: 'Allow access' }).click()
  await page.waitForURL(`${redirect}?*`)
  const said = new URL(page.url()).searchParams
  assert.ok(said.get('code') && said.get('state') === 'xyz', page.url())
}
const ida = await newPage()
await signUpForApp(ida, 'Ida', 'ida@example.com')
await ida.getByLabel('6-digit code').fill('12345x')
await ida.getByLabel('6-digit code').fill(await mailedCode('ida@example.com'))
await ida.getByRole('button', { name: 'Continue' }).click()
await endsAtApp(ida)
const uma = await newPage()
await signUpForApp(uma, 'Uma', 'uma@example.com')
const umasPhone = await newPage({ viewport: { width: 390, height: 800 } })
await umasPhone.goto(await mailed('uma@example.com', '/auth/verify'))
await umasPhone.getByText('to continue to Eve’s Emporium').waitFor()
await umasPhone.getByRole('button', { name: 'Confirm email' }).click()
await umasPhone.getByText('Email confirmed').waitFor()
assert.equal(await umasPhone.getByLabel('Email', { exact: true }).inputValue(), 'uma@example.com')
await look(umasPhone, 'sign-in-confirmed')
await umasPhone.getByLabel('Password', { exact: true }).fill(password)
await umasPhone.getByRole('button', { name: /^Sign in/ }).click()
await endsAtApp(umasPhone)
step('sign-up, mail, app: in one browser and on a phone')

// A device.
const begun = await (await fetch(`${base}/auth/device/code`, {
  method: 'POST', body: new URLSearchParams({ client_id: app.body.id, scope: 'openid' }),
})).json()
await bob.goto(begun.verification_uri_complete)
await look(bob, 'device')
await bob.getByRole('button', { name: 'Continue' }).click()
await bob.getByRole('heading', { name: 'Connect Eve’s Emporium on a device' }).waitFor()
await look(bob, 'device-decide')
await bob.getByRole('button', { name: 'Connect device' }).click()
await bob.getByText('Device connected').waitFor()
step('a device is connected')

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
await eve.getByRole('button', { name: 'Set up authenticator app' }).click()
await eve.getByRole('img', { name: 'QR code with the secret' }).waitFor()
await look(eve, 'account-authenticator')
const otpauthUri = `otpauth://totp/x?secret=${await eve.getByLabel('Secret', { exact: true }).inputValue()}`
await eve.getByLabel('6-digit code').fill(totp(otpauthUri))
await eve.getByRole('button', { name: 'Turn on' }).click()
await eve.getByRole('heading', { name: 'Recovery codes' }).waitFor()
await look(eve, 'account-recovery-codes')
await call(eve, 'POST', '/auth/logout')
await eve.goto(`${base}/sign-in?continue=%2Fdevice`)
await signIn(eve, 'eve@example.com')
await eve.getByRole('heading', { name: 'Two-factor authentication' }).waitFor()
await look(eve, 'second-factor')
await eve.getByLabel('Code', { exact: true }).fill(totp(otpauthUri, 1))
await eve.getByLabel('Trust this browser for 30 days').check()
await eve.getByRole('button', { name: 'Continue' }).click()
await eve.waitForURL(`${base}/device`)
step('an authenticator app at sign-in')

// A device that is trusted is listed, and forgotten again.
await eve.goto(`${base}/account/sessions`)
await look(eve, 'account-trusted-devices')
await eve.getByRole('button', { name: 'Forget all devices' }).click()
await look(eve, 'account-forget-devices')
await press(eve.getByRole('dialog').getByRole('button', { name: 'Forget all devices' }))
await eve.getByText('No trusted devices.').waitFor()
await eve.goto(`${base}/account/security`)
await eve.getByRole('button', { name: 'Turn off' }).first().click()
await eve.getByLabel('Code from the app, or a recovery code').waitFor()
await look(eve, 'account-turn-off')
step('trusted devices, and what turning off a factor asks for')

// One browser ends the session of another.
const other = await newPage()
await other.goto(`${base}/sign-in`)
await signIn(other, 'ada@example.com')
await other.waitForURL(`${base}/account`)
await bob.goto(`${base}/account/sessions`)
await until('the other session to end', async () => {
  const button = bob.getByRole('button', { name: /^End session/ }).first()
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
await lin.getByRole('button', { name: 'Continue with Google' }).click()
await lin.waitForURL(`${provider}/**`)
await lin.locator('input[name=login]').fill('lin')
await lin.locator('input[name=password]').fill('any')
await lin.locator('button[type=submit]').click()
await lin.locator('form').locator('button[type=submit]').click()
await lin.waitForURL(`${base}/account/sessions`)
await lin.getByRole('button', { name: 'Account menu' }).click()
await lin.getByText('lin@example.com').waitFor()
step('signing in with an account elsewhere')

// Without a script.
const plain = await newPage({ javaScriptEnabled: false })
await plain.goto(`${base}/account`)
await signIn(plain, 'ada@example.com')
await plain.getByLabel('About you').fill('No script at all')
await press(plain.getByRole('button', { name: 'Save' }))
assert.equal(await plain.getByLabel('About you').inputValue(), 'No script at all')
await told(plain, 'Saved.')
await plain.getByRole('textbox', { name: 'Name', exact: true }).fill(' ')
await press(plain.getByRole('button', { name: 'Save' }))
await plain.getByText('Fill in this field.').waitFor()
assert.ok(plain.url().startsWith(`${base}/account?`), plain.url())
await plain.goto(`${base}/console`)
await plain.getByRole('link', { name: 'Create app' }).first().click()
await plain.getByLabel('App name').fill('Plain')
await plain.getByRole('button', { name: 'Create app' }).click()
await told(plain, 'App created.')
await nav(plain, 'API keys').click()
await plain.getByRole('link', { name: 'Create key' }).first().click()
await plain.getByRole('button', { name: 'Create key' }).click()
assert.match(await plain.getByLabel('New key', { exact: true }).inputValue(), /^pk_live_/)
await told(plain, 'Key created.')
assert.equal(await plain.getByLabel('New key', { exact: true }).count(), 0, 'a key is shown once')
assert.equal(await plain.locator('#rows > tr').count(), 1, 'a reload creates no second one')
await plain.goto(`${base}/console/search?q=plain+settings`)
await plain.getByRole('main').getByRole('link', { name: /Settings/ }).first().click()
await plain.getByRole('button', { name: 'Delete app' }).click()
await plain.getByRole('button', { name: 'Delete Plain' }).click()
await told(plain, 'App deleted.')
assert.equal(await plain.getByRole('link', { name: 'Plain' }).count(), 0)
step('the account and the console without a script')

for (const [how, javaScriptEnabled] of [['with a script', true], ['without a script', false]]) {
  await walk({ how, javaScriptEnabled, base, newPage, signIn, press, told, nav, mailed, mailedCode, look, totp, step, authorize, redirect,
    app: 'Eve’s Emporium', owner: 'grace@example.com', password })
}

// What else can be seen.
for (const [path, name] of [['/', 'home'], ['/nothing', 'not-found'], ['/forgot-password', 'forgot-password'],
  ['/oauth/authorize?client_id=x', 'oauth-error'], ['/oauth/logout', 'signed-out']]) {
  await other.goto(base + path)
  await look(other, name)
}
await root.goto(base)
await root.getByRole('link', { name: 'Open console' }).waitFor()
await look(root, 'home-signed-in')
// What mails lead to, in another browser than the one that requested them.
for (const [path, name] of [['/auth/reset-password', 'reset-password'], ['/auth/magic-link/verify', 'sign-in-link']]) {
  await other.goto(`${base}/${name === 'sign-in-link' ? 'sign-in' : 'forgot-password'}`)
  await other.getByLabel('Email', { exact: true }).fill('ida@example.com')
  await other.getByRole('button', { name: /^(Send link|Email me a sign-in link)/ }).click()
  await other.getByRole('heading', { name: 'Check your email' }).waitFor()
  await look(other, `check-email-${name}`)
  await phone.goto(await mailed('ida@example.com', path))
  await look(phone, name)
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
step(`${seen.size} pages without a finding of axe, in light and dark; none can be framed`)

await site({ base, newPage, look, call, signIn, step, authorize, app: app.body.id, owner: eve, root, email: 'ada@example.com' })

// On a network with many failures the browser solves a challenge, on the form that was sent. Nothing comes after this: the
// challenge is asked for everywhere.
const suspect = await newPage()
await suspect.goto(`${base}/sign-in`)
for (let i = 0; i < 24; i++) {
  await call(suspect, 'POST', '/auth/login', { email: `nobody${i % 6}@example.com`, password: 'wrong wrong wrong' })
}
await press(suspect.getByRole('button', { name: 'Continue with Google' }))
await suspect.getByText('Security check passed. Choose the provider again.').waitFor()
await look(suspect, 'sign-in-challenge')
await suspect.getByRole('button', { name: 'Continue with Google' }).click()
await suspect.waitForURL(`${provider}/**`)
await suspect.goto(`${base}/sign-in`)
await signIn(suspect, 'ida@example.com')
await suspect.getByText('Security check passed. Enter your password again.').waitFor()
step('a security check on the page of the form')

await browser.close()
elsewhere.server.close()
console.log('done')
process.exit(0)
