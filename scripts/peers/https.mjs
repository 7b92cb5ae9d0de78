// A browser opens a site by its own domain over TLS:
//   TEST_NODE=.tools/node node scripts/peers/https.mjs NAME PORT INTERMEDIATE.pem TEXT
// It trusts what was issued by one certificate alone, and finds the name on this machine.
import assert from 'node:assert/strict'
import { X509Certificate, createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

const require = createRequire(`${process.env.TEST_NODE}/`)
const { chromium } = require('playwright-core')

const [name, port, issuer, text] = process.argv.slice(2)
const key = new X509Certificate(readFileSync(issuer)).publicKey.export({ type: 'spki', format: 'der' })
const trusted = createHash('sha256').update(key).digest('base64')
const rules = `--host-resolver-rules=MAP ${name}:443 127.0.0.1:${port}`

async function visit(args) {
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox', rules, ...args] })
  try {
    const page = await browser.newPage()
    const answer = await page.goto(`https://${name}/`)
    return { status: answer.status(), text: await page.textContent('body'), tls: await answer.securityDetails() }
  } finally {
    await browser.close()
  }
}

const { status, text: shown, tls } = await visit([`--ignore-certificate-errors-spki-list=${trusted}`])
assert.deepEqual([status, shown.trim()], [200, text])
assert.equal(tls.protocol, 'TLS 1.3')
assert.match(tls.issuer, /Pebble/)
// Without that trust it is refused.
await assert.rejects(visit([]), /ERR_CERT_AUTHORITY_INVALID/)
