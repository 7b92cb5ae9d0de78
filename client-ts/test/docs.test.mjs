// The code of docs/clients.md: blocks of TypeScript compile, and the others stand in the samples that are run.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'

const root = process.env.TEST_ROOT ?? new URL('../..', import.meta.url).pathname
const here = new URL('..', import.meta.url).pathname
const page = await readFile(join(root, 'docs/clients.md'), 'utf8')
const blocks = (language) => [...page.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, 'gms'))].map(([, code]) => code)
const sample = (name) => readFile(join(root, 'docs/samples/clients', name), 'utf8')

test('TypeScript compiles', async () => {
  const found = blocks('ts')
  assert.ok(found.length >= 6)
  // In the package, so that it finds itself by its name.
  const folder = join(here, 'docs-of-clients')
  await mkdir(folder)
  try {
    const files = await Promise.all(found.map(async (code, index) => {
      const file = join(folder, `${index}.ts`)
      await writeFile(file, `declare const password: string\n${code}\nexport {}\n`)
      return file
    }))
    const options = ['--noEmit', '--strict', '--skipLibCheck', '--target', 'es2022', '--module', 'nodenext', '--lib', 'es2022,dom,dom.iterable']
    const tsc = join(here, 'node_modules/typescript/bin/tsc')
    await promisify(execFile)(process.execPath, [tsc, ...options, ...files]).catch(({ stdout }) => assert.fail(stdout))
  } finally {
    await rm(folder, { recursive: true })
  }
})

test('JavaScript and Flask are those of the samples', async () => {
  const [express, flask] = [await sample('express.mjs'), await sample('flask_server.py')]
  assert.ok(blocks('js').length === 1 && blocks('js').every((code) => express.includes(code)))
  const server = blocks('python').filter((code) => !code.startsWith('from janua'))
  assert.ok(server.length === 2 && server.every((code) => flask.includes(code)))
})
