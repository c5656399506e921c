// Sessions: the rows that a guest pushes, and the answers of a policy.

import { ChoiceMasks } from "./ark_masks.js";
import { invalid, unavailable } from "./ark_memory.js";

const ENDS = [1, 2]; // states of rows: terminal, interrupted
const ROW_BYTES = 17; // beside features and actions: id, state, reward, value

/** Return whether a row of a state ends its episode. */
export function isEnd(state) {
  return ENDS.includes(state);
}

/**
 * The queue of one session and its policy; `kind` is "inference" or "training".
 *
 * Arrays have room for `capacity` rows, of which `count` are pushed.
 */
export class Session {
  #limits;
  #policy;
  #masks;
  #masksOfBatch = null;
  #metadataBytes = 0;

  constructor({ kind, name, key, numFeatures, numActions, branches, policy, limits }) {
    Object.assign(this, { kind, name, key, numFeatures, numActions });
    this.count = 0;
    this.capacity = 0;
    this.metadata = []; // {row, name, value}
    this.#limits = limits;
    this.#policy = policy;
    this.#masks = branches.length > 0 ? new ChoiceMasks(branches) : null;
    this.#grow(1);
  }

  /** Queue a row. Its arguments are checked; `features` and `given` are [pointer, length]. */
  push(memory, { id, state, reward, features, given, metadata }) {
    const width = this.numFeatures;
    if (state > 3) throw invalid(`${state} is not an episode state`);
    if (features[1] !== width) throw invalid(`${features[1]} features, the session has ${width}`);
    memory.check(features[0], 4 * width);
    if (given && given[1] > 0 && given[1] !== this.numActions) {
      throw invalid(`${given[1]} supplied actions, the session has ${this.numActions}`);
    }
    if (given) memory.check(given[0], 4 * given[1]);
    const items = metadata ? this.#items(memory, metadata) : [];
    if (this.count >= this.#limits.rows) throw invalid(`${this.count} rows are pushed, the limit is ${this.#limits.rows}`);
    if (this.count === this.capacity) this.#grow(Math.min(2 * this.capacity, this.#limits.rows));
    const row = this.count;
    this.ids[row] = id;
    this.states[row] = state;
    this.rewards[row] = reward;
    if (width > 0) this.bytes.set(memory.bytes.subarray(features[0], features[0] + 4 * width), 4 * width * row);
    for (const item of items) this.metadata.push({ row, ...item });
    this.count += 1;
  }

  /** Have the policy answer the rows: `actions` and `values` are filled, or a promise of it is returned. */
  answer() {
    const { count, numFeatures, numActions } = this;
    const actions = this.actions.subarray(0, count * numActions);
    const values = this.values.subarray(0, count);
    const masks = this.#masks?.of(count, this.metadata) ?? null;
    this.#masksOfBatch = masks;
    values.fill(0);
    return this.#policy.act({
      key: this.key,
      ids: this.ids.subarray(0, count),
      features: this.features.subarray(0, count * numFeatures),
      rewards: this.rewards.subarray(0, count),
      states: this.states.subarray(0, count),
      masks,
      actions,
      values,
    });
  }

  /** Have an action be taken in place of the policy's: floats, [numActions], of a row. */
  replace(row, action) {
    this.actions.set(action, row * this.numActions);
  }

  /** Return whether all features of the rows are finite. */
  get isFinite() {
    return this.features.subarray(0, this.count * this.numFeatures).every(Number.isFinite);
  }

  /**
   * Make answers fit to be given: zeros for rows that ended, and for numbers that are not finite.
   *
   * Return whether there was such a number in another row.
   */
  settle() {
    const { count, numActions } = this;
    let isSound = true;
    const settle = (numbers, at, ends) => {
      if (!ends && Number.isFinite(numbers[at])) return;
      isSound &&= ends;
      numbers[at] = 0;
    };
    for (let row = 0; row < count; row += 1) {
      const ends = isEnd(this.states[row]);
      for (let at = row * numActions; at < (row + 1) * numActions; at += 1) settle(this.actions, at, ends);
      settle(this.values, row, ends);
    }
    return isSound;
  }

  /** Return whether each choice of a row is allowed; none where all are. */
  allowed(row) {
    if (this.#masksOfBatch === null) return [];
    const { choices } = this.#masks;
    return [...this.#masksOfBatch.subarray(row * choices, (row + 1) * choices)].map(Boolean);
  }

  /** Forget the rows. */
  clear() {
    this.count = 0;
    this.metadata = [];
    this.#metadataBytes = 0;
  }

  /** Have the policy forget the agents of the session. */
  close() {
    this.#policy.forget(this.key);
  }

  #items(memory, { pointer, length, layout }) {
    if (length === 0) return [];
    const { size, nameAt, nameSize, hasLength } = layout;
    if (length > Math.floor(2 ** 31 / size)) throw invalid(`${length} items of metadata, too many`);
    memory.check(pointer, length * size);
    const bytes = 16 + length * size;
    if (this.#metadataBytes + bytes > this.#limits.metadata) {
      throw invalid(`metadata of ${this.#metadataBytes + bytes} bytes, the limit is ${this.#limits.metadata}`);
    }
    this.#metadataBytes += bytes;
    const decoder = new TextDecoder();
    return [...Array(length).keys()].map((index) => {
      const at = pointer + index * size;
      const start = at + nameAt;
      const room = memory.bytes.subarray(start, start + nameSize);
      const zero = room.indexOf(0);
      const used = hasLength ? Math.min(memory.view.getUint32(at, true), nameSize) : zero < 0 ? nameSize : zero;
      return { name: decoder.decode(room.subarray(0, used)), value: memory.view.getFloat32(at + size - 4, true) };
    });
  }

  #grow(rows) {
    const bytes = rows * (ROW_BYTES + 4 * (this.numFeatures + this.numActions));
    if (bytes > this.#limits.columns) {
      throw unavailable(`${rows} rows take ${bytes} bytes, the limit is ${this.#limits.columns}`);
    }
    const sized = (Kind, old, width) => {
      const grown = new Kind(rows * width);
      if (old) grown.set(old);
      return grown;
    };
    this.capacity = rows;
    this.ids = sized(BigUint64Array, this.ids, 1);
    this.states = sized(Uint8Array, this.states, 1);
    this.rewards = sized(Float32Array, this.rewards, 1);
    this.values = sized(Float32Array, this.values, 1);
    this.features = sized(Float32Array, this.features, this.numFeatures);
    this.actions = sized(Float32Array, this.actions, this.numActions);
    this.bytes = new Uint8Array(this.features.buffer);
  }
}
