// Client of Janua for browsers, Node and workers. `@janua/client/server` verifies tokens and webhooks.
export { createClient, Janua, type ClientOptions, type RequestOptions } from './client.js'
export { JanuaError, type ClientCode, type Code, type FieldError } from './error.js'
export { beginSignIn, finishSignIn, type PendingSignIn, type SignInRequest } from './oauth.js'
export { memoryStore, webStore, type Session, type SessionStore } from './session.js'
export { upload, type StoredObject, type UploadOptions } from './upload.js'
export type {
  Answer,
  Bytes,
  CallOptions,
  Entry,
  Failure,
  ListPath,
  Method,
  Options,
  PathOf,
  Result,
  Schemas,
} from './types.js'
