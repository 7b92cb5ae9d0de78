// An MCP server of the published TypeScript SDK that takes Janua's tokens, and the SDK's own clients, of both versions in
// use. They find out everything by themselves. On the output they say where the person must go ("open"), and read from the
// input where the person came back. On a domain they are given its name, a folder with the certificate and key of its server, and
// whether its organization has proven it.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createServer, request } from 'node:https'
import { createInterface } from 'node:readline/promises'
import { Readable } from 'node:stream'
import { Client as NewClient, StreamableHTTPClientTransport as NewTransport } from '@modelcontextprotocol/client'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { InvalidTokenError } from '@modelcontextprotocol/sdk/server/auth/errors.js'
import { requireBearerAuth } from '@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js'
import { getOAuthProtectedResourceMetadataUrl, mcpAuthMetadataRouter } from '@modelcontextprotocol/sdk/server/auth/router.js'
import { createMcpExpressApp } from '@modelcontextprotocol/sdk/server/express.js'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js'
import { createRemoteJWKSet, jwtVerify } from 'jose'

const [issuer, port, clientMetadataUrl, appId, appSecret, domain, folder, proof = 'proven'] = process.argv.slice(2)
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
const ask = async (...words) => {
  console.log(words.join(' '))
  return (await lines.next()).value
}

// The server: a tool for whoever has a token for it with its scope.
const resource = new URL(domain ? `https://${domain}/mcp` : `http://127.0.0.1:${port}/mcp`)
const keys = createRemoteJWKSet(new URL(`${issuer}/.well-known/jwks.json`))
const verifier = {
  async verifyAccessToken(token) {
    const options = { issuer, audience: resource.href, typ: 'at+jwt' }
    const { payload } = await jwtVerify(token, keys, options).catch((error) => {
      throw new InvalidTokenError(error.message)
    })
    const scopes = payload.scope.split(' ')
    return { token, clientId: payload.client_id, scopes, expiresAt: payload.exp, resource, extra: { sub: payload.sub } }
  },
}
// Without the hosts the SDK accepts requests to names of loopback alone.
const app = createMcpExpressApp({ allowedHosts: [resource.hostname] })
const oauthMetadata = await (await fetch(`${issuer}/.well-known/oauth-authorization-server`)).json()
app.use(mcpAuthMetadataRouter({ oauthMetadata, resourceServerUrl: resource, scopesSupported: ['mcp:tools'] }))
const bearer = requireBearerAuth({
  verifier,
  requiredScopes: ['mcp:tools'],
  resourceMetadataUrl: getOAuthProtectedResourceMetadataUrl(resource),
  expectedResource: resource,
})
app.post('/mcp', bearer, async (request, response) => {
  const server = new McpServer({ name: 'tools', version: '1' })
  server.registerTool('whoami', { description: 'Says who calls' }, ({ authInfo }) => ({
    content: [{ type: 'text', text: `${authInfo.clientId} ${authInfo.extra.sub}` }],
  }))
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined, enableJsonResponse: true })
  await server.connect(transport)
  await transport.handleRequest(request, response, request.body)
})
app.all('/mcp', bearer, (_, response) => response.status(405).end())
const files = domain && { key: readFileSync(`${folder}/key.pem`), cert: readFileSync(`${folder}/cert.pem`) }
const listener = domain ? createServer(files, app) : app
await new Promise((resolve) => listener.listen(port, '127.0.0.1', resolve))

// What a client asks with: it finds the domain on this machine. The certificate must still be the domain's own.
async function onThisMachine(url, { method, headers, body, signal } = {}) {
  url = new URL(url)
  if (url.hostname !== domain) return fetch(url, { method, headers, body, signal })
  const options = { hostname: '127.0.0.1', port, servername: domain, ca: files.cert, method, signal, agent: false }
  options.headers = { ...Object.fromEntries(new Headers(headers)), host: url.host }
  const answer = await new Promise((resolve, reject) => {
    request(url, options, resolve).on('error', reject).end(body && String(body))
  })
  return new Response(Readable.toWeb(answer), { status: answer.statusCode, headers: answer.headers })
}

