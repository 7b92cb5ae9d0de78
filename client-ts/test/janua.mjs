// A server for the tests: the binary named by TEST_BINARY, in a folder of its own.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { createClient } from '../dist/index.js'

export const PASSWORD = 'correct horse battery staple'

export async function startJanua(settings = {}) {
  const binary = process.env.TEST_BINARY
  if (!binary) throw new Error('set TEST_BINARY to the path of janua')
  const folder = await mkdtemp(join(tmpdir(), 'janua-client-'))
  const env = {
    ...process.env, JANUA_DATA_DIR: join(folder, 'data'), JANUA_RATE_LIMITS: 'off', JANUA_EDGE_LISTEN: '', ...settings,
  }
  const child = spawn(binary, ['serve', '--listen', '127.0.0.1:0'], { env, stdio: ['ignore', 'pipe', 'ignore'] })
  const stop = async () => {
    if (child.exitCode === null) {
      child.kill()
      await once(child, 'exit')
    }
    await rm(folder, { recursive: true, force: true })
  }
  let url
  for await (const line of createInterface({ input: child.stdout })) {
    url = line.match(/base URL (http:\S+)\)/)?.[1]
    if (url) break
  }
  if (!url) throw new Error('the server did not start')
  child.stdout.resume()

  /** The mails to an address, newest last. */
  const mails = async (address) => {
    const outbox = join(folder, 'data/outbox')
    const names = (await readdir(outbox).catch(() => [])).filter((name) => name.endsWith('.eml')).sort()
    const texts = await Promise.all(names.map((name) => readFile(join(outbox, name), 'utf8')))
    return texts.filter((text) => text.includes(`To: ${address}`) || text.includes(`<${address}>`))
  }

  /** A user with a confirmed email, signed in with `options`. */
  const signUp = async (email, options = {}) => {
    const janua = createClient({ url, ...options })
    await janua.post('/auth/register', { body: { email, password: PASSWORD, name: 'Ada' } })
    let code
    for (let tries = 0; !code; tries += 1) {
      if (tries > 200) throw new Error(`no mail to ${email}`)
      await new Promise((resolve) => setTimeout(resolve, 50))
      code = (await mails(email)).at(-1)?.match(/^Code: (\d+)/m)?.[1]
    }
    await janua.post('/auth/verify-email', { body: { email, code } })
    await janua.signIn(email, PASSWORD)
    return janua
  }
  return { url, folder, stop, signUp }
}

/** A `fetch` that counts what it sends. */
export function counting(real = fetch) {
  const sent = []
  const counted = async (url, init) => {
    sent.push({ path: new URL(url).pathname, method: init.method, headers: new Headers(init.headers), body: init.body })
    return real(url, init)
  }
  return { fetch: counted, sent, to: (path) => sent.filter((request) => request.path === path) }
}
