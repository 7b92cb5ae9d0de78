// Chromium, by the program that the other tests of the repository drive it with.
import { createRequire } from 'node:module'

const require = createRequire(`${process.env.TEST_NODE}/package.json`)
export const express = () => require.resolve('express/package.json')

export async function startChromium() {
  const { chromium } = require('playwright-core')
  return chromium.launch({
    executablePath: process.env.TEST_CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--disable-background-networking', '--disable-sync',
      '--disable-component-update', '--no-first-run'],
  })
}
