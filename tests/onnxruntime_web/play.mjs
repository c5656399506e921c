// Answers rows by a model in onnxruntime-web, which runs as WebAssembly in node too.
//
// stdin: modules, the folder with node_modules; model, base64; inputs, each with its width and the
// float32 of all rows in base64; agents, the agent of each row; frames, the number of rows of each
// run; carried, the width and the output of each input of state, zero for an agent that is new.
// stdout: each output with the float32 of all rows in base64.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const given = JSON.parse(readFileSync(0, "utf-8"));
const { env, InferenceSession, Tensor } = createRequire(path.join(given.modules, "here.js"))(
  "onnxruntime-web",
);
env.wasm.numThreads = 1;

function floats(text) {
  const bytes = new Uint8Array(Buffer.from(text, "base64"));
  return new Float32Array(bytes.buffer);
}

const session = await InferenceSession.create(new Uint8Array(Buffer.from(given.model, "base64")), {
  executionProviders: ["wasm"],
});
const inputs = Object.entries(given.inputs).map(([name, { width, rows }]) => {
  return { name, width, rows: floats(rows) };
});
const memories = Object.entries(given.carried).map(([name, { output, width }]) => {
  return { name, output, width, ofAgents: new Map() };
});
const answers = {};
let start = 0;
for (const count of given.frames) {
  const agents = given.agents.slice(start, start + count);
  const feeds = {};
  for (const { name, width, rows } of inputs) {
    const part = rows.slice(start * width, (start + count) * width);
    feeds[name] = new Tensor("float32", part, [count, width]);
  }
  for (const { name, width, ofAgents } of memories) {
    const before = new Float32Array(count * width);
    agents.forEach((agent, row) => before.set(ofAgents.get(agent) ?? [], row * width));
    feeds[name] = new Tensor("float32", before, [count, width]);
  }
  const results = await session.run(feeds);
  for (const [name, { data }] of Object.entries(results)) {
    (answers[name] ??= []).push(Buffer.from(Float32Array.from(data).buffer));
  }
  for (const { output, width, ofAgents } of memories) {
    const after = results[output].data;
    agents.forEach((agent, row) => ofAgents.set(agent, after.slice(row * width, (row + 1) * width)));
  }
  start += count;
}
for (const [name, parts] of Object.entries(answers)) {
  answers[name] = Buffer.concat(parts).toString("base64");
}
process.stdout.write(JSON.stringify(answers));
