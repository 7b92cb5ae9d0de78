// What the test in Chromium runs in a worker.
import { createClient } from './index.js'
import { createVerifier, verifyWebhook } from './server.js'

onmessage = async ({ data: { url, appKey, appId, password } }) => {
  const janua = createClient({ url, appKey })
  await janua.signIn('ada@example.com', password)
  const { accessToken } = await janua.session()
  const claims = await createVerifier({ url, audience: appId }).verify(accessToken)
  const machine = await createVerifier({ url }).verifyMachine(accessToken).catch(({ code }) => code)
  const headers = { 'webhook-signature': `t=${Math.floor(Date.now() / 1000)},v1=00` }
  const webhook = await verifyWebhook({ headers, body: '{}', secret: 's' }).catch(({ code }) => code)
  postMessage([claims.email, claims.appId, machine, webhook])
}
