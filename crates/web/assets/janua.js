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
    place.querySelector('[role=status]').textContent = 'Thank you. Now try again.'
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

// Passkeys. The browser offers them in the address field, and behind a button.

for (const form of document.querySelectorAll('form.passkey')) {
  if (!window.PublicKeyCredential?.parseRequestOptionsFromJSON) break
  form.hidden = false
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
    location.assign(form.dataset.continue || '/account')
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
      alert.textContent = error.name === 'NotAllowedError' ? 'No passkey was made.' : error.message
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
    status.textContent = 'Sending…'
    try {
      const offer = await post(form.dataset.to, { contentType: file.type, size: file.size })
      const sent = await fetch(offer.uploadUrl, { method: offer.method ?? 'PUT', headers: offer.headers ?? {}, body: file })
      if (!sent.ok) throw new Error((await sent.json().catch(() => ({}))).title ?? 'The picture was not taken.')
      status.textContent = 'Done.'
      location.assign(location.pathname)
    } catch (error) {
      status.textContent = error.message
    }
  })
}

// What is shown once can be copied.
for (const button of document.querySelectorAll('button.copy')) {
  button.addEventListener('click', async () => {
    const from = document.getElementById(button.dataset.copy)
    await navigator.clipboard.writeText(from.value ?? from.textContent)
    button.textContent = 'Copied'
  })
}

// Long lists go on where they are.
document.addEventListener('click', async (event) => {
  const link = event.target.closest('.more a')
  const rows = document.getElementById('rows')
  if (!link || !rows) return
  event.preventDefault()
  const answer = await fetch(link.href)
  const next = new DOMParser().parseFromString(await answer.text(), 'text/html')
  const first = next.querySelector('#rows > *')
  for (const row of next.querySelectorAll('#rows > *')) rows.append(document.importNode(row, true))
  const more = next.querySelector('.more a')
  if (more) link.href = more.href
  else link.parentElement.remove()
  tellTimes(rows)
  nameCells(rows.closest('table'))
  if (first) rows.lastElementChild.scrollIntoView({ block: 'nearest' })
})

// Moments in the reader's own zone and words.
function tellTimes(place) {
  for (const time of place.querySelectorAll('time[datetime]')) {
    const moment = new Date(time.dateTime)
    if (!isNaN(moment)) time.textContent = moment.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' })
  }
}
tellTimes(document)

// On a phone a row is a card, and each cell says what it is.
function nameCells(table) {
  const names = Array.from(table.querySelectorAll('thead th'), (head) => head.querySelector('.unseen') ? '' : head.textContent)
  for (const row of table.querySelectorAll('tbody tr')) {
    Array.from(row.cells, (cell, index) => index > 0 && names[index] && (cell.dataset.name = names[index]))
  }
}
for (const table of document.querySelectorAll('table')) nameCells(table)
