// Signs an event with the official library, and checks a signature of ours. From standard input: {at, body, secret, ours}.
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'

const require = createRequire(`${process.env.TEST_NODE}/package.json`)
const Stripe = require('stripe')
const { at, body, secret, ours } = JSON.parse(readFileSync(0, 'utf8'))
const { webhooks } = new Stripe('sk_test_none')
const header = webhooks.generateTestHeaderString({ payload: body, secret, timestamp: at })
const event = webhooks.constructEvent(body, ours, secret, Number.MAX_SAFE_INTEGER)
process.stdout.write(JSON.stringify({ header, ours: event.id === JSON.parse(body).id }))
