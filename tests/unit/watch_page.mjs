// Answers questions about the modules of watching that need no browser.

import { readFileSync } from "node:fs";

const given = JSON.parse(readFileSync(0, "utf-8"));
const module = (name) => import(new URL(`${name}.js`, given.folder));
const { readEvents } = await module("api");
const { nearest, valueAt } = await module("version_strip");
const { choicesOf, numberOf, worstOf } = await module("watch");

/** The events of an answer that arrives in parts, and the error in place of one. */
async function events(parts, status) {
  const encoder = new TextEncoder();
  const body = new ReadableStream({
    start(controller) {
      for (const part of parts) controller.enqueue(encoder.encode(part));
      controller.close();
    },
  });
  globalThis.fetch = async () => new Response(body, { status });
  const found = [];
  try {
    await readEvents("v1/x", {}, (kind, data) => found.push([kind, data]), new AbortController().signal);
  } catch (error) {
    return { found, error: error.message, status: error.status };
  }
  return { found };
}

const answers = { events, nearest, valueAt, choicesOf, numberOf, worstOf };
const found = [];
for (const [name, ...values] of given.questions) found.push((await answers[name](...values)) ?? null);
console.log(JSON.stringify(found));
