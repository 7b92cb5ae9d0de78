// What a program in TypeScript gets out of the description: types that know what may be left out, and which codes a
// refusal can have. It is compiled beside the types, and never run.
import type { components, operations } from './openapi'

type Refusal = operations['auth.login']['responses'][401]['content']['application/problem+json']
export const code: Refusal['code'] = 'invalid_credentials'
// @ts-expect-error: an operation names its codes
export const unknown: Refusal['code'] = 'no_such_code'

type OAuthRefusal = operations['oauth.exchange_token']['responses'][400]['content']['application/json']
export const error: OAuthRefusal['error'] = 'invalid_grant'
// @ts-expect-error: and those of the standard where it has its own
export const noError: OAuthRefusal['error'] = 'no_such_error'

// What has a default may be left out.
export const app: components['schemas']['NewApp'] = { name: 'Shop' }
// @ts-expect-error: what has none may not
export const nameless: components['schemas']['NewApp'] = {}

type Export = operations['pages.export_file']['responses'][200]['content']['application/json']
export const email = (file: Export) => file.user.email
