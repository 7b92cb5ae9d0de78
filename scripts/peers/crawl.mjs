// The pages of a running server as a platform owner reaches them: it follows the links of each page and takes one page of a
// kind, one app, one organization, one webhook.
export const outside = ['/', '/sign-in', '/sign-up', '/check-email', '/forgot-password', '/device', '/status', '/reference', '/marketplace',
  '/docs', '/docs/users', '/docs/search?q=webhook', '/legal/terms', '/nowhere']
export const inside = ['/account', '/console', '/console?new=app', '/console?new=org', '/console/platform', '/console/outbox',
  '/console/design', '/console/mails', '/console/search?q=a']
// These answer with a file, end the session or leave the pages.
const skipped = /format=|\/export|\/body$|\/content$|\/oauth\/|\/api\/|\/openapi|\.(json|txt|xml|csv|tgz)$|\/reference\/|\/account\/data\/|cursor=|sort=/

// Pages that differ only by the ID, the name or the filter in their URL are of one kind.
export function kind(url) {
  const id = /^([0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f-]{20,})$/
  const path = url.pathname.split('/').filter(Boolean).map((part) => (id.test(part) ? 'id' : part))
  const named = path.findIndex((part) => ['skills', 'templates', 'domains', 'outbox', 'mails', 'legal', 'marketplace'].includes(part))
  if (named >= 0 && path.length > named + 1 && path[named + 1] !== 'register') path[named + 1] = 'one'
  const dialog = url.searchParams.get('new')?.replace(/-[0-9a-f-]{36}$/, '')
  return (path.join('-') || 'home') + (dialog ? `-new-${dialog}` : '')
}

export async function signIn(page, base, email, password) {
  await page.goto(`${base}/sign-in`)
  await page.fill('input[name=email]', email)
  await page.fill('input[name=password]', password)
  await page.keyboard.press('Enter')
  await page.waitForURL(/\/(console|account)/)
}

// Calls `visit(url, name)` for one page of each kind that is not in `seen`; where it leaves the page open and answers `true`,
// its links are followed.
export async function crawl(page, base, paths, seen, visit) {
  const queue = [...paths]
  while (queue.length) {
    const url = new URL(queue.shift(), base)
    const name = kind(url)
    if (seen.has(name)) continue
    seen.add(name)
    if (!(await visit(url, name))) continue
    const links = await page.evaluate(() => [...document.links].map((link) => link.href))
    queue.push(...links.filter((link) => link.startsWith(base) && !skipped.test(link)).map((link) => link.slice(base.length).split('#')[0] || '/'))
  }
}
