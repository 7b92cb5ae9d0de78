// Takes pictures of all pages of a running server, as a platform owner sees them: light and dark, 1440 and 390 pixels wide.
//   TEST_NODE=.tools/node node scripts/peers/gallery.mjs BASE EMAIL PASSWORD FOLDER [PATH…]
// It follows the links of each page and takes one page of a kind: one app, one organization, one webhook. It says where a page is
// wider than the screen. With paths, it takes those pages alone.
import { mkdirSync } from 'node:fs'
import { createRequire } from 'node:module'

const require = createRequire(`${process.env.TEST_NODE}/`)
const { chromium } = require('playwright-core')

const [base, email, password, folder, ...only] = process.argv.slice(2)
mkdirSync(folder, { recursive: true })

const outside = ['/', '/sign-in', '/sign-up', '/check-email', '/forgot-password', '/device', '/status', '/reference', '/marketplace',
  '/docs', '/docs/users', '/docs/search?q=webhook', '/legal/terms', '/nowhere']
const inside = ['/account', '/console', '/console?new=app', '/console?new=org', '/console/platform', '/console/outbox',
  '/console/design', '/console/mails', '/console/search?q=a']
// These answer with a file, end the session or leave the pages.
const skipped = /format=|\/export|\/body$|\/oauth\/|\/api\/|\/openapi|\.(json|txt|xml|csv|tgz)$|\/reference\/|\/account\/data\/|cursor=|sort=/

// Pages that differ only by the ID, the name or the filter in their URL are of one kind.
function kind(url) {
  const id = /^([0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f-]{20,})$/
  const path = url.pathname.split('/').filter(Boolean).map((part) => (id.test(part) ? 'id' : part))
  const named = path.findIndex((part) => ['skills', 'templates', 'domains', 'outbox', 'mails', 'legal', 'marketplace'].includes(part))
  if (named >= 0 && path.length > named + 1 && path[named + 1] !== 'register') path[named + 1] = 'one'
  const dialog = url.searchParams.get('new')?.replace(/-[0-9a-f-]{36}$/, '')
  return (path.join('-') || 'home') + (dialog ? `-new-${dialog}` : '')
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] })
const seen = new Set()

async function picture(page, path) {
  const url = new URL(path, base)
  const name = kind(url)
  if (seen.has(name) && !only.length) return []
  seen.add(name)
  let links = []
  for (const width of [1440, 390]) {
    await page.setViewportSize({ width, height: width === 390 ? 844 : 900 })
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme })
      if (colorScheme === 'light') {
        const answer = await page.goto(url.href, { waitUntil: 'load' })
        if (!answer?.headers()['content-type']?.includes('html')) return []
        if (answer.status() >= 400 && path !== '/nowhere') console.log(`${answer.status()} ${url.pathname}`)
        await page.waitForTimeout(150)
      }
      const wider = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
      if (wider > 0) console.log(`${wider} px too wide at ${width}: ${url.pathname}`)
      await page.screenshot({ path: `${folder}/${name}-${colorScheme}-${width}.png`, fullPage: true })
    }
    links = await page.evaluate(() => [...document.links].map((link) => link.href))
  }
  return links.filter((link) => link.startsWith(base) && !skipped.test(link)).map((link) => link.slice(base.length).split('#')[0] || '/')
}

async function walk(page, paths, isFollowing) {
  const queue = [...paths]
  while (queue.length) {
    const path = queue.shift()
    const found = await picture(page, path).catch((error) => console.log(`${path}: ${error.message.split('\n')[0]}`))
    if (isFollowing) queue.push(...(found ?? []))
  }
}

// Without motion: colors do not fade from light to dark while the picture is taken.
const calm = { reducedMotion: 'reduce' }
const stranger = await (await browser.newContext(calm)).newPage()
if (!only.length) await walk(stranger, outside, false)
const owner = await (await browser.newContext(calm)).newPage()
await owner.goto(`${base}/sign-in`)
await owner.fill('input[name=email]', email)
await owner.fill('input[name=password]', password)
await owner.keyboard.press('Enter')
await owner.waitForURL(/\/(console|account)/)
await walk(owner, only.length ? only : inside, !only.length)
await browser.close()
console.log(`${seen.size} pages: ${[...seen].sort().join(' ')}`)
