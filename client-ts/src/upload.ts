import { JanuaError, readError, type Code } from './error.js'
import type { Janua } from './client.js'
import type { Answer } from './types.js'

/** A stored file. */
export type StoredObject = Answer<'get', '/storage/objects/{id}'>

export interface UploadOptions {
  /** Default: the file's name. */
  name?: string | undefined
  /** Default: the file's type, or `application/octet-stream`. */
  contentType?: string | undefined
  /** Default: `private`. */
  visibility?: 'private' | 'public' | undefined
  metadata?: Record<string, string> | undefined
  /** Called with the bytes that were sent, and with all of them at the end. */
  onProgress?: ((sent: number, total: number) => void) | undefined
  signal?: AbortSignal | undefined
  /** Sends chunks that survive a lost connection (tus). Default: for files of 32 MiB or more. */
  resumable?: boolean | undefined
  /** The size of a chunk in bytes. Default: 8 MiB. */
  chunkSize?: number | undefined
}

const LARGE = 32 * 1024 * 1024
const TUS = { 'Tus-Resumable': '1.0.0' }

/** Stores a file for the signed-in user. The client needs a key of the app. */
export async function upload(
  janua: Janua,
  file: Blob | ArrayBuffer | Uint8Array<ArrayBuffer>,
  options: UploadOptions = {},
): Promise<StoredObject> {
  const blob = file instanceof Blob ? file : new Blob([file])
  const { onProgress, signal } = options
  const name = options.name ?? (blob as Partial<File>).name ?? 'file'
  const contentType = options.contentType ?? (blob.type || 'application/octet-stream')
  onProgress?.(0, blob.size)
  if (options.resumable ?? blob.size >= LARGE) return resumable(janua, blob, name, contentType, options)
  const { visibility = 'private', metadata = {} } = options
  const body = { name, contentType, size: blob.size, visibility, metadata }
  const offer = await janua.post('/storage/presign-upload', { body, signal })
  await put(offer, blob, options)
  onProgress?.(blob.size, blob.size)
  return janua.post('/storage/finalize/{objectId}', { path: offer, body: {}, signal })
}

/** One PUT, which goes to the bucket if the service has one: without the session and the app's key. */
async function put(offer: Answer<'post', '/storage/presign-upload'>, blob: Blob, options: UploadOptions): Promise<void> {
  const { onProgress, signal } = options
  const { uploadUrl, method, headers } = offer
  const failed = (status: number, text: string, cause?: unknown) =>
    new JanuaError<Code>(status ? 'unexpected_response' : 'network_error', status, text, {}, undefined, { cause })
  // `fetch` does not report the progress of an upload.
  if (!onProgress || typeof XMLHttpRequest === 'undefined') {
    let response: Response
    try {
      response = await fetch(uploadUrl, { method, headers, body: blob, signal: signal ?? null })
    } catch (cause) {
      signal?.throwIfAborted()
      throw failed(0, String(cause), cause)
    }
    if (!response.ok) throw await readError(response)
    return
  }
  const request = new XMLHttpRequest()
  const abort = () => request.abort()
  await new Promise<void>((resolve, reject) => {
    signal?.throwIfAborted()
    request.open(method, uploadUrl)
    for (const [header, value] of Object.entries(headers)) request.setRequestHeader(header, value)
    request.upload.onprogress = (event) => onProgress(event.loaded, blob.size)
    request.onload = () =>
      request.status < 300 ? resolve() : reject(failed(request.status, `The upload failed with HTTP ${request.status}`))
    request.onerror = () => reject(failed(0, 'The upload failed'))
    request.onabort = () => reject(signal?.reason)
    signal?.addEventListener('abort', abort)
    request.send(blob)
  }).finally(() => signal?.removeEventListener('abort', abort))
}

/** tus 1.0.0. After a lost connection the server is asked how far it got. */
async function resumable(
  janua: Janua,
  blob: Blob,
  filename: string,
  filetype: string,
  { visibility = 'private', metadata, onProgress, signal, chunkSize = 8 * 1024 * 1024 }: UploadOptions,
): Promise<StoredObject> {
  const values = { ...metadata, filename, filetype, visibility }
  const encoded = Object.entries(values).map(([key, value]) => `${key} ${base64(value)}`)
  const begun = await janua.request('POST', '/storage/uploads', {
    headers: { ...TUS, 'Upload-Length': String(blob.size), 'Upload-Metadata': encoded.join(',') },
    signal,
  })
  if (!begun.ok) throw await readError(begun)
  const id = (begun.headers.get('location') ?? '').split('/').pop() ?? ''
  const path = `/storage/uploads/${id}`
  let offset = 0
  for (let failures = 0; offset < blob.size; ) {
    try {
      const body = blob.slice(offset, offset + chunkSize)
      const headers = { ...TUS, 'Content-Type': 'application/offset+octet-stream', 'Upload-Offset': String(offset) }
      const sent = await janua.request('PATCH', path, { body, headers, signal })
      if (!sent.ok) throw await readError(sent)
      offset = Number(sent.headers.get('upload-offset'))
      failures = 0
    } catch (error) {
      signal?.throwIfAborted()
      const { status } = error as JanuaError
      // A lost answer, a server that restarts, or bytes that arrived although their answer did not.
      if (failures++ >= 5 || (status && status < 500 && status !== 409)) throw error
      await new Promise((resolve) => setTimeout(resolve, 250 * 2 ** failures))
      const state = await janua.request('HEAD', path, { headers: TUS, signal })
      if (!state.ok) throw error
      offset = Number(state.headers.get('upload-offset'))
    }
    onProgress?.(offset, blob.size)
  }
  return janua.get('/storage/objects/{id}', { path: { id }, signal })
}

function base64(text: string): string {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)))
}