// What an application must bring to the SDK's client: places to keep things, and a way to open a browser.
class Provider {
  constructor(clientMetadataUrl, client) {
    this.clientMetadataUrl = clientMetadataUrl
    this.client = client
    this.preset = client
  }
  redirectUrl = 'http://127.0.0.1:8790/callback'
  clientMetadata = {
    client_name: 'MCP client',
    redirect_uris: [this.redirectUrl],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    token_endpoint_auth_method: 'none',
  }
  clientInformation = () => this.client
  saveClientInformation = (client) => (this.client = client)
  tokens = () => this.kept
  saveTokens = (tokens) => (this.kept = tokens)
  codeVerifier = () => this.verifier
  saveCodeVerifier = (verifier) => (this.verifier = verifier)
  redirectToAuthorization = (link) => (this.link = link)
}

async function through(name, Client, Transport, provider) {
  const transport = () => new Transport(resource, { authProvider: provider, fetch: domain ? onThisMachine : undefined })
  const whoami = async () => {
    const client = new Client({ name: 'test', version: '1' })
    await client.connect(transport())
    const { content } = await client.callTool({ name: 'whoami', arguments: {} })
    await client.close()
    return content[0].text.split(' ')
  }
  await assert.rejects(whoami(), { message: /Unauthorized/i })
  assert.ok(provider.link, 'the client knows where to send its person')
  assert.deepEqual(provider.link.searchParams.getAll('resource'), [resource.href])
  if (proof !== 'proven') {
    const back = await ask('refused', provider.link)
    // An app is sent the error. Other clients are not: their user reads it on a page.
    if (provider.preset) assert.equal(new URL(back).searchParams.get('error'), 'invalid_target')
    else assert.equal(back, 'page')
    return console.log(`ok ${name}: refused`)
  }
  const back = new URL(await ask('open', provider.link))
  assert.ok(back.searchParams.has('code'), `no code: ${back}`)
  const finish = transport()
  // The older client takes the code alone, the newer one looks at the issuer as well.
  await finish.finishAuth(Transport === NewTransport ? back.searchParams : back.searchParams.get('code'))
  const [clientId, sub] = await whoami()
  assert.equal(clientId, provider.client.client_id)
  if (provider.clientMetadataUrl) assert.equal(clientId, provider.clientMetadataUrl)
  if (provider.preset) assert.equal(clientId, appId)
  console.log(`ok ${name}: a tool was called`)

  // A token the server refuses: the client turns to its refresh token, and the person is not asked.
  const { refresh_token } = provider.kept
  // An app gets one only if the client asks for it, which the older one does not.
  if (provider.preset && Transport !== NewTransport) {
    assert.equal(refresh_token, undefined)
    return console.log(`ok ${name}: nothing to refresh`)
  }
  assert.ok(refresh_token, `no refresh token for ${provider.link.searchParams.get('scope')}`)
  provider.link = undefined
  provider.saveTokens({ ...provider.kept, access_token: 'worn.out.token' })
  assert.deepEqual(await whoami(), [clientId, sub])
  assert.notEqual(provider.kept.refresh_token, refresh_token)
  assert.equal(provider.link, undefined)
  console.log(`ok ${name}: refreshed`)
}

// An app that was created beforehand, with its id and its secret key.
const created = () => new Provider(undefined, { client_id: appId, client_secret: appSecret })

await through('client 1, registered', Client, StreamableHTTPClientTransport, new Provider())
await through('client 1, described', Client, StreamableHTTPClientTransport, new Provider(clientMetadataUrl))
await through('client 1, created beforehand', Client, StreamableHTTPClientTransport, created())
await through('client 2, registered', NewClient, NewTransport, new Provider())
await through('client 2, described', NewClient, NewTransport, new Provider(clientMetadataUrl))
await through('client 2, created beforehand', NewClient, NewTransport, created())
console.log('done')
process.exit(0)
