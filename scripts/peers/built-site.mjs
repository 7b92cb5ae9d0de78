// A site as a published build tool makes it (Vite), deployed and opened in a real browser: client-side routing, an old page
// that goes on after a new deployment, and walls between the site and the console.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const require = createRequire(process.env.TEST_NODE + '/package.json')
const { chromium } = require('playwright-core')
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8')
const [base, site, app, token, email, password, pictures] = process.argv.slice(2)
const step = (name) => console.log(`ok ${name}`)

const MAIN = `
const routes = [[/^\\/$/, () => import('./home.js')], [/^\\/products\\/(\\d+)$/, () => import('./product.js')]]
async function show() {
  for (const [pattern, load] of routes) {
    const found = location.pathname.match(pattern)
    if (found) return (await load()).default(document.querySelector('main'), ...found.slice(1))
  }
}
document.addEventListener('click', (event) => {
  event.preventDefault()
  history.pushState(null, '', event.target.closest('a').href)
  show()
})
show()`

// Builds the site and packs it, as a shell would.
function build(version) {
  const folder = mkdtempSync(join(tmpdir(), 'site-'))
  mkdirSync(join(folder, 'src'))
  writeFileSync(join(folder, 'index.html'), `<!doctype html><html lang="en"><head><title>Shop</title>
    <script type="module" src="/src/main.js"></script></head>
    <body><nav><a href="/">Home</a> <a href="/products/7">Product</a></nav><main></main></body></html>`)
  writeFileSync(join(folder, 'src/main.js'), MAIN)
  writeFileSync(join(folder, 'src/home.js'), `export default (main) => { main.innerHTML = '<h1>Welcome to ${version}</h1>' }`)
  writeFileSync(join(folder, 'src/product.js'), `export default (main, id) => { main.innerHTML = '<h1>Product ' + id + ' of ${version}</h1>' }`)
  execFileSync(join(process.env.TEST_NODE, 'node_modules/.bin/vite'), ['build', folder, '--logLevel', 'error'])
  const archive = join(folder, 'site.tar.gz')
  execFileSync('tar', ['-czf', archive, '-C', join(folder, 'dist'), '.'])
  return archive
}

async function deploy(archive) {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/gzip' }
  const answer = await fetch(`${base}/apps/${app}/deploy`, { method: 'POST', headers, body: readFileSync(archive) })
  assert.equal(answer.status, 200, await answer.clone().text())
  return answer.json()
}

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--disable-background-networking', '--no-first-run'],
})
const [one, two] = [build('one'), build('two')]
await deploy(one)
const context = await browser.newContext()
const page = await context.newPage()
await page.goto(`${site}/products/7`)
await page.getByRole('heading', { name: 'Product 7 of one' }).waitFor()
await page.getByRole('link', { name: 'Home' }).click()
await page.getByRole('heading', { name: 'Welcome to one' }).waitFor()
step('a deep link and client-side routes')

const open = await context.newPage()
await open.goto(site)
await open.getByRole('heading', { name: 'Welcome to one' }).waitFor()
await deploy(two)
await open.getByRole('link', { name: 'Product' }).click()
await open.getByRole('heading', { name: 'Product 7 of one' }).waitFor()
await open.reload()
await open.getByRole('heading', { name: 'Product 7 of two' }).waitFor()
step('a page of the old deployment still finds its parts, and a new visit gets the new one')

// The console, signed in, in the same browser.
const own = await context.newPage()
await own.goto(`${base}/sign-in`)
await own.getByLabel('Email', { exact: true }).fill(email)
await own.getByLabel('Password', { exact: true }).fill(password)
await own.getByRole('button', { name: /^Sign in/ }).click()
await own.waitForURL((url) => !url.pathname.startsWith('/sign-in'))
const me = () => own.evaluate(async () => (await fetch('/auth/me')).status)
assert.equal(await me(), 200)

