// The little script there is. Without it everything works but passkeys and the proof of work.
'use strict'

const bytes = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16))
const hex = (buffer) => Array.from(new Uint8Array(buffer), (byte) => byte.toString(16).padStart(2, '0')).join('')

// The proof of work (ALTCHA, PBKDF2): counts up until a derived key begins as it must.
async function solve({ parameters }) {
  const { nonce, salt, cost, keyLength, keyPrefix } = parameters
  const [start, seed] = [bytes(nonce), bytes(salt)]
  for (let counter = 0; ; counter++) {
    const password = new Uint8Array(start.length + 4)
    password.set(start)
    new DataView(password.buffer).setUint32(start.length, counter)
    const key = await crypto.subtle.importKey('raw', password, 'PBKDF2', false, ['deriveBits'])
    const how = { name: 'PBKDF2', hash: 'SHA-256', salt: seed, iterations: cost }
    const derivedKey = hex(await crypto.subtle.deriveBits(how, key, keyLength * 8))
    if (derivedKey.startsWith(keyPrefix.toLowerCase())) return { counter, derivedKey }
  }
}

for (const place of document.querySelectorAll('.captcha')) {
  const challenge = JSON.parse(place.dataset.challenge)
  const buttons = place.closest('form').querySelectorAll('button')
  for (const button of buttons) button.disabled = true
  solve(challenge).then((solution) => {
    place.querySelector('input').value = btoa(JSON.stringify({ challenge, solution }))
    place.querySelector('[role=status] p').textContent = 'Security check passed. Enter your password again.'
    for (const button of buttons) button.disabled = false
  })
}

