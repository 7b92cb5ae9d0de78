// npm install express ./janua-client-0.1.0.tgz (`npm pack` in client-ts makes it)
// ISSUER=https://id.example.com CLIENT_ID=… WEBHOOK_SECRET=… node express.mjs
import express from 'express'
import { createVerifier, TokenError, verifyWebhook, WebhookError } from '@janua/client/server'

const { ISSUER, CLIENT_ID, WEBHOOK_SECRET, PORT = '3000' } = process.env
const verifier = createVerifier({ url: ISSUER, audience: CLIENT_ID })
const app = express()

// Verifies the caller. The keys of the service are kept for five minutes, so most requests need no request to it.
async function signedIn(request, response, next) {
  try {
    request.user = await verifier.verifyRequest(request)
    next()
  } catch (error) {
    if (!(error instanceof TokenError)) return next(error)
    response.status(error.code === 'keys_unavailable' ? 503 : 401).json({ error: error.code })
  }
}

app.get('/api/me', signedIn, (request, response) => response.json({ id: request.user.sub }))

const processed = new Set() // in production: a table with a unique column
app.post('/hooks/janua', express.raw({ type: 'application/json' }), async (request, response, next) => {
  try {
    const event = await verifyWebhook({ headers: request.headers, body: request.body, secret: WEBHOOK_SECRET })
    if (!processed.has(event.deliveryId)) {
      processed.add(event.deliveryId)
      console.log(event.event, event.user?.email ?? '')
    }
    response.sendStatus(204)
  } catch (error) {
    if (!(error instanceof WebhookError)) return next(error)
    response.status(400).json({ error: error.code })
  }
})

// The page, for which a bundler usually packs the client.
app.get('/config.json', (_, response) => response.json({ issuer: ISSUER, clientId: CLIENT_ID }))
app.get('/', (_, response) => response.sendFile('browser.html', { root: import.meta.dirname }))
app.use('/janua', express.static(new URL('.', import.meta.resolve('@janua/client')).pathname))

app.listen(Number(PORT), '127.0.0.1', () => console.log(`Open http://127.0.0.1:${PORT}/`))
