// What the types promise. It is compiled, and never run.
import { createClient, upload, type Answer, type Entry } from '../src/index.js'
import { createVerifier, verifyWebhook } from '../src/server.js'

const janua = createClient({ url: 'https://id.example.com', appKey: 'pk_live_x' })

export async function calls() {
  const me: Answer<'get', '/auth/me'> = await janua.get('/auth/me')
  const app: Answer<'get', '/apps/{appId}'> = await janua.post('/apps', { body: { name: 'Shop' } })
  await janua.patch('/apps/{appId}', { path: { appId: app.id }, body: { name: 'Other' } })
  const nothing: undefined = await janua.delete('/apps/{appId}', { path: { appId: app.id } })
  // @ts-expect-error: there is no such path
  await janua.get('/no-such-path')
  // @ts-expect-error: nor this method of it
  await janua.delete('/apps')
  // @ts-expect-error: the path has a parameter
  await janua.get('/apps/{appId}')
  // @ts-expect-error: an app has a name
  await janua.post('/apps', { body: {} })
  // @ts-expect-error: a query has the names of the description
  await janua.get('/apps', { query: { limitt: 3 } })
  return [me, nothing]
}

export async function errors() {
  const result = await janua.try('post', '/auth/login', { body: { email: 'ada@example.com', password: 'x' } })
  if (result.ok) {
    if ('mfaTicket' in result.data) return result.data.factors
    return result.data.accessToken
  }
  const { error } = result
  switch (error.code) {
    case 'invalid_credentials': {
      const status: 401 = error.status
      return status
    }
    case 'network_error':
      return error.message
    // @ts-expect-error: no such code
    case 'no_such_code':
      return
    default:
      return error.requestId
  }
}

export async function lists() {
  for await (const app of janua.list('/apps', { query: { limit: 10 } })) {
    const id: string = app.id
    console.log(id)
  }
  for await (const page of janua.pages('/auth/audit-log')) console.log(page.nextCursor)
  const row = {} as Entry<'/billing/admin/cost'>
  const currency: string = row.currency
  // @ts-expect-error: not a list with pages
  janua.list('/auth/sessions')
  return currency
}

export async function files(file: File) {
  const object = await upload(janua, file, { onProgress: (sent, total) => console.log(sent / total) })
  return object.downloadUrl
}

export async function server(request: Request) {
  const verifier = createVerifier({ url: janua.url, audience: 'app' })
  const claims = await verifier.verifyRequest(request)
  const event = await verifyWebhook({ headers: request.headers, body: await request.text(), secret: 's' })
  if (event.event === 'user.signed_in') console.log(event.user.id, event.methods)
  // @ts-expect-error: no such event
  if (event.event === 'user.vanished') return
  return claims.sub
}
