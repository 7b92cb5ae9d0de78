// A published OpenID provider on a free port of this machine, for the tests of signing in with one.
// It prints its address, signs in whoever gives a name, and ends when its standard input does. Where people come back to can
// be said: http://localhost:0 otherwise.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const packages = createRequire(`${process.env.TEST_NODE}/`);
const { Provider } = await import(pathToFileURL(packages.resolve('oidc-provider')));

const [home = 'http://localhost:0'] = process.argv.slice(2);
const names = ['google', 'microsoft', 'linkedin', 'cognito'];
const server = createServer().listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: names.map((name) => ({
      client_id: name,
      client_secret: `${name}-secret`,
      redirect_uris: [`${home}/sign-in/${name}`],
      token_endpoint_auth_method: 'client_secret_post',
    })),
    claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name', 'picture'] },
    // As the providers it stands in for, it says everything in the token.
    conformIdTokenClaims: false,
    pkce: { required: (_, client) => client.clientId !== 'linkedin' },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({
        sub: id,
        email: `${id}@example.com`,
        email_verified: true,
        name: `${id} of the provider`,
        picture: 'https://pictures.example/person.png',
      }),
    }),
  });
  server.on('request', provider.callback());
  console.log(issuer);
});
process.stdin.on('end', () => process.exit()).resume();
