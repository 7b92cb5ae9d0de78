// A website with Express and the published passport-openidconnect, which knows no PKCE.
import express from 'express'
import session from 'express-session'
import passport from 'passport'
import OpenIDConnectStrategy from 'passport-openidconnect'

export async function start({ issuer, clientId, clientSecret }) {
  const app = express()
  const server = await new Promise((resolve) => {
    const listening = app.listen(0, '127.0.0.1', () => resolve(listening))
  })
  const origin = `http://127.0.0.1:${server.address().port}`
  const strategy = new OpenIDConnectStrategy({
    issuer,
    authorizationURL: `${issuer}/oauth/authorize`,
    tokenURL: `${issuer}/oauth/token`,
    userInfoURL: `${issuer}/oauth/userinfo`,
    clientID: clientId,
    clientSecret,
    callbackURL: `${origin}/auth/callback`,
    scope: ['profile', 'email'],
  }, (issuer, profile, done) => done(null, profile))
  passport.use(strategy)
  passport.serializeUser((user, done) => done(null, user))
  passport.deserializeUser((user, done) => done(null, user))
  app.use(session({ secret: 'only for this test', resave: false, saveUninitialized: false }))
  app.use(passport.session())
  app.get('/login', passport.authenticate('openidconnect'))
  app.get('/auth/callback', passport.authenticate('openidconnect', { failureMessage: true, failureRedirect: '/failed' }),
    (_, response) => response.redirect('/'))
  app.get('/failed', (request, response) => response.status(401).send(`failed: ${request.session.messages}`))
  app.get('/', (request, response) => response.json(request.user ?? null))
  app.use((error, request, response, next) => response.status(500).send(`${error.stack} ${error.oauthError?.data ?? ''}`))
  return { origin, stop: () => server.close() }
}
