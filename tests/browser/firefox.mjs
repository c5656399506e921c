// Opens an address in Firefox, which puppeteer drives by WebDriver BiDi, and does what a test asks.
//
// stdin: modules, the folder with node_modules; program, that of Firefox; address; width and height,
// of the window; patience, in milliseconds, of each step; steps, done one after the other:
// {see} waits until an expression of JavaScript is true in the page, {say} asks for the value of
// one, {click} clicks the element of a selector, {press} presses a key.
// stdout: values, of the steps that ask for one; complaints, which are errors of the console, of
// scripts and of the policy, failed requests, and requests outside of the folder of the address.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const EVERY = 50; // milliseconds between two looks
const given = JSON.parse(readFileSync(0, "utf-8"));
const { default: puppeteer } = await import(
  createRequire(path.join(given.modules, "here.js")).resolve("puppeteer-core")
);

/** Collect what goes wrong in a page, before it opens anything. */
async function listen(page, complaints) {
  const root = new URL(".", given.address).href;
  page.on("console", (message) => {
    if (message.type() === "error") complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("requestfailed", (request) => {
    complaints.push(`${request.url()}: ${request.failure()?.errorText}`);
  });
  page.on("request", (request) => {
    const isOwn = ["data:", "blob:", root].some((begin) => request.url().startsWith(begin));
    if (!isOwn) complaints.push(`asked for ${request.url()}`);
  });
  await page.evaluateOnNewDocument(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`);
    });
  });
}

/** Do one step; return the value that it asks for, undefined for none. */
async function take(page, step) {
  if (step.say !== undefined) return page.evaluate(step.say);
  if (step.click !== undefined) await page.click(step.click);
  if (step.press !== undefined) await page.keyboard.press(step.press);
  if (step.see !== undefined) await seen(page, step.see);
  return undefined;
}

async function seen(page, expression) {
  const end = Date.now() + given.patience;
  while (!(await page.evaluate(`Boolean(${expression})`))) {
    if (Date.now() > end) throw new Error(`this did not become true in the page: ${expression}`);
    await sleep(EVERY);
  }
}

const browser = await puppeteer.launch({
  browser: "firefox",
  executablePath: given.program,
  headless: true,
  defaultViewport: { width: given.width, height: given.height },
});
const values = [];
const complaints = [];
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(given.patience);
  await listen(page, complaints);
  await page.goto(given.address, { waitUntil: "domcontentloaded" });
  for (const step of given.steps) {
    const value = await take(page, step);
    if (step.say !== undefined) values.push(value ?? null);
  }
} finally {
  if (complaints.length) console.error(complaints.join("\n"));
  await browser.close();
}
console.log(JSON.stringify({ values, complaints }));
