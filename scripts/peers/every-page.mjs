// Examines every page that a platform owner reaches on a running server: right HTML, no finding of axe, nothing wider than 360
// pixels; some of them dark as well. It says everything that is wrong at its end.
//   TEST_NODE=.tools/node node scripts/peers/every-page.mjs BASE EMAIL PASSWORD
// The account needs an organization with an app. What pages list is created first, so that no page is an empty one.
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { barriers, excess, wrongHtml } from './browser-look.mjs'
import { crawl, inside, outside, signIn } from './crawl.mjs'

const require = createRequire(`${process.env.TEST_NODE}/`)
const { chromium } = require('playwright-core')

const [base, email, password] = process.argv.slice(2)
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--no-first-run'],
})
// Every so many pages are looked at in the dark, too: colors come from few tokens, which all pages share.
const DARK_EVERY = 8
const [seen, wrong] = [new Set(), []]

async function examine(page, url, name) {
  const answer = await page.goto(url.href, { waitUntil: 'load' })
  if (!answer?.headers()['content-type']?.includes('html')) return false
  const say = (what, found) => found.length && wrong.push(`${name} (${url.pathname}${url.search}), ${what}: ${JSON.stringify(found)}`)
  if (answer.status() >= 400 && name !== 'nowhere') say('status', [answer.status()])
  say('HTML', await wrongHtml(await answer.text()))
  say('light', await barriers(page))
  say('360 pixels', await excess(page))
  if (seen.size % DARK_EVERY === 0) {
    await page.emulateMedia({ colorScheme: 'dark' })
    say('dark', await barriers(page))
    await page.emulateMedia({ colorScheme: 'light' })
  }
  return true
}

// One of each thing that has a page.
async function fill() {
  const json = { 'content-type': 'application/json' }
  const send = async (method, path, body, headers = {}) => {
    const isBytes = Buffer.isBuffer(body)
    const answer = await fetch(base + path, {
      method,
      headers: { ...(isBytes ? { 'content-type': 'application/octet-stream' } : json), ...headers },
      body: isBytes ? body : body && JSON.stringify(body),
    })
    const text = await answer.text()
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`)
    return text ? JSON.parse(text) : null
  }
  const { accessToken } = await send('POST', '/auth/login', { email, password, options: { tokenDelivery: 'body' } })
  const own = { authorization: `Bearer ${accessToken}` }
  const post = (path, body, headers) => send('POST', path, body, { ...own, ...headers })
  const [app] = (await send('GET', '/apps', undefined, own)).apps
  const [org] = (await send('GET', '/user/orgs', undefined, own)).orgs
  const at = `/apps/${app.id}`
  const key = (await post(`${at}/keys`, { type: 'publishable', environment: 'live' })).value
  await send('POST', '/auth/login', { email, password }, { 'x-service-app-key': key })
  await post(`${at}/webhooks`, { url: 'https://127.0.0.1:9/', events: ['user.signed_in'] })
  await post(`${at}/domain`, { domain: 'shop.example.com' })
  await post(`${at}/domains`, { domain: 'www.example.com' })
  await post(`${at}/email/domains`, { hostname: 'mail.example.com' })
  await post(`${at}/email/templates`, { name: 'welcome', subject: 'Hi', html: '<p>Hi {{ name }}</p>', sample: { name: 'Ada' } })
  await post(`${at}/email/suppressions`, { email: 'gone@example.net' })
  await post(`${at}/storage?name=notes.txt`, Buffer.from('notes'))
  await post('/agent/register', { name: 'Bot', wallet: '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed' })
  await post('/framework-agent/register', { name: 'Helper', framework: 'langgraph' })
  await post('/mcp/register', { name: 'weather', domain: 'mcp.example.com' })
  await post('/admin/status/incidents', { title: 'Mail is late', impact: 'minor', components: ['mail'], message: 'The relay is full.' })
  const folder = mkdtempSync(join(tmpdir(), 'every-page-'))
  mkdirSync(join(folder, 'site'))
  writeFileSync(join(folder, 'site/index.html'), '<!doctype html><html lang="en"><title>Shop</title><p>Shop</p></html>')
  mkdirSync(join(folder, 'skill'))
  writeFileSync(join(folder, 'skill/SKILL.md'), '---\nname: pdf-tools\ndescription: Reads PDF forms.\n---\n\n# PDF tools\n\nRead the form.\n')
  const pack = (name) => {
    execFileSync('tar', ['-czf', join(folder, `${name}.tgz`), '-C', join(folder, name), '.'])
    return readFileSync(join(folder, `${name}.tgz`))
  }
  await post(`${at}/deploy`, pack('site'))
  await post(`/skills?namespace=${org.slug}&version=1.0.0&visibility=public`, pack('skill'))
  rmSync(folder, { recursive: true })
}

// Pages that no link of the others may lose.
const EXPECTED = ['console-apps-id-analytics', 'console-orgs-id-analytics', 'console-apps-id-usage', 'console-orgs-id-usage',
  'console-apps-id-billing', 'console-orgs-id-billing', 'console-apps-id-merchants', 'console-apps-id-deployments',
  'console-apps-id-deployments-id', 'console-apps-id-storage', 'console-apps-id-domains', 'console-apps-id-domains-register',
  'console-apps-id-domains-one', 'console-apps-id-email', 'console-apps-id-email-domains', 'console-apps-id-email-domains-one',
  'console-apps-id-email-suppressions', 'console-apps-id-email-templates', 'console-apps-id-email-templates-one',
  'console-apps-id-webhooks', 'console-apps-id-webhooks-id', 'console-apps-id-users-id', 'console-orgs-id-machines',
  'console-orgs-id-agents-id', 'console-orgs-id-framework-agents-id', 'console-orgs-id-mcp', 'console-orgs-id-mcp-id',
  'console-orgs-id-code', 'console-orgs-id-skills', 'console-orgs-id-skills-one', 'console-orgs-id-settings', 'console-orgs-id-scim',
  'console-platform-costs', 'console-platform-plans', 'console-platform-payment-events', 'console-platform-observability',
  'console-platform-traces', 'console-platform-users-id', 'console-platform-skills', 'account-sessions', 'account-data', 'marketplace-one']

await fill()
const phone = { viewport: { width: 360, height: 800 }, colorScheme: 'light', reducedMotion: 'reduce' }
const walk = (page, paths, follows) => crawl(page, base, paths, seen, async (url, name) => {
  const isShown = await examine(page, url, name).catch((error) => wrong.push(`${url.pathname}: ${error.message.split('\n')[0]}`) && false)
  return isShown && follows
})
await walk(await (await browser.newContext(phone)).newPage(), outside, false)
const owner = await (await browser.newContext(phone)).newPage()
await signIn(owner, base, email, password)
await walk(owner, inside, true)
await browser.close()
const missing = EXPECTED.filter((name) => !seen.has(name))
if (missing.length) wrong.push(`not met: ${missing.join(' ')}`)
console.log(`${seen.size} pages: ${[...seen].sort().join(' ')}`)
for (const one of wrong) console.error(one)
console.log(wrong.length ? `${wrong.length} findings` : 'done')
process.exit(wrong.length ? 1 : 0)
