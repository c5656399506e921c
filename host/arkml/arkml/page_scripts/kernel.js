// Policies compiled to WebAssembly by arkml.policies.kernel, which act as they do in the host.

const SECTION = "arkml.kernel";
const VERSION = 1;
const TERMINAL = 1, INTERRUPTED = 2, INITIAL = 3; // states of episodes, as the ABI has them
const MOST_AGENTS = 1 << 17; // whose steps and states are kept for a session
const GOLDEN = 0x9e3779b97f4a7c15n;

/** Return the output function of splitmix64, as policies/noise.py has it. */
function mix(word) {
  word = BigInt.asUintN(64, (word ^ (word >> 30n)) * 0xbf58476d1ce4e5b9n);
  word = BigInt.asUintN(64, (word ^ (word >> 27n)) * 0x94d049bb133111ebn);
  return word ^ (word >> 31n);
}

/** Return the random stream of an agent. */
function streamOf(seed, key, id) {
  return mix(mix(BigInt.asUintN(64, mix(BigInt.asUintN(64, seed + GOLDEN)) + key)) ^ id);
}

/** Return a number rounded as IEEE says: halves to the even one. */
function rounded(number) {
  const low = Math.floor(number);
  const rest = number - low;
  if (rest !== 0.5) return rest < 0.5 ? low : low + 1;
  return low % 2 === 0 ? low : low + 1;
}

const widthOf = ({ shape }) => shape.reduce((product, size) => product * size, 1);

/** Return, for each number of an input, the feature that it is: images have their channels moved. */
function placesOf({ start, from }, width) {
  if (!from) return null;
  const places = new Uint32Array(width);
  const moved = from.order.map((axis) => from.shape[axis]);
  const strides = from.shape.map((_, axis) => from.shape.slice(axis + 1).reduce((a, b) => a * b, 1));
  for (let number = 0; number < width; number++) {
    let rest = number;
    let place = start;
    for (let axis = moved.length - 1; axis >= 0; axis--) {
      place += (rest % moved[axis]) * strides[from.order[axis]];
      rest = Math.floor(rest / moved[axis]);
    }
    places[number] = place;
  }
  return places;
}

/**
 * A policy, with what it keeps of each agent: its steps, on which the noise depends, and its
 * recurrent state. For equal seeds, keys, ids and features it gives the bits that a host gives
 * with backend="wasm".
 */
export class KernelPolicy {
  /**
   * Load a module that `arkml.policies.kernel.render` made, or `arkml` wrote.
   *
   * bytes: ArrayBuffer or Uint8Array. seed: BigInt of the noise. deterministic: true for no noise.
   * pink: true for noise that changes slowly.
   */
  static async load(bytes, { seed = 0n, deterministic = false, pink = false } = {}) {
    const module = await WebAssembly.compile(bytes);
    const [section] = WebAssembly.Module.customSections(module, SECTION);
    if (!section) throw new Error(`the module has no section ${SECTION}: it is not a policy`);
    const notes = JSON.parse(new TextDecoder().decode(section));
    if (notes.version !== VERSION) {
      throw new Error(`the policy is of version ${notes.version}, this page reads ${VERSION}`);
    }
    const { exports } = await WebAssembly.instantiate(module);
    return new this(exports, notes, { seed, deterministic, pink });
  }

