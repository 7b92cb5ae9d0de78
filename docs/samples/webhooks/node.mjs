import { createHmac, timingSafeEqual } from 'node:crypto'

const TOLERANCE = 300 // seconds

// `header` is Webhook-Signature, `body` the bytes as received,
// `secret` the 64 characters shown at creation.
export function verifyWebhook(header, body, secret, now = Math.floor(Date.now() / 1000)) {
  const parts = header.split(',').map((part) => part.trim().split('='))
  const t = parts.find(([name]) => name === 't')?.[1]
  if (!/^\d{1,12}$/.test(t ?? '') || Math.abs(now - Number(t)) > TOLERANCE) return false
  const expected = createHmac('sha256', secret).update(`${t}.`).update(body).digest()
  // During a rotation there are two signatures: compare each, not only the first.
  const signatures = parts.filter(([name]) => name === 'v1')
  const given = signatures.map(([, value]) => Buffer.from(value ?? '', 'hex'))
  return given.some((mac) => mac.length === expected.length && timingSafeEqual(mac, expected))
}
