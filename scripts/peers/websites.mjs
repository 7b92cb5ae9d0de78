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
  page.setDefaultTimeout(20_000)
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

// What the page does with the library, step by step.
function library(page, origin, options) {
  return {
    signIn: () => page.evaluate((options) => void manager(options).signinRedirect(), options),
    signOut: () => page.evaluate((options) => void manager(options).signoutRedirect({ state: 'bye' }), options),
    cameBack: async () => {
      await page.waitForURL(`${origin}/callback?*`)
      return page.evaluate(async (options) => ({ ...(await manager(options).signinCallback()) }), options)
    },
    renew: () => page.evaluate(async (options) => ({ ...(await manager(options).signinSilent()) }), options),
    leftWell: async () => {
      await page.waitForURL(`${origin}/goodbye?*`)
      return page.evaluate(async (options) => (await manager(options).signoutCallback()).userState === 'bye', options)
    },
  }
}

async function viaSinglePage(page, origin) {
  // A client that registers itself, and stays signed in by a refresh token.
  await page.goto(origin)
  const clientId = await page.evaluate(async (issuer) => {
    const told = await (await fetch(`${issuer}/.well-known/openid-configuration`)).json()
    const redirect_uris = ['/callback', '/silent', '/goodbye'].map((path) => location.origin + path)
    const answer = await fetch(told.registration_endpoint, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ client_name: 'A page', redirect_uris, token_endpoint_auth_method: 'none' }),
    })
    const text = await answer.text()
    return JSON.parse(text).client_id ?? Promise.reject(new Error(text))
  }, issuer)
  step('oidc-client-ts, registered by fetch')
  const own = { authority: issuer, client_id: clientId, scope: 'openid profile email offline_access' }
  const registered = library(page, origin, own)
  await registered.signIn()
  await signIn(page)
  await decide(page, 'allow')
  const first = await registered.cameBack()
  assert.equal(first.profile.email, email)
  assert.equal(first.profile.email_verified, true, 'userinfo was asked')
  step('oidc-client-ts, sign-in')
  const second = await registered.renew()
  assert.notEqual(second.access_token, first.access_token)
  assert.notEqual(second.refresh_token, first.refresh_token)
  step('oidc-client-ts, refreshed by fetch')
  await registered.signOut()
  assert.ok(await registered.leftWell())
  step('oidc-client-ts, sign-out')
  // An app. Without a refresh token the library asks in a frame that nobody sees.
  const app = library(page, origin, { authority: issuer, client_id: apps.singlePage.clientId })
  await app.signIn()
  await signIn(page)
  await decide(page, 'allow')
  const third = await app.cameBack()
  const fourth = await app.renew()
  assert.equal(fourth.profile.sub, third.profile.sub)
  assert.notEqual(fourth.access_token, third.access_token)
  step('oidc-client-ts, renewed in a frame')
  await app.signOut()
  assert.ok(await app.leftWell())
  await app.signIn()
  await page.locator('input[name=password]').waitFor()
  step('oidc-client-ts, sign-out of an app')
}

const stories = [
  ['passport-openidconnect', () => passport.start({ issuer, ...apps.passport }), viaPassport],
  ['mod_auth_openidc', () => apache.start({ issuer, ...apps.apache }), viaApache],
  ['form_post', () => formPost.start({ issuer, ...apps.formPost }), viaFormPost],
  ['oidc-client-ts', () => singlePage.start(apps.singlePage), viaSinglePage],
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
