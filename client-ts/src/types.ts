// The types of a call, worked out from the description. Nothing here is in the built code.
import type { components, paths, problems, webhooks } from './description.js'
import type { ClientCode, JanuaError } from './error.js'

/** The schemas of the description by name: `Schemas['AppView']`. Prefer `Answer<'get', '/apps/{appId}'>`: names may change. */
export type Schemas = components['schemas']

export type Method = 'get' | 'post' | 'put' | 'patch' | 'delete'

/** The paths that have an operation with this method. */
export type PathOf<M extends Method> = {
  [P in keyof paths]: paths[P] extends { [K in M]: object } ? P : never
}[keyof paths]

export type Operation<M extends Method, P extends PathOf<M>> = paths[P] extends { [K in M]: infer O } ? O : never

type Json<C> = C extends { 'application/json': infer T }
  ? T
  : C extends { 'application/scim+json': infer T }
    ? T
    : C extends { 'application/jrd+json': infer T }
      ? T
      : C extends Record<string, unknown>
        ? string
        : undefined

type Success<O> = O extends { responses: infer R }
  ? { [S in keyof R & (200 | 201 | 202 | 204)]: R[S] extends { content: infer C } ? Json<C> : undefined }[keyof R &
      (200 | 201 | 202 | 204)]
  : never

/** The answer of an operation. */
export type Answer<M extends Method, P extends PathOf<M>> = Success<Operation<M, P>>

/** Bytes to send: a `File` from a form is a `Blob`. */
export type Bytes = Blob | ArrayBuffer | Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>

type Sent<C> = C extends { 'application/json': infer T }
  ? T
  : C extends { 'application/x-www-form-urlencoded': infer T }
    ? T
    : Bytes

type PathPart<O> = O extends { parameters: { path: infer T } } ? { path: T } : { path?: undefined }

type QueryPart<O> = O extends { parameters: { query: infer T } }
  ? { query: T }
  : O extends { parameters: { query?: infer T } }
    ? { query?: T | undefined }
    : { query?: undefined }

type BodyPart<O> = O extends { requestBody: { content: infer C } }
  ? { body: Sent<C> }
  : O extends { requestBody?: { content: infer C } }
    ? { body?: Sent<C> | undefined }
    : { body?: undefined }

/** Options that every operation has. */
export interface CallOptions {
  /** Ends the call, its waiting and its retries. The promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined
  /** Further headers. */
  headers?: Record<string, string> | undefined
  /** `false` sends none. Default: a new one for each POST that creates something. */
  idempotencyKey?: string | false | undefined
}

/** The path parameters, query and body of an operation, as the description says. */
export type Options<M extends Method, P extends PathOf<M>> = PathPart<Operation<M, P>> &
  QueryPart<Operation<M, P>> &
  BodyPart<Operation<M, P>> &
  CallOptions

/** The options may be left out where nothing in them is required. */
export type Arguments<T> = {} extends T ? [options?: T] : [options: T]

type Refusals<T> = { [S in keyof T & number]: JanuaError<T[S] & string, S> }[keyof T & number]

/** The errors of an operation: a union to be told apart by `code`. */
export type Failure<M extends Method, P extends PathOf<M>> =
  | (P extends keyof problems ? (M extends keyof problems[P] ? Refusals<problems[P][M]> : never) : never)
  | JanuaError<ClientCode, number>

/** The answer of a call that does not throw. */
export type Result<M extends Method, P extends PathOf<M>> =
  | { ok: true; data: Answer<M, P>; error?: undefined }
  | { ok: false; data?: undefined; error: Failure<M, P> }

/** The lists: every GET with a cursor. */
export type ListPath = {
  [P in PathOf<'get'>]: Operation<'get', P> extends { parameters: { query?: infer Q } }
    ? [NonNullable<Q>] extends [never]
      ? never
      : 'cursor' extends keyof NonNullable<Q>
        ? P
        : never
    : never
}[PathOf<'get'>]

/** An entry of a list. */
export type Entry<P extends ListPath> = Entries<Answer<'get', P>>
// The one list of an answer that has sums beside it is `rows`.
type Entries<A> = {
  [K in Exclude<keyof A, 'totals'>]: A[K] extends readonly (infer T)[] ? T : never
}[Exclude<keyof A, 'totals'>]

/** The body of a webhook, to be told apart by `event`. */
export type WebhookEvent = {
  [K in keyof webhooks]: webhooks[K] extends { post: { requestBody: { content: { 'application/json': infer T } } } }
    ? T & { event: K extends 'audit.*' ? `audit.${string}` : K }
    : never
}[keyof webhooks]
