// Apache with the published mod_auth_openidc in front of a folder, as a process of its own.
import { spawn } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'

const modules = '/usr/lib/apache2/modules'
const names = ['mpm_event', 'authn_core', 'authz_core', 'authz_user', 'dir', 'auth_openidc']

export async function start({ issuer, clientId, clientSecret }) {
  const port = await new Promise((resolve) => {
    const free = createServer().listen(0, '127.0.0.1', () => {
      const { port } = free.address()
      free.close(() => resolve(port))
    })
  })
  const origin = `http://127.0.0.1:${port}`
  const folder = mkdtempSync(`${tmpdir()}/apache-`)
  // It changes to another user when root starts it, who must find the pages.
  chmodSync(folder, 0o755)
  mkdirSync(`${folder}/pages/protected`, { recursive: true })
  writeFileSync(`${folder}/pages/protected/index.html`, 'For those who are signed in.')
  writeFileSync(`${folder}/pages/goodbye`, 'Goodbye.')
  writeFileSync(`${folder}/apache.conf`, `
ServerRoot ${folder}
DefaultRuntimeDir ${folder}
PidFile ${folder}/pid
ErrorLog ${folder}/error.log
LogLevel warn auth_openidc:info
ServerName 127.0.0.1
Listen 127.0.0.1:${port}
User www-data
Group www-data
StartServers 1
${names.map((name) => `LoadModule ${name}_module ${modules}/mod_${name}.so`).join('\n')}
DocumentRoot ${folder}/pages
DirectoryIndex index.html
OIDCProviderMetadataURL ${issuer}/.well-known/openid-configuration
OIDCClientID ${clientId}
OIDCClientSecret ${clientSecret}
OIDCRedirectURI ${origin}/protected/redirect_uri
OIDCCryptoPassphrase only-for-this-test
OIDCScope "openid profile email"
OIDCRemoteUserClaim email
OIDCInfoHook id_token userinfo
<Location /protected>
  AuthType openid-connect
  Require valid-user
</Location>
`)
  // It ends with this program, however that ends.
  const command = ['--pdeathsig', 'TERM', '/usr/sbin/apache2', '-d', folder, '-f', `${folder}/apache.conf`, '-D', 'FOREGROUND']
  const apache = spawn('setpriv', command, { stdio: 'inherit' })
  const ended = new Promise((resolve) => apache.once('exit', resolve))
  const log = () => {
    try { return readFileSync(`${folder}/error.log`, 'utf8') } catch { return '' }
  }
  for (let i = 0; ; i++) {
    try { await fetch(`${origin}/goodbye`); break } catch (error) {
      if (i === 100 || apache.exitCode !== null) throw new Error(`Apache does not start: ${log()}`, { cause: error })
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
  }
  const stop = async () => {
    apache.kill()
    await ended
    rmSync(folder, { recursive: true })
  }
  return { origin, stop, log }
}