const stolen = await page.evaluate(async (base) => {
  const read = await fetch(`${base}/auth/me`, { credentials: 'include' }).then((answer) => answer.text(), (error) => `no: ${error}`)
  const written = await fetch(`${base}/org`, { method: 'POST', credentials: 'include', headers: { 'content-type': 'text/plain' }, body: '{"name":"x"}', mode: 'no-cors' }).then(() => 'sent', String)
  const frame = document.createElement('iframe')
  frame.src = `${base}/console`
  document.body.append(frame)
  await new Promise((done) => { frame.onload = done; setTimeout(done, 2000) })
  document.cookie = 'service_access=evil; Domain=localhost; Path=/'
  document.cookie = 'service_access=evil; Path=/'
  for (let n = 0; n < 200; n++) document.cookie = `junk${n}=${'x'.repeat(200)}; Domain=localhost; Path=/`
  let inside = 'hidden'
  try { inside = frame.contentDocument?.body?.textContent ?? 'hidden' } catch { /* another origin */ }
  return { read, written, inside, frames: window.frames.length, jar: document.cookie.length }
}, base)
assert.match(stolen.read, /^no: /, 'W11: nothing of the console can be read')
assert.doesNotMatch(stolen.inside, /Console|Sign in/, 'W11: nor shown in a frame')
const orgs = await own.evaluate(async () => (await (await fetch('/user/orgs')).json()).orgs.filter((org) => org.name === 'x').length)
assert.equal(orgs, 0, 'W11: nor changed')
assert.equal(await me(), 200, 'W10: cookies of a site change nothing for the console')
const reverse = await own.evaluate((site) => fetch(site).then((answer) => answer.text(), (error) => `no: ${error}`), site)
assert.match(reverse, /^no: /, 'the console reads nothing of a site')
step('the site and the console are kept apart')

// The console's own pages: the list, one deployment, a file without script, a dropped folder with it.
async function look(name, on) {
  for (const [colorScheme, width] of [['light', 1440], ['dark', 390]]) {
    await on.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
    await on.setViewportSize({ width, height: 900 })
    await on.evaluate(axe)
    const { violations } = await on.evaluate(() => window.axe.run())
    assert.deepEqual(violations.map((found) => [found.id, found.nodes[0].html]), [], `${name}, ${colorScheme}`)
    const over = await on.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)
    assert.ok(over <= 0, `${name} is ${over} pixels too wide for ${width}`)
    if (pictures) await on.screenshot({ path: `${pictures}/${name}-${colorScheme}-${width}.png`, fullPage: true })
  }
}
const list = `${base}/console/apps/${app}/deployments`
await own.goto(list)
await own.getByRole('link', { name: '#2', exact: true }).waitFor()
await look('deployments', own)
await own.goto(`${list}?new=deploy`)
await look('deploy', own)
await own.locator('input[name=archive]').setInputFiles(one)
await own.getByRole('button', { name: 'Deploy site' }).click()
await own.getByRole('heading', { name: 'Deployment #3' }).waitFor()
await look('deployment', own)
step('an archive from the console')
await own.goto(list)
await own.getByRole('button', { name: 'Roll back to deployment 2' }).click()
await own.getByRole('button', { name: 'Roll back', exact: true }).click()
await own.getByRole('status').getByText(/^Rolled back/).waitFor()
await page.goto(site)
await page.getByRole('heading', { name: 'Welcome to two' }).waitFor()
step('rolled back in one click')

const plain = await browser.newContext({ javaScriptEnabled: false, storageState: await context.storageState() })
const simple = await plain.newPage()
await simple.goto(`${list}?new=deploy`)
await simple.locator('input[name=archive]').setInputFiles(one)
await simple.getByRole('button', { name: 'Deploy site' }).click()
await simple.getByRole('heading', { name: 'Deployment #5' }).waitFor()
await simple.goto(`${list}?new=deploy`)
const wrong = join(mkdtempSync(join(tmpdir(), 'bad-')), 'bad.tar.gz')
writeFileSync(wrong, 'no archive')
await simple.locator('input[name=archive]').setInputFiles(wrong)
await simple.getByRole('button', { name: 'Deploy site' }).click()
await simple.getByText('The body is not gzip.').waitFor()
step('without script')
await browser.close()
console.log('done')
