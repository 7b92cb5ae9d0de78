// How a page is examined: the HTML that the server sent, what axe finds, and whether anything is wider than the screen.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

const require = createRequire(process.env.TEST_NODE + '/package.json')
const { HtmlValidate } = require('html-validate')
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8')

// Ids of the reference have a dot; fields of lists repeat their name.
const html = new HtmlValidate({
  extends: ['html-validate:recommended'],
  rules: {
    // The line before the signature of an email.
    'no-trailing-whitespace': 'off',
    'doctype-style': ['error', { style: 'lowercase' }],
    'valid-id': ['error', { relaxed: true }],
    'form-dup-name': ['error', { shared: ['radio', 'button', 'reset', 'submit', 'checkbox'] }],
  },
})

// What is wrong with a document as it was sent.
export async function wrongHtml(text) {
  const report = await html.validateString(text)
  return report.results.flatMap(({ messages }) => messages).map(({ ruleId, message, line }) =>
    `${ruleId}: ${message}: ${text.split('\n')[line - 1].slice(0, 200)}`)
}

// What axe finds on a page as it is shown: colors and sizes that were just changed are drawn first.
export async function barriers(page) {
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))))
  await page.evaluate(axe)
  const { violations } = await page.evaluate(() => window.axe.run())
  return violations.map((found) => [found.id, found.nodes[0].html])
}

// By how many pixels a page is too wide for its window, and the first element that is.
export const excess = (page) => page.evaluate(() => {
  const over = document.documentElement.scrollWidth - window.innerWidth
  const isOver = (one) => one.getBoundingClientRect().right > window.innerWidth + 0.5 && !one.closest('pre')
  return over > 0 ? [over, [...document.querySelectorAll('body *')].find(isOver)?.outerHTML.slice(0, 120)] : []
})
