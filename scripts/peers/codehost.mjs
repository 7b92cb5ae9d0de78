// Octokit's published libraries beside our own: webhooks-methods signs a delivery, auth-app signs in as the app. Prints what it
// found as JSON.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createAppAuth } from '@octokit/auth-app'
import { request } from '@octokit/request'
import { sign, verify } from '@octokit/webhooks-methods'
import { decodeJwt, decodeProtectedHeader } from 'jose'

const [base, appId, secret, installationId, payload, ours] = process.argv.slice(2)
const privateKey = readFileSync(process.env.KEY_FILE, 'utf8')

const signature = await sign(secret, payload)
const verified = await verify(secret, payload, signature)

// The app of Octokit at the server that plays the host: its tokens are taken as ours are.
const auth = createAppAuth({ appId, privateKey, request: request.defaults({ baseUrl: base }) })
const app = await auth({ type: 'app' })
const get = async (path, token) => {
  const answer = await fetch(base + path, { headers: { authorization: `bearer ${token}` } })
  assert.equal(answer.status, 200, path)
  return answer.json()
}
const byOctokit = await get(`/app/installations/${installationId}`, app.token)
const byUs = await get(`/app/installations/${installationId}`, ours)
assert.deepEqual(byOctokit, byUs)
const installation = await auth({ type: 'installation', installationId: Number(installationId) })
assert.match(installation.token, /^ghs_/)

const form = (token) => {
  const claims = decodeJwt(token)
  return [decodeProtectedHeader(token).alg, Object.keys(claims).sort(), String(claims.iss), claims.exp - claims.iat <= 660]
}
const sameForm = JSON.stringify(form(app.token)) === JSON.stringify(form(ours))
console.log(JSON.stringify({ signature, verified, installation: byOctokit.account.login, sameForm }))
