// Acts by a policy in JavaScript: stdin {folder, module, options, key, frames}, arrays in base64.
//
// With `runtime`, {modules, model, rows}, onnxruntime-web of the folder `modules` runs the model.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const given = JSON.parse(readFileSync(0, "utf-8"));
const { KernelPolicy } = await import(new URL("kernel.js", given.folder));

/** Return the numbers that base64 has. */
function numbers(text, Kind) {
  const bytes = new Uint8Array(Buffer.from(text, "base64"));
  return new Kind(bytes.buffer);
}

const options = { ...given.options, seed: BigInt(given.options.seed) };
const policy = await (given.runtime ? runtimePolicy(given.runtime) : KernelPolicy.load(numbers(given.module, Uint8Array), options));

async function runtimePolicy({ modules, model, rows }) {
  const { RuntimeModel, RuntimePolicy } = await import(new URL("runtime_policy.js", given.folder));
  const ort = createRequire(path.join(modules, "here.js"))("onnxruntime-web");
  ort.env.wasm.numThreads = 1;
  const loaded = await RuntimeModel.of(ort, numbers(model, Uint8Array), rows);
  return RuntimePolicy.load(numbers(given.module, Uint8Array), loaded, options);
}
const key = BigInt(given.key);
const ids = numbers(given.ids, BigUint64Array);
const features = numbers(given.features, Float32Array);
const states = numbers(given.states, Uint8Array);
const masks = given.masks === null ? null : numbers(given.masks, Uint8Array);
const actions = new Float32Array(ids.length * policy.numActions);
const values = new Float32Array(ids.length);
for (let start = 0; start < ids.length; start += given.agents) {
  const part = (array, width) => array.subarray(start * width, (start + given.agents) * width);
  await policy.act({
    key, ids: part(ids, 1), features: part(features, policy.numFeatures),
    states: part(states, 1), masks: masks && part(masks, policy.choices),
    actions: part(actions, policy.numActions), values: part(values, 1),
  });
}
const text = (array) => Buffer.from(array.buffer).toString("base64");
process.stdout.write(JSON.stringify({
  numFeatures: policy.numFeatures, numActions: policy.numActions,
  actions: text(actions), values: text(values),
}));