// One request to the interface. Who was away for a while has an access token that ran out: it is renewed once.
async function post(path, body, mayRenew = true) {
  const answer = await fetch(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  if (answer.status === 401 && mayRenew && (await fetch('/auth/refresh', { method: 'POST' })).ok) {
    return post(path, body, false)
  }
  const said = answer.status === 204 ? {} : await answer.json()
  if (!answer.ok) throw Object.assign(new Error([said.title, said.detail].filter(Boolean).join(' ')), { code: said.code })
  return said
}

// Passkeys. The browser offers them in the email field, and behind a button.

for (const form of document.querySelectorAll('form.passkey')) {
  // It is there from the start, so that nothing moves; a browser without passkeys loses it.
  form.hidden = !window.PublicKeyCredential?.parseRequestOptionsFromJSON
  if (form.hidden) break
  form.classList.remove('needs-script')
  let waiting = new AbortController()
  const say = (error) => {
    const place = form.querySelector('[role=alert]')
    place.textContent = error.message
    place.hidden = false
  }
  const enter = async (mediation) => {
    waiting.abort()
    waiting = new AbortController()
    const { publicKey } = await post('/auth/passkey/login-options', {}, false)
    const options = PublicKeyCredential.parseRequestOptionsFromJSON(publicKey)
    const credential = await navigator.credentials.get({ publicKey: options, mediation, signal: waiting.signal })
    await post('/auth/passkey/login-verify', { credential: credential.toJSON() }, false)
    // A preference and no proof: the sign-in page marks the method that was used last.
    document.cookie = 'janua_last_method=passkey; Path=/; SameSite=Lax; Max-Age=31536000'
    location.assign(form.dataset.continue)
  }
  const quietly = (error) => ['AbortError', 'NotAllowedError'].includes(error.name) || say(error)
  form.querySelector('button').addEventListener('click', () => enter('optional').catch(quietly))
  PublicKeyCredential.isConditionalMediationAvailable?.().then((can) => can && enter('conditional').catch(quietly))
}

// A new passkey, in the account.
for (const form of document.querySelectorAll('form.new-passkey')) {
  if (!window.PublicKeyCredential?.parseCreationOptionsFromJSON) break
  form.hidden = false
  form.addEventListener('submit', async (event) => {
    event.preventDefault()
    const [name, proof] = form.querySelectorAll('input')
    const alert = form.querySelector('[role=alert]')
    alert.hidden = true
    try {
      const { publicKey } = await post('/auth/passkey/register-options', proof?.value ? { [proof.name]: proof.value } : {})
      const options = PublicKeyCredential.parseCreationOptionsFromJSON(publicKey)
      const credential = await navigator.credentials.create({ publicKey: options })
      const deviceName = name.value.trim() || undefined
      await post('/auth/passkey/register-verify', { credential: credential.toJSON(), deviceName })
      location.assign(location.pathname)
    } catch (error) {
      if (error.code === 'reauthentication_required') form.querySelector('.proof').hidden = false
      alert.textContent = error.name === 'NotAllowedError' ? 'No passkey was created.' : error.message
      alert.hidden = false
    }
  })
}

// A picture: the interface says where it may go, and it is sent there.
for (const form of document.querySelectorAll('form.upload')) {
  form.hidden = false
  const status = form.querySelector('[role=status]')
  form.querySelector('input').addEventListener('change', async ({ target }) => {
    const [file] = target.files
    if (!file) return
    status.textContent = 'Uploading…'
    try {
      const offer = await post(form.dataset.to, { contentType: file.type, size: file.size })
      const sent = await fetch(offer.uploadUrl, { method: offer.method ?? 'PUT', headers: offer.headers ?? {}, body: file })
      if (!sent.ok) throw new Error((await sent.json().catch(() => ({}))).title ?? 'The picture was refused.')
      status.textContent = 'Done.'
      location.assign(location.pathname)
    } catch (error) {
      status.textContent = error.message
    }
  })
}

// The page that waits for an app's first sign-in asks for its users until there is one.
for (const place of document.querySelectorAll('[data-first-sign-in]')) {
  const look = async () => {
    const answer = await fetch(place.dataset.firstSignIn).catch(() => undefined)
    if (answer?.status === 401) await fetch('/auth/refresh', { method: 'POST' })
    const said = answer?.ok ? await answer.json() : undefined
    if (said?.users?.length) location.reload()
    else setTimeout(look, 3000)
  }
  setTimeout(look, 3000)
}

// Buttons that copy: the field or block with an id, or a text of their own.
for (const button of document.querySelectorAll('[data-copy], [data-copy-text]')) button.hidden = false
document.addEventListener('click', async (event) => {
  const button = event.target.closest('[data-copy], [data-copy-text]')
  if (!button) return
  const from = document.getElementById(button.dataset.copy)
  await navigator.clipboard.writeText(button.dataset.copyText ?? from.value ?? from.textContent)
  const name = button.ariaLabel
  button.classList.add('copied')
  button.ariaLabel = 'Copied'
  setTimeout(() => {
    button.classList.remove('copied')
    button.ariaLabel = name
  }, 1500)
})

// A password can be looked at while it is typed.
for (const button of document.querySelectorAll('[data-shows]')) {
  const input = document.getElementById(button.dataset.shows)
  button.hidden = false
  button.addEventListener('click', () => {
    const isShown = input.type === 'text'
    input.type = isShown ? 'password' : 'text'
    button.ariaPressed = String(!isShown)
    input.focus()
  })
}

// The address of a page says nothing about the form that led to it.
const here = new URL(location)
if (here.searchParams.has('told')) {
  here.searchParams.delete('told')
  history.replaceState(history.state, '', here)
}

// Escape closes a dialog that is a page of its own.
document.addEventListener('keydown', (event) => {
  const close = event.key === 'Escape' && document.querySelector('.veil [data-close]')
  if (close) location.assign(close.href)
})

// Search as a palette: `/` or Ctrl-K opens it, arrows walk through what was found. It shows the search page's own results.
const find = document.getElementById('find')
if (find) {
  const dialog = document.createElement('dialog')
  dialog.className = 'palette'
  dialog.ariaLabel = 'Search'
  const form = document.createElement('form')
  form.className = 'toolbar'
  form.action = '/console/search'
  form.role = 'search'
  const box = Object.assign(document.createElement('div'), { className: 'with-icon' })
  box.append(document.querySelector('.find-go .i').cloneNode(true))
  const input = Object.assign(document.createElement('input'), {
    className: 'input', name: 'q', type: 'search', maxLength: 100, placeholder: 'Search apps, people and pages', ariaLabel: 'Search',
  })
  box.append(input)
  form.append(box)
  const results = document.createElement('div')
  results.ariaLive = 'polite'
  dialog.append(form, results)
  document.body.append(dialog)
  document.querySelector('.find .key').hidden = false
  let asked = 0
  input.addEventListener('input', () => {
    const mine = ++asked
    setTimeout(async () => {
      if (mine !== asked) return
      const answer = await fetch('/console/search?q=' + encodeURIComponent(input.value))
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html')
      const found = page.getElementById('results')
      if (mine === asked) results.replaceChildren(...(found && input.value.trim() ? document.importNode(found, true).children : []))
    }, 150)
  })
  dialog.addEventListener('keydown', (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (!step) return
    event.preventDefault()
    const stops = [input, ...results.querySelectorAll('a')]
    stops[(stops.indexOf(document.activeElement) + step + stops.length) % stops.length]?.focus()
  })
  dialog.addEventListener('click', (event) => event.target === dialog && dialog.close())
  document.addEventListener('keydown', (event) => {
    const isTyping = event.target.closest('input, textarea, select, dialog')
    const opens = (event.key === '/' && !isTyping) || (event.key === 'k' && (event.ctrlKey || event.metaKey))
    if (!opens || document.querySelector('.veil')) return
    event.preventDefault()
    if (!dialog.open) dialog.showModal()
    input.select()
  })
}

// Tables that say so are sorted by a click on the name of a column.
for (const table of document.querySelectorAll('table[data-sortable]')) {
  for (const [at, head] of [...table.tHead.rows[0].cells].entries()) {
    const button = Object.assign(document.createElement('button'), { type: 'button', textContent: head.textContent })
    head.replaceChildren(button)
    button.addEventListener('click', () => {
      const isUp = head.ariaSort !== 'ascending'
      for (const other of table.tHead.rows[0].cells) other.removeAttribute('aria-sort')
      head.setAttribute('aria-sort', isUp ? 'ascending' : 'descending')
      const text = (row) => row.cells[at].querySelector('time')?.dateTime ?? row.cells[at].textContent.trim()
      const order = (a, b) => text(a).localeCompare(text(b), undefined, { numeric: true }) * (isUp ? 1 : -1)
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort(order))
    })
  }
}

