// Checks what the package weighs in a browser: bundled, minified and gzipped.
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'

const LIMITS = { index: 6 * 1024, server: 4 * 1024 }
for (const [entry, limit] of Object.entries(LIMITS)) {
  const { outputFiles } = await build({
    entryPoints: [new URL(`../dist/${entry}.js`, import.meta.url).pathname],
    bundle: true, minify: true, format: 'esm', platform: 'neutral', target: 'es2022', write: false,
  })
  const size = gzipSync(outputFiles[0].contents, { level: 9 }).length
  console.log(`${entry}: ${size} of ${limit} bytes gzipped`)
  if (size > limit) process.exitCode = 1
}
