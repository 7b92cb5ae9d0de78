// Websites that people sign in to with Janua, each made with a published library, and a person in front of Chromium who
// visits them. What is done is said on the output; a step that fails ends the program with what the browser shows.
import assert from 'node:assert/strict'
import { chromium } from 'playwright-core'
import * as apache from './sites/apache.mjs'
import * as formPost from './sites/form-post.mjs'
import * as passport from './sites/passport.mjs'
import * as singlePage from './sites/single-page.mjs'

const [issuer, email, password, clients] = process.argv.slice(2)
const apps = JSON.parse(clients)
const step = (name) => console.log(`ok ${name}`)

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--disable-background-networking', '--disable-sync',
    '--disable-component-update', '--no-first-run'],
})

// Somebody new in front of the browser; what they see is told when something goes wrong.
async function visit(name, site, story) {
  const context = await browser.newContext()
  const page = await context.newPage()
  page.setDefaultTimeout(10_000)
  const told = []
  page.on('console', (message) => told.push(message.text()))
  page.on('requestfailed', (request) => told.push(`${request.url()}: ${request.failure()?.errorText}`))
  try {
    await story(page, site.origin)
  } catch (error) {
    const shown = await page.evaluate(() => document.body.innerText).catch(() => '')
    throw new Error(`${name}, at ${page.url()}:\n${shown}\n${told.join('\n')}\n${site.log?.() ?? ''}`, { cause: error })
  } finally {
    await context.close()
    await site.stop()
  }
}

async function signIn(page) {
  await page.locator('input[name=email]').fill(email)
  await page.locator('input[name=password]').fill(password)
  await page.locator('input[name=password]').press('Enter')
}
const decide = (page, decision) => page.locator(`button[name=decision][value=${decision}]`).click()
const json = async (page) => JSON.parse(await page.locator('body').innerText())

async function viaPassport(page, origin) {
  await page.goto(`${origin}/login`)
  await signIn(page)
  await decide(page, 'allow')
  await page.waitForURL(`${origin}/`)
  const user = await json(page)
  assert.equal(user?.emails?.[0]?.value, email, JSON.stringify(user))
  step('passport-openidconnect')
}

async function viaApache(page, origin) {
  await page.goto(`${origin}/protected/`)
  await signIn(page)
  await decide(page, 'allow')
  await page.waitForURL(`${origin}/protected/`)
  await page.getByText('For those who are signed in.').waitFor()
  await page.goto(`${origin}/protected/redirect_uri?info=json`)
  const told = await json(page)
  assert.equal(told.id_token.email, email)
  assert.equal(told.userinfo.email_verified, true)
  step('mod_auth_openidc')
  await page.goto(`${origin}/protected/redirect_uri?logout=${encodeURIComponent(`${origin}/goodbye`)}`)
  await page.waitForURL(`${origin}/goodbye*`)
  await page.goto(`${origin}/protected/`)
  await page.locator('input[name=password]').waitFor()
  step('mod_auth_openidc, sign-out')
}

async function viaFormPost(page, origin) {
  await page.goto(`${origin}/login`)
  await signIn(page)
  await decide(page, 'allow')
  await page.waitForURL(`${origin}/`)
  assert.equal((await json(page))?.email, email)
  step('form_post as ASP.NET Core sends it')
  await page.goto(`${origin}/login?prompt=consent`)
  await decide(page, 'deny')
  await page.getByText('refused: access_denied').waitFor()
  step('form_post of a refusal')
  await page.goto(`${origin}/logout`)
  await page.getByText('goodbye CfDJ8bye').waitFor()
  step('form_post, sign-out')
}

async function viaSinglePage(page, origin) {
  await page.goto(origin)
  await page.evaluate(async (issuer) => {
    const told = await (await fetch(`${issuer}/.well-known/openid-configuration`)).json()
    const redirect_uris = ['/callback', '/silent', '/goodbye'].map((path) => location.origin + path)
    const answer = await fetch(told.registration_endpoint, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ client_name: 'A page', redirect_uris, token_endpoint_auth_method: 'none' }),
    })
    const client = await answer.json()
    if (!client.client_id) throw new Error(JSON.stringify(client))
    sessionStorage.client = JSON.stringify({ issuer, clientId: client.client_id })
  }, issuer)
  step('oidc-client-ts, registered by fetch')
  const come = async (more) => {
    await page.waitForURL(`${origin}/callback?*`)
    return page.evaluate(async (more) => {
      const { profile, refresh_token, access_token } = await manager(more).signinCallback()
      return { profile, refresh_token, access_token }
    }, more)
  }
  await page.evaluate(() => void manager().signinRedirect())
  await signIn(page)
  await decide(page, 'allow')
  const first = await come()
  assert.equal(first.profile.email, email)
  assert.equal(first.profile.email_verified, true, 'userinfo was asked')
  step('oidc-client-ts, sign-in')
  // Without a refresh token it asks in a frame that nobody sees.
  const renew = (more) => page.evaluate(async (more) => {
    const { profile, access_token } = await manager(more).signinSilent()
    return { profile, access_token }
  }, more)
  const second = await renew()
  assert.notEqual(second.access_token, first.access_token)
  assert.equal(second.profile.sub, first.profile.sub)
  step('oidc-client-ts, renewed in a frame')
  const offline = { scope: 'openid profile email offline_access' }
  await page.evaluate((more) => void manager(more).signinRedirect(), offline)
  await decide(page, 'allow')
  const third = await come(offline)
  assert.ok(third.refresh_token)
  const fourth = await renew(offline)
  assert.notEqual(fourth.access_token, third.access_token)
  step('oidc-client-ts, refreshed by fetch')
  await page.evaluate(() => void manager().signoutRedirect({ state: 'bye' }))
  await page.waitForURL(`${origin}/goodbye?*`)
  assert.equal(await page.evaluate(async () => (await manager().signoutCallback()).userState), 'bye')
  await page.evaluate(() => void manager().signinRedirect())
  await page.locator('input[name=password]').waitFor()
  step('oidc-client-ts, sign-out')
}

const stories = [
  ['passport-openidconnect', () => passport.start({ issuer, ...apps.passport }), viaPassport],
  ['mod_auth_openidc', () => apache.start({ issuer, ...apps.apache }), viaApache],
  ['form_post', () => formPost.start({ issuer, ...apps.formPost }), viaFormPost],
  ['oidc-client-ts', () => singlePage.start(), viaSinglePage],
]
let failed = 0
for (const [name, start, story] of stories) {
  try {
    await visit(name, await start(), story)
  } catch (error) {
    failed++
    console.error(error)
  }
}
await browser.close()
if (!failed) console.log('done')
process.exit(failed)