  constructor(exports, notes, { seed, deterministic, pink }) {
    this.numFeatures = notes.features;
    this.numActions = notes.actions;
    this.branches = notes.branches;
    this.choices = notes.branches.reduce((sum, size) => sum + size, 0);
    this.run = exports.run;
    this.seed = BigInt(seed);
    this.sessions = new Map();
    const buffer = exports.memory.buffer; // never grows
    const port = (place) => ({
      ...place, numbers: new Float32Array(buffer, place.offset, widthOf(place)),
    });
    const inputs = (this.inputs = notes.inputs.map(port));
    const outputs = (this.outputs = notes.outputs.map(port));
    this.observations = inputs.filter(({ role }) => role === "observation").map((input) => ({
      ...input, places: placesOf(input, input.numbers.length),
    }));
    this.masks = inputs.filter(({ role }) => role === "masks").map(({ numbers }) => numbers);
    this.masks.forEach((numbers) => numbers.fill(1));
    const hasNoise = inputs.some(({ role }) => role === "epsilon") && !deterministic;
    this.noise = hasNoise ? (stream, step) => exports.noise(stream, step, pink ? 1 : 0) : null;
    this.acting = notes.acting.map((index) => outputs[index].numbers);
    this.value = notes.values === null ? null : outputs[notes.values].numbers;
    this.scored = notes.scored;
    this.given = new Float32Array(this.acting.reduce((sum, { length }) => sum + length, 0));
    this.continuous = this.numActions - this.branches.length;
    this.recurrent = notes.recurrent.map(([source, target]) => ({
      source: inputs[source].numbers,
      target: outputs[target].numbers,
      acting: notes.acting.indexOf(target),
    }));
    this.width = this.recurrent.reduce((sum, { source }) => sum + source.length, 0);
    this.keeps = this.noise !== null || this.recurrent.length > 0;
  }

  /**
   * Fill the actions, and the values if the policy has values, of n rows of one session.
   *
   * key: BigInt of the session. ids: BigUint64Array, [n], of the agents. features: Float32Array,
   * [n * numFeatures]. states: Uint8Array, [n], of the episodes, or null. masks: Uint8Array,
   * [n * choices of all branches], 1 for a choice that is allowed, or null. actions: Float32Array,
   * [n * numActions]. values: Float32Array, [n], or null.
   *
   * The rows of one agent are its steps, in their order. Numbers that are not finite are left to
   * the caller, who answers zeros in their place, as for agents whose episodes ended.
   */
  act({ key, ids, features, states = null, masks = null, actions, values = null }) {
    const rows = this.rowsOf({ key, ids, features, states, masks, actions, values });
    for (let row = 0; row < rows.count; row++) {
      this.enter(rows, row);
      this.run();
      this.leave(rows, row);
    }
    this.settle(rows);
  }

  /** Drop what is kept of the agents of a session. */
  forget(key) {
    this.sessions.delete(key);
  }

  /** Return the rows of a batch, with what is kept of their agents. */
  rowsOf(batch) {
    const { key, ids, features, masks, actions } = batch;
    this.require(ids.length, features, masks, actions);
    return { ...batch, count: ids.length, seen: this.keeps ? this.agentsOf(key, ids) : [] };
  }

  /** Write the inputs of a row. */
  enter({ features, states, masks, seen }, row) {
    this.observe(features, row * this.numFeatures, this.allowedIn(masks, row));
    if (this.keeps) this.begin(seen[row], states && states[row]);
  }

  /** Answer a row by the outputs. */
  leave({ states, masks, actions, values, seen }, row) {
    const allowed = this.allowedIn(masks, row);
    const first = row * this.numActions;
    const answer = actions.subarray(first, first + this.numActions);
    this.take(answer, allowed);
    if (values && this.value) values[row] = this.value[0];
    if (this.keeps) this.end(seen[row], states && states[row], allowed);
    this.hold(answer, allowed, this.scored);
  }

  settle({ seen }) {
    for (const agent of seen) if (!agent.state.every(Number.isFinite)) agent.state.fill(0);
  }

  allowedIn(masks, row) {
    return masks && masks.subarray(row * this.choices, (row + 1) * this.choices);
  }

  require(count, features, masks, actions) {
    for (const [name, array, width] of [
      ["features", features, this.numFeatures],
      ["masks", masks, this.choices],
      ["actions", actions, this.numActions],
    ]) {
      if (array && array.length !== count * width) {
        throw new RangeError(
          `${name} has ${array.length} numbers, and ${count} agents have ${count * width}`,
        );
      }
    }
  }

  /** Return the agent of each row; those of one session that are over the most are dropped. */
  agentsOf(key, ids) {
    let agents = this.sessions.get(key);
    if (!agents) this.sessions.set(key, (agents = new Map()));
    const seen = Array.from(ids, (id) => {
      let agent = agents.get(id);
      if (!agent) {
        const stream = this.noise ? streamOf(this.seed, BigInt.asUintN(64, key), id) : 0n;
        agent = { stream, step: 0n, state: new Float32Array(this.width) };
        agents.set(id, agent);
      }
      return agent;
    });
    for (const id of agents.keys()) {
      if (agents.size <= MOST_AGENTS) break;
      agents.delete(id);
    }
    return seen;
  }

