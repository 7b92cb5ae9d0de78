// Published wallet libraries as agents: ethers signs, siwe reads the text by itself and finds the signature good.
import assert from 'node:assert/strict'
import { Wallet, verifyMessage } from 'ethers'
import { SiweMessage } from 'siwe'

const [base, token] = process.argv.slice(2)

const ask = async (method, path, body, bearer) => {
  const headers = { ...(body && { 'content-type': 'application/json' }), ...(bearer && { authorization: `Bearer ${bearer}` }) }
  const answer = await fetch(base + path, { method, headers, body: body && JSON.stringify(body) })
  const text = await answer.text()
  assert(answer.ok, `${path}: ${answer.status} ${text}`)
  return JSON.parse(text)
}

const wallet = Wallet.createRandom()
const wanted = { name: 'ethers', wallet: wallet.address, chainId: 137, scopes: ['orders:read'] }
const { agent } = await ask('POST', '/agent/register', wanted, token)
assert.equal(agent.wallet, wallet.address, 'shown with the checksum that ethers computes')
const asked = await ask('POST', '/agent/challenge', { wallet: wallet.address, chainId: 137, agentId: agent.id, scopes: ['orders:read'] })

const read = new SiweMessage(asked.message)
assert.equal(read.prepareMessage(), asked.message, 'put together again byte for byte')
assert.equal(read.address, wallet.address)
assert.equal(read.chainId, 137)
assert.equal(read.requestId, agent.id)
assert.deepEqual(read.resources, ['urn:janua:scope:orders:read'])

const signature = await wallet.signMessage(asked.message)
assert.equal(verifyMessage(asked.message, signature), wallet.address)
const judged = await read.verify({ signature, domain: new URL(base).host, nonce: read.nonce })
assert(judged.success, JSON.stringify(judged.error))
console.log('siwe')

const issued = await ask('POST', '/agent/token', { challenge: asked.challenge, signature, message: asked.message })
const me = await ask('GET', '/machine/me', undefined, issued.accessToken)
assert.equal(me.id, agent.id)
assert.deepEqual(await ask('GET', `/verify/agent/eip155:137:${wallet.address}`), { verified: true })
console.log('ethers')

// Neither another text nor another wallet.
const other = await ask('POST', '/agent/challenge', { wallet: wallet.address, chainId: 137, agentId: agent.id })
for (const [signer, text] of [[wallet, `${other.message} `], [Wallet.createRandom(), other.message]]) {
  const body = JSON.stringify({ challenge: other.challenge, signature: await signer.signMessage(text) })
  const answer = await fetch(`${base}/agent/token`, { method: 'POST', headers: { 'content-type': 'application/json' }, body })
  assert.equal(answer.status, 401)
}
console.log('done')
