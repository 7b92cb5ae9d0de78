// A client of the published library openid-client. It says on its output where its person must go ("open", "device"), and
// reads from its input where they came back.
import { createInterface } from 'node:readline/promises'
import assert from 'node:assert/strict'
import * as client from 'openid-client'

const [issuer, clientId, clientSecret, redirectUri] = process.argv.slice(2)
const input = createInterface({ input: process.stdin })
const lines = input[Symbol.asyncIterator]()
const ask = async (...words) => {
  console.log(words.join(' '))
  return (await lines.next()).value
}
const insecure = { execute: [client.allowInsecureRequests] }
const scope = 'openid profile email offline_access'

async function codeFlow(name, config) {
  const pkceCodeVerifier = client.randomPKCECodeVerifier()
  const expectedState = client.randomState()
  const expectedNonce = client.randomNonce()
  const url = client.buildAuthorizationUrl(config, {
    redirect_uri: redirectUri,
    scope,
    code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier),
    code_challenge_method: 'S256',
    state: expectedState,
    nonce: expectedNonce,
    max_age: '3600',
  })
  const back = new URL(await ask('open', url.href))
  const checks = { pkceCodeVerifier, expectedState, expectedNonce, maxAge: 3600, idTokenExpected: true }
  const tokens = await client.authorizationCodeGrant(config, back, checks)
  const claims = tokens.claims()
  assert.equal(claims.aud, clientId)
  assert.equal(claims.email, 'ada@example.com')
  const about = await client.fetchUserInfo(config, tokens.access_token, claims.sub)
  assert.equal(about.email_verified, true)
  // The library sends the code a second time only if somebody makes it.
  await assert.rejects(client.authorizationCodeGrant(config, back, checks), { error: 'invalid_grant' })
  console.log(`ok ${name}`)
}

async function tokensOf(config) {
  const pkceCodeVerifier = client.randomPKCECodeVerifier()
  const url = client.buildAuthorizationUrl(config, {
    redirect_uri: redirectUri,
    scope,
    code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier),
    code_challenge_method: 'S256',
  })
  return client.authorizationCodeGrant(config, new URL(await ask('open', url.href)), { pkceCodeVerifier })
}

const discover = (secret, auth) => client.discovery(new URL(issuer), clientId, secret, auth, insecure)
const byPost = await discover(clientSecret, client.ClientSecretPost(clientSecret))
const byBasic = await discover(clientSecret, client.ClientSecretBasic(clientSecret))
const open = await discover(undefined, client.None())
const metadata = byPost.serverMetadata()
assert.equal(metadata.issuer, issuer)
assert.ok(metadata.supportsPKCE())
console.log('ok discovery')

await codeFlow('code with client_secret_post', byPost)
await codeFlow('code with client_secret_basic', byBasic)
await codeFlow('code of a public client', open)

let tokens = await tokensOf(byBasic)
const turned = await client.refreshTokenGrant(byBasic, tokens.refresh_token)
assert.notEqual(turned.refresh_token, tokens.refresh_token)
assert.equal(turned.claims().email, 'ada@example.com')
console.log('ok refresh')

const seen = await client.tokenIntrospection(byBasic, turned.access_token)
assert.equal(seen.active, true)
assert.equal(seen.client_id, clientId)
console.log('ok introspection')

await client.tokenRevocation(byBasic, turned.refresh_token)
assert.equal((await client.tokenIntrospection(byBasic, turned.access_token)).active, false)
console.log('ok revocation')

const own = await client.clientCredentialsGrant(byBasic)
assert.equal((await client.tokenIntrospection(byBasic, own.access_token)).sub, clientId)
console.log('ok client credentials')

const begun = await client.initiateDeviceAuthorization(open, { scope })
await ask('device', begun.verification_uri_complete, begun.user_code)
const device = await client.pollDeviceAuthorizationGrant(open, begun)
assert.equal(device.claims().email, 'ada@example.com')
console.log('ok device')

tokens = await tokensOf(byPost)
const leave = client.buildEndSessionUrl(byPost, {
  id_token_hint: tokens.id_token,
  post_logout_redirect_uri: redirectUri,
  state: 'bye',
})
const left = new URL(await ask('open', leave.href))
assert.equal(left.searchParams.get('state'), 'bye')
assert.equal((await client.tokenIntrospection(byPost, tokens.access_token)).active, false)
console.log('ok sign-out')
console.log('done')
process.exit(0)
