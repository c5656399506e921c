// Policies that onnxruntime-web runs, which lies in the folder: for graphs that no kernel computes.

import { KernelPolicy } from "./kernel.js";

const SCRIPT = "./ort.wasm.min.mjs";
const BINARY = { mjs: "./ort-wasm-simd-threaded.mjs", wasm: "./ort-wasm-simd-threaded.wasm" };

/** Throw an Error where the runtime cannot be loaded, or a guest cannot wait for its promises. */
export function requireRuntime() {
  if (location.protocol === "file:") {
    throw new Error("its policy is run by onnxruntime-web, and browsers load that from servers only, such as python -m http.server");
  }
  if (typeof WebAssembly.Suspending !== "function") {
    throw new Error("this browser has no WebAssembly.Suspending, by which a guest waits for onnxruntime-web: take a newer one, as Chromium 137");
  }
}

/** A model in the runtime; one run at a time, as it takes them. */
export class RuntimeModel {
  #ort;
  #session;
  #rows;
  #last = Promise.resolve();

  /** Load the runtime from the folder, and a model. `rows` is the only number of rows that it takes, or null. */
  static async load(bytes, rows) {
    const ort = await import(new URL(SCRIPT, document.baseURI));
    ort.env.wasm.numThreads = 1;
    const addresses = Object.entries(BINARY).map(([kind, name]) => [kind, new URL(name, document.baseURI).href]);
    ort.env.wasm.wasmPaths = Object.fromEntries(addresses);
    return RuntimeModel.of(ort, bytes, rows);
  }

  /** Load a model into a runtime that is there. */
  static async of(ort, bytes, rows) {
    return new RuntimeModel(ort, await ort.InferenceSession.create(bytes, { executionProviders: ["wasm"] }), rows);
  }

  constructor(ort, session, rows) {
    this.#ort = ort;
    this.#session = session;
    this.#rows = rows;
  }

  /** The most rows of one run. */
  get mostRows() {
    return this.#rows ?? Infinity;
  }

  /** Compute outputs, by name, of inputs, [name, shape of a row, numbers of all rows]. */
  run(inputs, count) {
    const rows = this.#rows ?? count;
    const feeds = inputs.map(([name, shape, numbers]) => {
      const padded = new Float32Array((numbers.length / count) * rows);
      padded.set(numbers);
      return [name, new this.#ort.Tensor("float32", padded, [rows, ...shape])];
    });
    const run = () => this.#session.run(Object.fromEntries(feeds));
    const done = this.#last.then(run, run);
    this.#last = done;
    return done;
  }
}

/** A `KernelPolicy` whose model is run by a runtime, so that `act` returns a promise. */
export class RuntimePolicy extends KernelPolicy {
  /** As `KernelPolicy.load`; `model` is a RuntimeModel, which policies may share. */
  static async load(bytes, model, options) {
    const policy = await super.load(bytes, options);
    policy.model = model;
    return policy;
  }

  async act(batch) {
    const rows = this.rowsOf(batch);
    for (let first = 0; first < rows.count; ) {
      const count = this.#together(rows, first);
      await this.#answer(rows, first, count);
      first += count;
    }
    this.settle(rows);
  }

  /** Return how many rows from one on may be answered at once: an agent's next row needs its last. */
  #together({ count, seen }, first) {
    const most = Math.min(count - first, this.model.mostRows);
    const agents = new Set();
    for (let row = 0; row < most && this.keeps; row += 1) {
      if (agents.has(seen[first + row])) return row;
      agents.add(seen[first + row]);
    }
    return most;
  }

  async #answer(rows, first, count) {
    const inputs = this.inputs.map(({ name, shape, numbers }) => [name, shape, new Float32Array(count * numbers.length)]);
    for (let row = 0; row < count; row += 1) {
      this.enter(rows, first + row);
      this.inputs.forEach(({ numbers }, place) => inputs[place][2].set(numbers, row * numbers.length));
    }
    const found = await this.model.run(inputs, count);
    for (let row = 0; row < count; row += 1) {
      for (const { name, numbers } of this.outputs) {
        numbers.set(found[name].data.subarray(row * numbers.length, (row + 1) * numbers.length));
      }
      this.leave(rows, first + row);
    }
  }
}
