// Takes pictures of all pages of a running server, as a platform owner sees them: light and dark, 1440 and 390 pixels wide.
//   TEST_NODE=.tools/node node scripts/peers/gallery.mjs BASE EMAIL PASSWORD FOLDER [PATH…]
// It says where a page is wider than the screen. With paths, it takes those pages alone.
import { mkdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { crawl, inside, outside, signIn } from './crawl.mjs'

const require = createRequire(`${process.env.TEST_NODE}/`)
const { chromium } = require('playwright-core')

const [base, email, password, folder, ...only] = process.argv.slice(2)
mkdirSync(folder, { recursive: true })

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] })
const seen = new Set()

async function picture(page, url, name) {
  for (const width of [1440, 390]) {
    await page.setViewportSize({ width, height: width === 390 ? 844 : 900 })
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme })
      if (colorScheme === 'light') {
        const answer = await page.goto(url.href, { waitUntil: 'load' })
        if (!answer?.headers()['content-type']?.includes('html')) return false
        if (answer.status() >= 400 && url.pathname !== '/nowhere') console.log(`${answer.status()} ${url.pathname}`)
        await page.waitForTimeout(150)
      }
      const wider = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
      if (wider > 0) console.log(`${wider} px too wide at ${width}: ${url.pathname}`)
      await page.screenshot({ path: `${folder}/${name}-${colorScheme}-${width}.png`, fullPage: true })
    }
  }
  return true
}

const walk = (page, paths, follows) => crawl(page, base, paths, seen, async (url, name) => {
  const isShown = await picture(page, url, name).catch((error) => console.log(`${url.pathname}: ${error.message.split('\n')[0]}`))
  return isShown && follows
})

// Without motion: colors do not fade from light to dark while the picture is taken.
const calm = { reducedMotion: 'reduce' }
const stranger = await (await browser.newContext(calm)).newPage()
if (!only.length) await walk(stranger, outside, false)
const owner = await (await browser.newContext(calm)).newPage()
await signIn(owner, base, email, password)
await walk(owner, only.length ? only : inside, !only.length)
await browser.close()
console.log(`${seen.size} pages: ${[...seen].sort().join(' ')}`)
