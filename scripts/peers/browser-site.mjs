// What the service says about itself, in the browser: the status, the reference with its form to try things, and the look
// of an app where its people sign in.
import assert from 'node:assert/strict'
import { deflateSync, crc32 } from 'node:zlib'

// A small picture: a square of one colour.
function png(side, [red, green, blue]) {
  const part = (name, data) => {
    const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)]
    const named = Buffer.concat([Buffer.from(name), data])
    length.writeUInt32BE(data.length)
    sum.writeUInt32BE(crc32(named))
    return Buffer.concat([length, named, sum])
  }
  const head = Buffer.alloc(13)
  head.writeUInt32BE(side, 0)
  head.writeUInt32BE(side, 4)
  head.set([8, 2, 0, 0, 0], 8)
  const line = Buffer.concat([Buffer.from([0]), Buffer.from(Array(side).fill([red, green, blue]).flat())])
  const pixels = deflateSync(Buffer.concat(Array(side).fill(line)))
  return Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), part('IHDR', head), part('IDAT', pixels), part('IEND', Buffer.alloc(0))])
}

// The form of an operation says how it was answered.
const answered = (operation, status) => operation.getByRole('status').getByText(new RegExp(`^${status} `)).waitFor()

export async function site({ base, newPage, look, call, signIn, step, authorize, app, owner, root, email }) {
  // How everything does. The first look at the components comes soon after the start.
  const reader = await newPage()
  for (let i = 0; i < 100; i++) {
    await reader.goto(`${base}/status`)
    if (await reader.getByText('All systems operational').count()) break
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  await reader.getByRole('heading', { name: 'All systems operational' }).waitFor()
  assert.equal(await reader.locator('svg.bars').count(), 4)
  assert.equal(await reader.locator('svg.bars').first().locator('rect').count(), 90)
  await reader.getByText('Day by day').first().click()
  await reader.getByRole('columnheader', { name: 'Failed' }).first().waitFor()
  const time = await reader.locator('time').first().textContent()
  assert.ok(!time.includes('UTC'), `in the reader's own zone: ${time}`)
  // Something went wrong, and something still does.
  const report = async (body) => {
    const told = await call(root, 'POST', '/admin/status/incidents', body)
    assert.equal(told.status, 200)
    return told.body.id
  }
  const over = await report({ title: 'Mails came late', impact: 'minor', components: ['mail'], message: 'The relay was full.' })
  await report({ id: over, state: 'resolved', message: 'It has room again.' })
  await report({ title: 'A page is slow', impact: 'minor', components: ['api'], message: 'We are looking for the cause.' })
  await reader.reload()
  await reader.getByRole('heading', { name: 'Some systems are degraded' }).waitFor()
  await look(reader, 'status')
  step('the status, day by day')

  for (const document of ['terms', 'privacy', 'cookie-policy', 'dpa']) {
    await reader.goto(`${base}/legal/${document}`)
    await look(reader, `legal-${document}`)
  }
  await reader.goto(`${base}/legal/privacy?jurisdiction=us`)
  await look(reader, 'legal-privacy-us')
  step('the legal documents')

  // The reference: found by typing, tried without and with a session.
  await reader.goto(`${base}/reference`)
  await look(reader, 'reference')
  await reader.getByLabel('Find an operation').fill('get auth/me authenticated')
  await reader.getByText(/^1 of \d+$/).waitFor()
  await reader.getByRole('link', { name: 'GET /auth/me' }).click()
  const me = reader.locator('article', { has: reader.getByRole('heading', { name: 'GET /auth/me', exact: true }) })
  const tryIt = me.getByRole('button', { name: 'Try it' })
  await tryIt.focus()
  await reader.keyboard.press('Enter')
  await reader.keyboard.press('Enter')
  await answered(me, 401)
  await me.getByRole('link', { name: 'Sign in' }).click()
  await signIn(reader, email)
  await reader.waitForURL(`${base}/reference/auth`)
  await tryIt.click()
  await me.getByRole('button', { name: 'Send GET' }).click()
  await answered(me, 200)
  assert.equal(JSON.parse(await me.locator('pre.answer').textContent()).email, email)
  await me.scrollIntoViewIfNeeded()
  await look(reader, 'reference-try')
  // The access cookie is gone, the session is not: it is renewed on the way.
  const isAccess = ({ name }) => name.endsWith('service_access')
  await reader.context().clearCookies({ name: (await reader.context().cookies()).find(isAccess).name })
  await me.getByRole('button', { name: 'Send GET' }).click()
  await answered(me, 200)
  await me.locator('pre.answer').waitFor()
  assert.ok((await reader.context().cookies()).some(isAccess), 'the access cookie is renewed')
  // Deleting asks once.
  const remove = reader.locator('article', { has: reader.getByRole('heading', { name: 'DELETE /auth/sessions/{id}', exact: true }) })
  await remove.getByRole('button', { name: 'Try it' }).click()
  await remove.getByLabel('id (path)').fill('01a2b3c4-d5e6-7f80-9a0b-1c2d3e4f5061')
  await remove.getByRole('button', { name: 'Send DELETE' }).click()
  await remove.getByText('This deletes for real').waitFor()
  assert.equal(await remove.locator('pre.answer').count(), 0, 'nothing was sent')
  await remove.getByRole('button', { name: 'Delete for good' }).click()
  await answered(remove, 404)
  // Its pages are drawn by one template: axe looks at those that have the most kinds of things on them.
  for (const group of ['apps', 'oauth', 'webhooks']) {
    await reader.goto(`${base}/reference/${group}`)
    await look(reader, `reference-${group}`)
  }
  step('the reference, and a request through it')
  // The documents: every one is drawn by one template; axe looks at those that have the most kinds of things on them.
  for (const [path, name] of [['', 'docs'], ['/users', 'docs-users'], ['/pages', 'docs-pages'], ['/errors', 'docs-errors'],
    ['/search?q=webhook', 'docs-search'], ['/nothing', 'docs-missing']]) {
    await reader.goto(`${base}/docs${path}`)
    await look(reader, name)
  }
  await reader.goto(`${base}/docs/users`)
  await reader.context().grantPermissions(['clipboard-read', 'clipboard-write'])
  await reader.getByRole('button', { name: 'Copy code' }).first().click()
  await reader.getByRole('button', { name: 'Copied' }).waitFor()
  assert.match(await reader.evaluate(() => navigator.clipboard.readText()), /^JANUA=/, 'the code is copied')
  step('the documents, and code copied from one')
  // Without a script it reads all the same.
  const plain = await newPage({ javaScriptEnabled: false })
  await plain.goto(`${base}/reference/apps`)
  await plain.getByRole('heading', { name: 'PATCH /apps/{appId}', exact: true }).waitFor()
  await plain.goto(`${base}/docs`)
  await plain.getByLabel('Search the documents').fill('rotate secret')
  await plain.keyboard.press('Enter')
  await plain.locator('.hits a').first().click()
  await plain.locator('article.document').waitFor()
  await plain.goto(`${base}/status`)
  await plain.getByText('UTC').first().waitFor()

  // An app with a logo and a colour that nobody could read on white.
  const picture = png(96, [255, 140, 0])
  assert.equal((await call(owner, 'PATCH', `/apps/${app}`, { branding: { primaryColor: '#ffe600' } })).status, 200)
  const offered = await call(owner, 'POST', `/apps/${app}/logo/upload-url`, { contentType: 'image/png', size: picture.length })
  assert.equal(offered.status, 200)
  const put = await fetch(offered.body.uploadUrl, { method: 'PUT', headers: offered.body.headers, body: picture })
  assert.equal(put.status, 204)
  const visitor = await newPage()
  await visitor.goto(authorize)
  const logo = visitor.locator('.look img')
  await logo.waitFor()
  assert.equal(await logo.evaluate((image) => image.naturalWidth), 96, 'the logo is loaded')
  const button = visitor.getByRole('button', { name: 'Sign in', exact: true })
  assert.equal(await button.evaluate((one) => getComputedStyle(one).backgroundColor), 'rgb(255, 230, 0)')
  await visitor.getByText('This page belongs to').waitFor()
  await look(visitor, 'sign-in-branded')
  await signIn(visitor, email)
  await visitor.getByRole('heading', { name: 'wants to access your account' }).waitFor()
  await look(visitor, 'consent-branded')
  step('an app shows its look where its people sign in')
}