// Long lists go on where they are.
document.addEventListener('click', async (event) => {
  const link = event.target.closest('.more a')
  const rows = document.getElementById('rows')
  if (!link || !rows) return
  event.preventDefault()
  const answer = await fetch(link.href)
  const next = new DOMParser().parseFromString(await answer.text(), 'text/html')
  for (const row of next.querySelectorAll('#rows > *')) rows.append(document.importNode(row, true))
  const more = next.querySelector('.more a')
  if (more) link.href = more.href
  else link.parentElement.remove()
  tellTimes(rows)
  for (const button of rows.querySelectorAll('[data-copy-text]')) button.hidden = false
})

// Moments in the reader's own zone and words: how long ago while it is recent, and the whole moment to point at.
function tellTimes(place) {
  const ago = new Intl.RelativeTimeFormat(undefined, { numeric: 'auto', style: 'short' })
  for (const time of place.querySelectorAll('time[datetime]')) {
    const moment = new Date(time.dateTime)
    if (isNaN(moment)) continue
    const seconds = (moment - Date.now()) / 1000
    time.title = moment.toLocaleString(undefined, { dateStyle: 'full', timeStyle: 'long' })
    if (Math.abs(seconds) < 60) time.textContent = seconds > 0 ? 'in a moment' : 'just now'
    else if (Math.abs(seconds) < 3600) time.textContent = ago.format(Math.round(seconds / 60), 'minute')
    else if (Math.abs(seconds) < 86400) time.textContent = ago.format(Math.round(seconds / 3600), 'hour')
    else time.textContent = moment.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' })
  }
}
tellTimes(document)
