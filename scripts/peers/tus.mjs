// Uploads a file with tus-js-client, breaks it off once, and goes on: arguments are the endpoint, the token, the key and the
// file. Prints the URL of the upload.
import { createRequire } from 'node:module'
import { createReadStream, statSync } from 'node:fs'

const require = createRequire(`${process.env.TEST_NODE}/package.json`)
const tus = require('tus-js-client')
const [endpoint, token, key, file] = process.argv.slice(2)
const size = statSync(file).size

const options = (more) => ({
  endpoint,
  headers: { authorization: `Bearer ${token}`, 'x-service-app-key': key },
  metadata: { filename: 'words.bin', filetype: 'application/octet-stream', album: 'strangers' },
  uploadSize: size,
  chunkSize: 1024 * 1024,
  retryDelays: [0, 100],
  ...more,
})

const first = await new Promise((resolve, reject) => {
  const upload = new tus.Upload(createReadStream(file), options({
    onError: reject,
    onChunkComplete: (_, accepted) => { if (accepted >= size / 2) upload.abort().then(() => resolve(upload), reject) },
  }))
  upload.start()
})
if (!first.url) throw new Error('no URL')

// Another process would begin with the URL alone.
const url = await new Promise((resolve, reject) => {
  const upload = new tus.Upload(createReadStream(file), options({
    endpoint: undefined, uploadUrl: first.url, onError: reject, onSuccess: () => resolve(upload.url),
  }))
  upload.start()
})
console.log(url)