  observe(features, first, allowed) {
    for (const { numbers, start, places, from } of this.observations) {
      if (places === null) {
        numbers.set(features.subarray(first + start, first + start + numbers.length));
      } else {
        for (let index = 0; index < numbers.length; index++) {
          numbers[index] = features[first + places[index]] * Math.fround(from.factor);
        }
      }
    }
    for (const numbers of this.masks) {
      if (allowed) numbers.set(allowed);
      else numbers.fill(1);
    }
  }

  begin(agent, state) {
    if (this.noise) this.noise(agent.stream, agent.step);
    if (state === INITIAL) agent.state.fill(0);
    let start = 0;
    for (const { source } of this.recurrent) {
      source.set(agent.state.subarray(start, start + source.length));
      start += source.length;
    }
  }

  end(agent, state, allowed) {
    agent.step += 1n;
    let start = 0;
    for (const { target, acting } of this.recurrent) {
      const after = agent.state.subarray(start, start + target.length);
      after.set(target);
      if (acting >= 0) this.feedBack(after, acting, allowed);
      start += target.length;
    }
    if (state === TERMINAL || state === INTERRUPTED) agent.state.fill(0);
  }

  /** Make an output that acts the actions that were taken, as the next step is told of them. */
  feedBack(taken, acting, allowed) {
    const first = this.acting.slice(0, acting).reduce((sum, { length }) => sum + length, 0);
    const skipped = Math.max(this.continuous - first, 0);
    const branch = Math.max(first - this.continuous, 0);
    this.holdSome(taken.subarray(skipped), branch, allowed, false);
    taken.forEach((number, index) => {
      if (!Number.isFinite(number)) taken[index] = 0;
    });
  }

  /** Write the actions of one row. */
  take(answer, allowed) {
    const given = this.scored ? this.given : answer;
    let start = 0;
    for (const numbers of this.acting) {
      given.set(numbers, start);
      start += numbers.length;
    }
    if (!this.scored) return;
    answer.set(given.subarray(0, this.continuous));
    start = this.continuous;
    this.branches.forEach((size, branch) => {
      const scores = given.subarray(start, start + size);
      const open = allowed && allowed.subarray(start - this.continuous);
      answer[this.continuous + branch] = highest(scores, open);
      start += size;
    });
  }

  hold(answer, allowed, isSure) {
    if (this.branches.length) this.holdSome(answer.subarray(this.continuous), 0, allowed, isSure);
  }

  /**
   * Have choices of branches from `first` on exist and be allowed.
   *
   * What is not finite, and answered as zero, stays unless zero is masked.
   */
  holdSome(choices, first, allowed, isSure) {
    let start = this.branches.slice(0, first).reduce((sum, size) => sum + size, 0);
    choices.forEach((choice, index) => {
      const size = this.branches[first + index];
      const isFinite = Number.isFinite(choice);
      if (isFinite && !isSure) choice = settled(choice, size);
      const open = allowed ? allowed.subarray(start, start + size) : null;
      const isMasked = open && !open[isFinite ? choice : 0];
      const lowest = isMasked ? open.findIndex((value) => value !== 0) : -1;
      choices[index] = lowest >= 0 ? lowest : choice;
      start += size;
    });
  }
}

/** Return the choice that a number is: rounded unless it is one, and 0 if there is no such choice. */
function settled(number, size) {
  const choice = rounded(number);
  if (choice === number && choice >= 0 && choice < size) return number; // -0 stays, as in a host
  return choice >= 0 && choice < size ? Math.abs(choice) : 0;
}

/** Return the place of the highest score that is allowed, NaN if one of these is NaN. */
function highest(scores, allowed) {
  let best = 0;
  let most = -Infinity;
  for (let index = 0; index < scores.length; index++) {
    if (allowed && !allowed[index]) continue;
    if (Number.isNaN(scores[index])) return NaN;
    if (scores[index] > most) [best, most] = [index, scores[index]];
  }
  return best;
}
