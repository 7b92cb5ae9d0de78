// What ASP.NET Core's OpenID Connect handler does on the wire: the answer comes as a form that the browser posts, cookies
// come along although the post comes from another site, and every request carries the names of its library.
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'
import { createRemoteJWKSet, jwtVerify } from 'jose'

const random = () => randomBytes(32).toString('base64url')
const library = { 'x-client-SKU': 'ID_NET8_0', 'x-client-ver': '8.0.1.0' }
const path = '/signin-oidc'

export async function start({ issuer, clientId, clientSecret }) {
  const keys = createRemoteJWKSet(new URL(`${issuer}/.well-known/jwks.json`))
  const pending = new Map()
  let signedIn
  const server = createServer((request, response) => answer(request, response).catch((error) => {
    response.writeHead(500).end(error.stack)
  }))
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  const origin = `http://127.0.0.1:${server.address().port}`

  async function answer(request, response) {
    const url = new URL(request.url, origin)
    const go = (to, headers) => response.writeHead(302, { location: to, ...headers }).end()
    if (url.pathname === '/login') {
      const [state, verifier] = [`CfDJ8${random()}`, random()]
      const nonce = `638670000000000000.${random()}`
      pending.set(state, { verifier, nonce })
      const query = new URLSearchParams({
        client_id: clientId, redirect_uri: origin + path, response_type: 'code', scope: 'openid profile email',
        code_challenge: createHash('sha256').update(verifier).digest('base64url'), code_challenge_method: 'S256',
        response_mode: 'form_post', nonce, state, ...library, ...Object.fromEntries(url.searchParams),
      })
      const cookie = `.AspNetCore.Correlation.${state.slice(-20)}=N; path=${path}; secure; samesite=none; httponly`
      return go(`${issuer}/oauth/authorize?${query}`, { 'set-cookie': cookie })
    }
    if (url.pathname === path) {
      assert.equal(request.method, 'POST', `came back by ${request.method} ${request.url}`)
      assert.equal(request.headers['content-type'], 'application/x-www-form-urlencoded')
      const form = Object.fromEntries(new URLSearchParams(await text(request)))
      const { verifier, nonce } = pending.get(form.state)
      assert.ok(request.headers.cookie?.includes(`.AspNetCore.Correlation.${form.state.slice(-20)}=N`), 'Correlation failed.')
      assert.equal(form.iss, issuer)
      if (form.error) return response.end(`refused: ${form.error}`)
      const body = new URLSearchParams({
        client_id: clientId, client_secret: clientSecret, code: form.code, grant_type: 'authorization_code',
        redirect_uri: origin + path, code_verifier: verifier,
      })
      const tokens = await (await fetch(`${issuer}/oauth/token`, { method: 'POST', body })).json()
      assert.ok(tokens.id_token, JSON.stringify(tokens))
      const { payload } = await jwtVerify(tokens.id_token, keys, { issuer, audience: clientId })
      assert.equal(payload.nonce, nonce)
      signedIn = { idToken: tokens.id_token, email: payload.email }
      return go('/')
    }
    if (url.pathname === '/logout') {
      const query = new URLSearchParams({
        id_token_hint: signedIn.idToken, post_logout_redirect_uri: `${origin}/signout-callback-oidc`, state: 'CfDJ8bye', ...library,
      })
      return go(`${issuer}/oauth/logout?${query}`)
    }
    if (url.pathname === '/signout-callback-oidc') return response.end(`goodbye ${url.searchParams.get('state')}`)
    response.end(JSON.stringify(signedIn ?? null))
  }
  return { origin, stop: () => server.close() }
}
