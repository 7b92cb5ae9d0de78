// What the account and the console add to janua.js, which stands before it.
'use strict'

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

// Files: dropped onto the form or chosen in it, sent one after the other, each with its progress.
for (const form of document.querySelectorAll('form.drop')) {
  const [input, list] = [form.querySelector('input[type=file]'), form.querySelector('.drop-list')]
  input.multiple = true
  form.classList.add('is-live')
  // The page was drawn again after an upload: say what came.
  const uploaded = sessionStorage.getItem('uploaded')
  sessionStorage.removeItem('uploaded')
  if (uploaded) list.append(Object.assign(document.createElement('li'), { className: 'strong', textContent: `Uploaded: ${uploaded}` }))
  const sendOne = (file, mayRenew = true) =>
    new Promise((resolve, reject) => {
      const row = document.createElement('li')
      const bar = Object.assign(document.createElement('progress'), { className: 'bar', max: file.size || 1, value: 0 })
      bar.setAttribute('aria-label', file.name)
      row.append(file.name, bar)
      list.append(row)
      const more = new URLSearchParams({ name: file.name })
      for (const field of form.querySelectorAll('select, input[type=hidden]')) more.set(field.name, field.value)
      const request = new XMLHttpRequest()
      request.open('POST', `${form.dataset.to}?${more}`)
      request.setRequestHeader('content-type', file.type || 'application/octet-stream')
      request.upload.addEventListener('progress', (event) => (bar.value = event.loaded))
      request.addEventListener('error', () => reject(new Error('The connection broke off.')))
      request.addEventListener('load', async () => {
        if (request.status < 300) return resolve()
        row.remove()
        if (request.status === 401 && mayRenew && (await fetch('/auth/refresh', { method: 'POST' })).ok) {
          return sendOne(file, false).then(resolve, reject)
        }
        let said = {}
        try { said = JSON.parse(request.responseText) } catch {}
        reject(new Error(`${file.name}: ${said.detail ?? said.title ?? 'The upload was refused.'}`))
      })
      request.send(file)
    })
  const sendAll = async (files) => {
    const alert = form.querySelector('[role=alert]')
    alert.hidden = true
    try {
      for (const file of files) await sendOne(file)
      if (!files.length) return
      sessionStorage.setItem('uploaded', files.map((file) => file.name).join(', '))
      location.assign(location.href)
    } catch (error) {
      alert.textContent = error.message
      alert.hidden = false
    }
  }
  input.addEventListener('change', () => sendAll([...input.files]))
  form.addEventListener('submit', (event) => { event.preventDefault(); sendAll([...input.files]) })
  for (const name of ['dragenter', 'dragover']) {
    form.addEventListener(name, (event) => { event.preventDefault(); form.classList.add('is-over') })
  }
  for (const name of ['dragleave', 'drop']) form.addEventListener(name, () => form.classList.remove('is-over'))
  form.addEventListener('drop', (event) => { event.preventDefault(); sendAll([...event.dataTransfer.files]) })
}

