// Save as quick-start.mjs, run `node --env-file=.env quick-start.mjs`, open http://localhost:3000
import { createHash, randomBytes } from 'node:crypto'
import { createServer } from 'node:http'

const ISSUER = process.env.ISSUER ?? 'https://id.example.com'
const CLIENT_ID = process.env.CLIENT_ID ?? 'YOUR_CLIENT_ID'
const REDIRECT_URL = new URL(process.env.REDIRECT_URL ?? 'http://localhost:3000/callback')
const COOKIE = 'HttpOnly; SameSite=Lax; Path=/'
const random = () => randomBytes(32).toString('base64url')

function signIn(response) {
  const [state, verifier] = [random(), random()]
  const query = new URLSearchParams({
    response_type: 'code', client_id: CLIENT_ID, redirect_uri: REDIRECT_URL.href, scope: 'openid profile email', state,
    code_challenge: createHash('sha256').update(verifier).digest('base64url'), code_challenge_method: 'S256',
  })
  const headers = { Location: `${ISSUER}/oauth/authorize?${query}`, 'Set-Cookie': `pending=${state}.${verifier}; ${COOKIE}` }
  response.writeHead(302, headers).end()
}

async function finish(query, cookies) {
  const [state, verifier] = (cookies.match(/(?:^|; )pending=([^;]+)/)?.[1] ?? '').split('.')
  if (!state || query.get('state') !== state) throw new Error('This sign-in was not started here.')
  if (query.has('error')) throw new Error(query.get('error_description') ?? query.get('error'))
  const body = new URLSearchParams({
    grant_type: 'authorization_code', client_id: CLIENT_ID, redirect_uri: REDIRECT_URL.href, code: query.get('code'),
    code_verifier: verifier,
  })
  const tokens = await (await fetch(`${ISSUER}/oauth/token`, { method: 'POST', body })).json()
  if (tokens.error) throw new Error(tokens.error_description ?? tokens.error)
  const headers = { Authorization: `Bearer ${tokens.access_token}` }
  return (await fetch(`${ISSUER}/oauth/userinfo`, { headers })).json()
}

const server = createServer(async (request, response) => {
  const url = new URL(request.url, REDIRECT_URL)
  if (url.pathname === '/login') return signIn(response)
  if (url.pathname !== REDIRECT_URL.pathname) {
    return response.writeHead(200, { 'Content-Type': 'text/html' }).end('<a href="/login">Sign in</a>')
  }
  try {
    const user = await finish(url.searchParams, request.headers.cookie ?? '')
    const headers = { 'Content-Type': 'text/plain', 'Set-Cookie': `pending=; Max-Age=0; ${COOKIE}` }
    response.writeHead(200, headers).end(`Signed in as ${user.email}.\n`)
  } catch (error) {
    response.writeHead(400, { 'Content-Type': 'text/plain' }).end(`${error.message}\n`)
  }
})
server.listen(Number(REDIRECT_URL.port), () => console.log(`Open ${REDIRECT_URL.origin}`))
