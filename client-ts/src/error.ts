import type { code } from './description.js'

/** Codes of failures without an answer of the server. */
export type ClientCode = 'network_error' | 'unexpected_response'

/** Every code an error can have. */
export type Code = code | ClientCode

/** A field of the input that was refused. */
export interface FieldError {
  field: string
  code: string
  message: string
}

/** A refusal of the server (RFC 9457), or a failure on the way to it. Branch on `code`. */
export class JanuaError<C extends string = Code, S extends number = number> extends Error {
  override readonly name = 'JanuaError'
  /** `status` is 0 and `requestId` is missing if no answer arrived. */
  constructor(
    readonly code: C,
    readonly status: S,
    message: string,
    /** The whole answer: some codes have fields of their own, such as `meter` of `quota_exceeded`. */
    readonly body: Readonly<Record<string, unknown>> = {},
    readonly headers: Headers = new Headers(),
    options?: ErrorOptions,
  ) {
    super(message, options)
  }

  /** Quote this when you ask for help. */
  get requestId(): string | undefined {
    return (this.body['requestId'] as string | undefined) ?? this.headers.get('x-request-id') ?? undefined
  }

  /** Every field that is wrong, for `invalid`. */
  get errors(): FieldError[] {
    return (this.body['errors'] as FieldError[] | undefined) ?? []
  }
}

/** Reads a refusal: a problem, an OAuth error (RFC 6749) or a SCIM error (RFC 7644). */
export async function readError(response: Response): Promise<JanuaError> {
  const text = await response.text()
  let body: Record<string, unknown> = {}
  try {
    body = Object(JSON.parse(text)) as typeof body
  } catch {}
  const code = (body['code'] ?? body['error'] ?? body['scimType'] ?? 'unexpected_response') as Code
  const message = body['detail'] ?? body['title'] ?? body['error_description'] ?? `HTTP ${response.status}`
  return new JanuaError(code, response.status, String(message), body, response.headers)
}
