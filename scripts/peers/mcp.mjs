// An MCP server of the published TypeScript SDK that takes Janua's tokens, and the SDK's own clients, of both versions in
// use. They find out everything by themselves. On the output they say where the person must go ("open"), and read from the
// input where the person came back.
import assert from 'node:assert/strict'
import { createInterface } from 'node:readline/promises'
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

const [issuer, port, clientMetadataUrl, appId, appSecret] = process.argv.slice(2)
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
const ask = async (...words) => {
  console.log(words.join(' '))
  return (await lines.next()).value
}

// The server: a tool for whoever has a token for it with its scope.
const resource = new URL(`http://127.0.0.1:${port}/mcp`)
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
const app = createMcpExpressApp()
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
await new Promise((resolve) => app.listen(port, '127.0.0.1', resolve))

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
  const transport = () => new Transport(resource, { authProvider: provider })
  const whoami = async () => {
    const client = new Client({ name: 'test', version: '1' })
    await client.connect(transport())
    const { content } = await client.callTool({ name: 'whoami', arguments: {} })
    await client.close()
    return content[0].text.split(' ')
  }
  await assert.rejects(whoami(), { message: /Unauthorized/i })
  assert.ok(provider.link, 'the client knows where to send its person')
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
