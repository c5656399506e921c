// A guest in a page: a WebAssembly module with the imports that it asks for, called frame by frame.

import { envHandlers } from "./ark_env.js";
import { ArkImports } from "./ark_imports.js";
import { GuestLog } from "./ark_log.js";
import { GuestMemory } from "./ark_memory.js";
import { ArkServices } from "./ark_services.js";
import { wasiFunctions } from "./ark_wasi.js";
import { World } from "./ark_world.js";

const WASI = "wasi_snapshot_preview1";

/** The end of a guest: why, and where, as lines of its stack, the innermost first. */
export class GuestFailure extends Error {
  constructor(text, places, cause) {
    super(text, { cause });
    this.places = places;
  }
}

/** A guest that stops itself: by an exit, or after a failed assertion. */
class GuestStop extends Error {}

/** Return the places in the module that a stack names, as "name at 0x1a4". */
function stackPlaces(stack) {
  return stack
    .split("\n")
    .map((line) => /(?:at )?([^\s@(]*)[@ (]*\S*wasm-function\[(\d+)\]:0x([0-9a-f]+)/.exec(line))
    .filter(Boolean)
    .map(([, name, index, offset]) => `${name.replace(/^<anonymous>$|^wasm(:.*)?$/, "") || `function ${index}`} at 0x${offset}`);
}

/** One instance of a guest. */
export class ArkGuest {
  #exports;
  #services;
  #world;
  #plan;
  #seed;
  #isSuspending = false;

  /**
   * Make an instance; none of its code runs.
   *
   * `plan` is what was published of the module: its `imports`, `memory`, `initializers`, `frame`,
   * `frameNanoseconds`, `limits` and `trains`. `options` are {seed, a BigInt; policies, answered:
   * see ArkServices; write(level, text) for its log; game(memory), its functions by
   * module and name; isSuspending, whether policies answer by promises}.
   */
  static async make(module, plan, options) {
    const guest = new ArkGuest(plan, options.seed);
    await guest.#link(module, options);
    return guest;
  }

  constructor(plan, seed) {
    this.#plan = plan;
    this.#seed = seed;
    this.#world = new World(seed, plan.frameNanoseconds);
  }

  /** Run what the guest begins with. Throws GuestFailure. */
  async initialize() {
    for (const name of this.#plan.initializers) {
      const takesSeed = name === this.#plan.seedExport;
      await this.call(name, ...(takesSeed ? [this.#seed] : []));
    }
  }

  /** Run one frame. Throws GuestFailure. */
  async frame() {
    await this.call(this.#plan.frame);
  }

  /** Call an export, a frame later; no other call is in progress. Throws GuestFailure. */
  async call(name, ...args) {
    this.#world.tick();
    this.#services.begin();
    const exported = this.#exports[name];
    try {
      return await (this.#isSuspending ? WebAssembly.promising(exported) : exported)(...args);
    } catch (error) {
      throw this.#failure(error, name);
    }
  }

  /** The bytes of its memory as they are now. */
  get memory() {
    return this.guestMemory.bytes;
  }

  async #link(module, { policies, answered, write, game, isSuspending = false }) {
    this.#isSuspending = isSuspending;
    const { imports, limits, memory: place, trains } = this.#plan;
    const made = place.imported && new WebAssembly.Memory({ initial: place.minimum, maximum: place.maximum });
    const held = { memory: made || null };
    const memory = (this.guestMemory = new GuestMemory(
      { get buffer() { return held.memory?.buffer ?? new ArrayBuffer(0); } }, limits,
    ));
    const log = new GuestLog(write, limits);
    const stop = (text) => { throw new GuestStop(text); };
    const world = this.#world;
    const panic = (...parts) => this.#services.notePanic(...parts);
    const env = envHandlers({ memory, log, world, limits, panic, stop });
    this.#services = new ArkServices({ world, log, limits, policies, trains, answered, env });
    const print = (fd, bytes) => write(fd === 2 ? "warning" : "output", new TextDecoder().decode(bytes).replace(/\n$/, ""));
    const exit = (status) => stop(`the guest exited with status ${status}`);
    const modules = { ...new ArkImports(imports, memory, this.#services, isSuspending).modules, [WASI]: wasiFunctions({ memory, world, print, exit }) };
    if (place.imported) modules[place.imported[0]] = { ...modules[place.imported[0]], [place.imported[1]]: made };
    for (const [name, functions] of Object.entries(game(memory))) modules[name] = { ...modules[name], ...functions };
    this.#exports = (await WebAssembly.instantiate(module, modules)).exports;
    held.memory ??= this.#exports[place.exported] ?? null;
  }

  #failure(error, name) {
    const { panic, refusal } = this.#services;
    const text = panic ?? (error instanceof GuestStop ? error.message : `${name}: ${error.message}`);
    const about = refusal ? ` (the last refused call: ${refusal})` : "";
    return new GuestFailure(`${text}${about}`, stackPlaces(error.stack ?? ""), error);
  }
}
