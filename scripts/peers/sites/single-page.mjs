// A page without a server of its own: the published oidc-client-ts, which finds out everything by fetch.
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'

const library = readFileSync(new URL('../node_modules/oidc-client-ts/dist/browser/oidc-client-ts.min.js', import.meta.url))

const page = `<!doctype html><title>A page</title><script src="/oidc-client-ts.min.js"></script><script>
  const manager = (options) => new oidc.UserManager({
    redirect_uri: location.origin + '/callback',
    silent_redirect_uri: location.origin + '/silent',
    post_logout_redirect_uri: location.origin + '/goodbye',
    scope: 'openid profile email',
    loadUserInfo: true,
    ...options,
  })
  // In a frame: the answer goes to the page around it, which knows the options.
  if (location.pathname === '/silent') manager({ authority: 'unused', client_id: 'unused' }).signinSilentCallback()
</script>`

export async function start({ port }) {
  const server = createServer((request, response) => {
    const isLibrary = request.url === '/oidc-client-ts.min.js'
    response.setHeader('content-type', isLibrary ? 'text/javascript' : 'text/html')
    response.end(isLibrary ? library : page)
  })
  // On the name the provider has, with another port: another origin of the same site, so that a frame gets its cookies.
  await new Promise((resolve) => server.listen(port, '127.0.0.1', resolve))
  return { origin: `http://localhost:${port}`, stop: () => server.close() }
}
