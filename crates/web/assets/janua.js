// The little script that every page has. Without it everything works but passkeys and the proof of work.
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

// The buttons of its form wait for it, also those elsewhere on the page.
for (const place of document.querySelectorAll('form .captcha')) {
  const { form } = place.querySelector('input')
  const challenge = JSON.parse(place.dataset.challenge)
  const buttons = [...form.elements].filter((element) => element.type === 'submit')
  const asksPassword = form.querySelector('[type=password]')
  const then = place.dataset.then || (asksPassword ? 'Enter your password again.' : 'Continue.')
  const say = (text) => (place.querySelector('[role=status] p').textContent = text)
  for (const button of buttons) button.disabled = true
  solve(challenge)
    .then((solution) => {
      place.querySelector('input').value = btoa(JSON.stringify({ challenge, solution }))
      say(`Security check passed. ${then}`)
    })
    .catch(() => say('The security check failed. Reload the page, or try again in 15 minutes.'))
    .finally(() => buttons.forEach((button) => (button.disabled = false)))
}

// One request to the interface. Who was away for a while has an access token that ran out: it is renewed once. A proof of
// work is done once.
async function post(path, body, mayRenew = true, pass = '') {
  const answer = await fetch(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(pass && { 'x-service-captcha-pass': pass }) },
    body: JSON.stringify(body),
  })
  if (answer.status === 401 && mayRenew && (await fetch('/auth/refresh', { method: 'POST' })).ok) {
    return post(path, body, false)
  }
  const said = answer.status === 204 ? {} : await answer.json()
  if (said.code === 'captcha_required' && said.challenge && !pass) {
    const solved = { challenge: said.challenge, solution: await solve(said.challenge) }
    const { captchaPass } = await post('/auth/captcha/verify', { token: btoa(JSON.stringify(solved)) }, false)
    return post(path, body, mayRenew, captchaPass)
  }
  if (!answer.ok) throw Object.assign(new Error([said.title, said.detail].filter(Boolean).join(' ')), { code: said.code })
  return said
}

// Passkeys. The browser offers them in the email field, and behind a button.

for (const form of document.querySelectorAll('.passkey')) {
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

// Whoever signs in says which time zone they are in: mails tell in it when something happened.
for (const input of document.getElementsByName('time_zone')) {
  input.value ||= Intl.DateTimeFormat().resolvedOptions().timeZone ?? ''
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
