// The reference: finding an operation, and trying it out. Without this everything can be read all the same.
'use strict'

// Whatever holds every word that was typed stays.
for (const form of document.querySelectorAll('.filter')) {
  const [box, said] = [form.querySelector('input'), form.querySelector('[role=status]')]
  const all = [...document.querySelectorAll('[data-find]')]
  form.hidden = false
  box.addEventListener('input', () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean)
    for (const one of all) {
      const text = one.dataset.find.toLowerCase()
      one.hidden = !words.every((word) => text.includes(word))
    }
    for (const group of document.querySelectorAll('[data-group]')) {
      group.hidden = !group.querySelector('[data-find]:not([hidden])')
    }
    // What is listed and shown is one operation.
    const count = (some) => new Set(some.map((one) => one.dataset.find)).size
    said.textContent = words.length ? `${count(all.filter((one) => !one.hidden))} of ${count(all)}` : ''
  })
}

const make = (tag, fields = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), fields)
  element.append(...children)
  return element
}

// The access cookie lives shortly: once it is renewed, and then whoever is not let in is not signed in.
async function send(path, options) {
  const answer = await fetch(path, options)
  if (answer.status !== 401 || options.headers.has('authorization')) return answer
  const headers = { 'content-type': 'application/json' }
  const renewed = await fetch('/auth/refresh', { method: 'POST', headers, body: '{}' })
  return renewed.ok ? fetch(path, options) : answer
}

async function shown(answer, took) {
  if (answer.type === 'opaqueredirect') {
    return [make('p', { textContent: 'The answer is a redirect. A script cannot see where it leads.' })]
  }
  const parts = [make('p', {}, make('strong', { textContent: `${answer.status} ${answer.statusText}`.trim() }),
    ` after ${Math.round(took)} ms`)]
  if (answer.status === 401) {
    const there = `/sign-in?continue=${encodeURIComponent(location.pathname)}`
    parts.push(make('p', {}, make('a', { href: there, className: 'link', textContent: 'Sign in' }), ', then try again.'))
  }
  const headers = [...answer.headers].map(([name, value]) => `${name}: ${value}`).join('\n')
  parts.push(make('details', {}, make('summary', { textContent: 'Headers' }),
    make('pre', { className: 'code', tabIndex: 0, textContent: headers, ariaLabel: 'Headers of the answer' })))
  const kind = answer.headers.get('content-type') ?? ''
  if (!/json|text|xml|yaml/.test(kind)) {
    const { size } = await answer.blob()
    if (size) parts.push(make('p', { textContent: `${size} bytes of ${kind || 'unknown type'}` }))
    return parts
  }
  let text = await answer.text()
  try {
    text = JSON.stringify(JSON.parse(text), null, 2)
  } catch { /* It is no JSON, and is shown as it came. */ }
  parts.push(make('pre', { className: 'code answer', tabIndex: 0, textContent: text, ariaLabel: 'Body of the answer' }))
  return parts
}

function form(id, wish) {
  const inputs = wish.fields.map((field, number) => {
    const input = make('input', { type: 'text', className: 'input', id: `${id}-${number}`, value: field.value, required: field.required,
      autocomplete: 'off', spellcheck: false, placeholder: field.hint ?? '' })
    const label = make('label', { htmlFor: input.id }, make('code', { textContent: field.name }), ` (${field.in})`)
    return { field, input, label }
  })
  const body = wish.body && make('textarea', { className: 'textarea mono', rows: 8, id: `${id}-body`, value: wish.body.text, spellcheck: false })
  const button = make('button', { type: 'submit', className: wish.method === 'DELETE' ? 'btn btn-danger' : 'btn btn-primary', textContent: `Send ${wish.method}` })
  const output = make('div', { role: 'status' })
  const deletes = wish.method === 'DELETE'
  const real = wish.method === 'GET' ? 'Sent with your session.'
    : 'Sent with your session. Changes are real.'
  const whole = make('form', {}, make('p', { className: 'hint', textContent: real }),
    ...inputs.flatMap(({ label, input }) => [label, input]),
    ...(body ? [make('label', { htmlFor: body.id, textContent: `Body (${wish.body.type})` }), body] : []), button, output)
  let sure = false
  whole.addEventListener('submit', async (event) => {
    event.preventDefault()
    if (deletes && !sure) {
      sure = true
      button.textContent = 'Delete for good'
      output.replaceChildren(make('p', { className: 'bad', textContent: 'This deletes for real. Press again to confirm.' }))
      return
    }
    sure = false
    button.textContent = `Send ${wish.method}`
    let path = wish.path
    const [query, headers] = [new URLSearchParams(), new Headers()]
    for (const { field, input } of inputs) {
      if (field.in === 'path') path = path.replace(`{${field.name}}`, encodeURIComponent(input.value))
      else if (!input.value) continue
      else if (field.in === 'header') headers.set(field.name, input.value)
      else query.append(field.name, input.value)
    }
    if (body) headers.set('content-type', wish.body.type)
    const options = { method: wish.method, headers, redirect: 'manual', body: body ? body.value : undefined }
    button.disabled = true
    output.replaceChildren()
    const started = performance.now()
    try {
      const answer = await send(query.size ? `${path}?${query}` : path, options)
      output.replaceChildren(...(await shown(answer, performance.now() - started)))
    } catch (error) {
      output.replaceChildren(make('p', { className: 'bad', textContent: `No answer: ${error.message}` }))
    }
    button.disabled = false
  })
  return whole
}

for (const place of document.querySelectorAll('.try')) {
  const wish = JSON.parse(place.dataset.try)
  const button = make('button', { type: 'button', className: 'btn btn-s', textContent: 'Try it', ariaExpanded: 'false' })
  button.append(make('span', { className: 'sr', textContent: `: ${wish.method} ${wish.path}` }))
  button.addEventListener('click', () => {
    const made = place.querySelector('form') ?? place.appendChild(form(place.dataset.id, wish))
    made.hidden = button.ariaExpanded === 'true'
    button.ariaExpanded = String(!made.hidden)
    if (!made.hidden) made.querySelector('input, textarea, button').focus()
  })
  place.append(button)
}
