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

// Passkeys. The browser offers them in the address field, and behind a button.
async function post(path, body, headers = {}) {
  const answer = await fetch(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  })
  const said = answer.status === 204 ? {} : await answer.json()
  if (!answer.ok) throw new Error([said.title, said.detail].filter(Boolean).join(' '))
  return said
}

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
    const { publicKey } = await post('/auth/passkey/login-options', {})
    const options = PublicKeyCredential.parseRequestOptionsFromJSON(publicKey)
    const credential = await navigator.credentials.get({ publicKey: options, mediation, signal: waiting.signal })
    await post('/auth/passkey/login-verify', { credential: credential.toJSON() })
    location.assign(form.dataset.continue || '/sign-in')
  }
  const quietly = (error) => ['AbortError', 'NotAllowedError'].includes(error.name) || say(error)
  form.querySelector('button').addEventListener('click', () => enter('optional').catch(quietly))
  PublicKeyCredential.isConditionalMediationAvailable?.().then((can) => can && enter('conditional').catch(quietly))
}

// Moments in the reader's own zone and words.
for (const time of document.querySelectorAll('time[datetime]')) {
  const moment = new Date(time.dateTime)
  if (!isNaN(moment)) time.textContent = moment.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' })
}
