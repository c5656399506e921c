// Plays a guest by the modules of the published page, and tells what it did in each frame.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

const given = JSON.parse(readFileSync(0, "utf-8"));
const { ArkGuest } = await import(`${given.folder}ark_guest.js`);
const { invalid } = await import(`${given.folder}ark_memory.js`);

const heard = [];
const frames = [];
const hash = (...parts) => {
  const made = createHash("md5");
  for (const part of parts) made.update(new Uint8Array(part.buffer, part.byteOffset, part.byteLength));
  return made.digest("hex");
};

/** Have a choice exist, and be allowed, as policies of hosts do. */
function held(choice, allowed, size) {
  const near = choice - Math.floor(choice) === 0.5 ? 2 * Math.round(choice / 2) : Math.round(choice);
  const settled = near === choice ? choice : near >= 0 && near < size ? Math.abs(near) : 0;
  const real = settled >= 0 && settled < size ? settled : 0;
  if (!Number.isFinite(choice)) return choice;
  return allowed && !allowed[real] && allowed.indexOf(1) >= 0 ? allowed.indexOf(1) : real;
}

/** Each action is a feature of its row, halved: the same in any arithmetic. */
class Halves {
  constructor(numFeatures, numActions, branches) {
    Object.assign(this, { numFeatures, numActions, branches });
  }

  act({ ids, states, rewards, features, masks, actions, values }) {
    const [width, count] = [features.length / ids.length, actions.length / ids.length];
    for (let row = 0; row < ids.length; row += 1) {
      for (let at = 0; at < count; at += 1) actions[row * count + at] = 0.5 * features[row * width + (at % width)];
      values[row] = features[row * width];
      let start = row * this.branches.reduce((sum, size) => sum + size, 0);
      this.branches.forEach((size, branch) => {
        const place = (row + 1) * count - this.branches.length + branch;
        actions[place] = held(actions[place], masks?.subarray(start, start + size), size);
        start += size;
      });
    }
    heard.push(hash(ids, Uint32Array.from(states), rewards, features, masks ?? new Uint8Array(0)));
  }

  forget() {}
}

const lines = [];
const results = [];
const guest = await ArkGuest.make(await WebAssembly.compile(readFileSync(given.wasm)), given.plan, {
  seed: BigInt(given.seed),
  policies: (name, features, actions) => {
    const asked = [features ?? given.widths[0], actions ?? given.widths[1]];
    if (given.widths !== null && String(asked) !== String(given.widths)) throw invalid(`widths ${asked}`);
    const branches = given.branches[String(asked)] ?? given.branches[`*,${asked[1]}`] ?? [];
    return { policy: new Halves(...asked, branches), branches };
  },
  answered: () => {},
  write: (level, text) => lines.push([level, text]),
  game: () => ({}),
});
let failure = "";
let places = [];
const begun = performance.now();
try {
  await guest.initialize();
  for (const [name, ...numbers] of given.calls) {
    const kinds = { i64: BigInt, i32: Number, f32: Number, f64: Number };
    const result = await guest.call(name, ...numbers.map(([kind, text]) => kinds[kind](text)));
    results.push([String(result ?? null), hash(guest.memory)]);
  }
  for (let frame = 0; frame < given.frames; frame += 1) {
    await guest.frame();
    const isHashed = frame % given.every === 0 || frame === given.frames - 1;
    frames.push([hash(...heard.splice(0).map((one) => Buffer.from(one))), isHashed ? hash(guest.memory) : ""]);
  }
} catch (error) {
  failure = String(error.message);
  places = error.places;
}
const seconds = (performance.now() - begun) / 1_000;
process.stdout.write(JSON.stringify({ frames, results, lines, failure, places, seconds, size: guest.memory.length }));
