// The samples of docs/samples/clients: a page, and the same server with Express and with Flask.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { cp, mkdir, mkdtemp, rm, symlink } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { after, before, test } from 'node:test'
import { express, startChromium } from './chromium.mjs'
import { PASSWORD, startJanua } from './janua.mjs'

const root = process.env.TEST_ROOT ?? new URL('../..', import.meta.url).pathname
const here = new URL('..', import.meta.url).pathname
let server, chromium, folder, owner

before(async () => {
  server = await startJanua()
  owner = await server.signUp('ada@example.com')
  chromium = await startChromium()
  // What `npm install express @janua/client` makes of a folder with the samples.
  folder = await mkdtemp(join(tmpdir(), 'janua-samples-'))
  await cp(join(root, 'docs/samples/clients'), folder, { recursive: true })
  await mkdir(join(folder, 'node_modules/@janua'), { recursive: true })
  await symlink(here, join(folder, 'node_modules/@janua/client'))
  await symlink(dirname(express()), join(folder, 'node_modules/express'))
})

after(async () => {
  await chromium?.close()
  await server?.stop()
  if (folder) await rm(folder, { recursive: true })
})

async function freePort() {
  const listener = createServer().listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const { port } = listener.address()
  listener.close()
  return port
}

async function walk(command, args, env = {}) {
  const port = await freePort()
  const origin = `http://127.0.0.1:${port}`
  const app = await owner.post('/apps', { body: { name: 'Sample', redirectUris: [`${origin}/`] } })
  const webhook = await owner.post('/apps/{appId}/webhooks', {
    path: { appId: app.id }, body: { url: `${origin}/hooks/janua`, events: ['user.signed_in'] },
  })
  const child = spawn(command, args, {
    cwd: folder, stdio: ['ignore', 'pipe', process.env.TEST_VERBOSE ? 'inherit' : 'ignore'],
    env: { ...process.env, ISSUER: server.url, CLIENT_ID: app.id, WEBHOOK_SECRET: webhook.secret, PORT: String(port), ...env },
  })
  const lines = createInterface({ input: child.stdout })
  const says = async (text) => {
    for await (const [line] of on(lines)) if (line.includes(text)) return
    throw new Error(`${args}: ended before it said ${text}`)
  }
  try {
    await says('Open')
    await listening(port)
    const page = await (await chromium.newContext()).newPage()
    await page.goto(`${origin}/`)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByLabel('Email', { exact: true }).fill('ada@example.com')
    await page.getByLabel('Password', { exact: true }).fill(PASSWORD)
    const told = says('user.signed_in ada@example.com')
    await page.locator('form[action="/sign-in"] button[type=submit]').first().click()
    const user = await owner.get('/auth/me')
    await page.getByText(`Signed in as ada@example.com. The API knows user ${user.id}.`).waitFor({ timeout: 10_000 })
    assert.equal(page.url(), `${origin}/`, 'the code is not in the address bar')
    await told
    // A token that is refused is renewed as an OAuth client does it.
    const renewed = page.waitForResponse((answer) => answer.url().endsWith('/oauth/token') && answer.request().method() === 'POST')
    await page.evaluate(() => {
      const session = JSON.parse(sessionStorage.getItem('janua.session'))
      sessionStorage.setItem('janua.session', JSON.stringify({ ...session, accessToken: 'expired' }))
    })
    await page.reload()
    assert.equal((await renewed).status(), 200)
    await page.getByText('Signed in as ada@example.com.').waitFor()
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByText('Not signed in.').waitFor()

    const status = async (path, init) => (await fetch(origin + path, init)).status
    assert.equal(await status('/api/me'), 401)
    assert.equal(await status('/api/me', { headers: { Authorization: `Bearer ${(await owner.session()).accessToken}` } }), 401, 'a token of the service is not for this app')
    assert.equal(await status('/hooks/janua', { method: 'POST', headers: { 'Content-Type': 'application/json', 'Webhook-Signature': 't=1,v1=00' }, body: '{}' }), 400)
  } finally {
    child.kill()
    if (child.exitCode === null) await once(child, 'exit')
  }
}

/** The lines of a program, each listener from where it begins. */
async function* on(lines) {
  const waiting = []
  let wake = () => {}
  const add = (line) => (waiting.push(line), wake())
  const end = () => add(null)
  lines.on('line', add).on('close', end)
  try {
    for (;;) {
      if (waiting.length === 0) await new Promise((resolve) => (wake = resolve))
      const line = waiting.shift()
      if (line === null) return
      if (line !== undefined) yield [line]
    }
  } finally {
    lines.off('line', add).off('close', end)
  }
}

async function listening(port) {
  for (let tries = 0; tries < 100; tries += 1) {
    if (await fetch(`http://127.0.0.1:${port}/config.json`).then(({ ok }) => ok, () => false)) return
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  throw new Error('nobody listens')
}

test('a browser app and an Express server', () => walk(process.execPath, ['express.mjs']))

test('a browser app and a Flask server', () =>
  walk(process.env.TEST_PYTHON ?? 'python3', ['flask_server.py'], {
    PYTHONPATH: join(root, 'client-python/src'), PYTHONDONTWRITEBYTECODE: '1', CLIENT_FOLDER: join(here, 'dist'),
  }))