// A picture: the interface says where it may go, and it is sent there.
for (const form of document.querySelectorAll('.upload')) {
  form.querySelector('[type=submit]').hidden = true
  const status = form.querySelector('[role=status]')
  form.querySelector('[type=file]').addEventListener('change', async ({ target }) => {
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

// A field for a time zone offers those that the browser knows.
for (const list of document.querySelectorAll('#time-zones')) {
  list.append(...(Intl.supportedValuesOf?.('timeZone') ?? []).map((value) => Object.assign(document.createElement('option'), { value })))
}

// Deploying: an archive is sent as it is, a folder is packed here first (tar and gzip), as it is read.
for (const form of document.querySelectorAll('form[data-deploy]')) {
  const [drop, input] = [form.querySelector('[data-drop]'), form.querySelector('input[type=file]')]
  const [title, status] = [form.querySelector('[data-drop-title]'), form.querySelector('[data-deploy-status]')]
  const picker = Object.assign(document.createElement('input'), { type: 'file', webkitdirectory: true, hidden: true })
  let chosen
  const canPack = 'CompressionStream' in window
  if (canPack) {
    title.textContent = 'Drop a folder or a .tar.gz archive'
    form.querySelector('[data-folder]').hidden = false
  }
  form.append(picker)
  input.required = false
  const choose = (files, name) => {
    chosen = files
    title.textContent = `${name} (${files.length} ${files.length === 1 ? 'file' : 'files'})`
    status.textContent = ''
  }
  const isArchive = (file) => /\.(tgz|tar\.gz|gz)$/i.test(file.name)
  input.addEventListener('change', () => input.files[0] && choose([{ path: input.files[0].name, file: input.files[0] }], input.files[0].name))
  form.querySelector('[data-choose-folder]').addEventListener('click', () => picker.click())
  picker.addEventListener('change', () => {
    const files = [...picker.files].map((file) => ({ path: file.webkitRelativePath.split('/').slice(1).join('/'), file }))
    if (files.length) choose(files, picker.files[0].webkitRelativePath.split('/')[0])
  })
  for (const name of ['dragover', 'dragleave', 'drop']) {
    drop.addEventListener(name, (event) => {
      event.preventDefault()
      drop.classList.toggle('over', name === 'dragover')
    })
  }
  drop.addEventListener('drop', async ({ dataTransfer }) => {
    const entries = [...dataTransfer.items].map((item) => item.webkitGetAsEntry()).filter(Boolean)
    const files = []
    const walk = async (entry, path) => {
      if (entry.isFile) files.push({ path, file: await new Promise((done, no) => entry.file(done, no)) })
      else {
        const reader = entry.createReader()
        for (;;) {
          const some = await new Promise((done, no) => reader.readEntries(done, no))
          if (!some.length) break
          for (const one of some) await walk(one, path ? `${path}/${one.name}` : one.name)
        }
      }
    }
    for (const entry of entries) await walk(entry, entries.length === 1 && entry.isDirectory ? '' : entry.name)
    if (files.length) choose(files, entries[0].name)
  })
  form.addEventListener('submit', async (event) => {
    if (!chosen) {
      event.preventDefault()
      status.textContent = 'Choose a folder or an archive first.'
      return
    }
    const isPacked = chosen.length === 1 && isArchive(chosen[0].file)
    if (!isPacked && !canPack) return
    event.preventDefault()
    const button = form.querySelector('button:not([type=button])')
    button.disabled = true
    status.textContent = isPacked ? 'Uploading…' : 'Packing…'
    try {
      const body = isPacked ? chosen[0].file : await pack(chosen)
      status.textContent = 'Uploading…'
      const target = form.querySelector('[name=target]:checked')?.value ?? 'production'
      const send = () => fetch(`${form.dataset.deploy}?target=${target}`, { method: 'POST', headers: { 'content-type': 'application/gzip' }, body })
      let answer = await send()
      if (answer.status === 401 && (await fetch('/auth/refresh', { method: 'POST' })).ok) answer = await send()
      const said = await answer.json()
      if (!answer.ok) throw new Error([said.title, said.detail].filter(Boolean).join(' '))
      location.assign(`${form.dataset.then}/${said.id}`)
    } catch (error) {
      status.textContent = error.message
      button.disabled = false
    }
  })
}

// A tar of files, gzip-compressed. Names longer than 100 bytes get a record of their own (PAX).
async function pack(files) {
  const text = new TextEncoder()
  const header = (name, size, type) => {
    const block = new Uint8Array(512)
    const put = (at, value) => block.set(text.encode(value), at)
    block.set(text.encode(name).subarray(0, 100), 0)
    put(100, '0000644\0')
    put(108, '0000000\0')
    put(116, '0000000\0')
    put(124, size.toString(8).padStart(11, '0') + '\0')
    put(136, '00000000000\0')
    put(148, '        ')
    put(156, type)
    put(257, 'ustar\x0000')
    put(148, block.reduce((sum, byte) => sum + byte, 0).toString(8).padStart(6, '0') + '\0 ')
    return block
  }
  const padded = (size) => new Uint8Array((512 - (size % 512)) % 512)
  const parts = []
  for (const { path, file } of files) {
    if (text.encode(path).length > 100) {
      const line = ` path=${path}\n`
      let length = text.encode(line).length
      length += String(length + String(length).length).length
      const record = text.encode(length + line)
      parts.push(header('PaxHeader', record.length, 'x'), record, padded(record.length))
    }
    parts.push(header(path, file.size, '0'), file, padded(file.size))
  }
  parts.push(new Uint8Array(1024))
  return new Response(new Blob(parts).stream().pipeThrough(new CompressionStream('gzip'))).blob()
}

// A part of a page that goes on by itself, such as the state of a domain: fetched anew every so many seconds while it says so.
function keepLive(part) {
  setTimeout(async () => {
    const answer = document.hidden ? null : await fetch(location.href).catch(() => null)
    if (!answer || !answer.ok) return keepLive(part)
    const next = new DOMParser().parseFromString(await answer.text(), 'text/html').getElementById(part.id)
    if (!next || part.contains(document.activeElement)) return keepLive(part)
    const fresh = document.importNode(next, true)
    part.replaceWith(fresh)
    tellTimes(fresh)
    for (const button of fresh.querySelectorAll('[data-copy], [data-copy-text]')) button.hidden = false
    if (fresh.dataset.live) keepLive(fresh)
  }, part.dataset.live * 1000)
}
for (const part of document.querySelectorAll('[data-live][id]')) keepLive(part)
