// Handles: the numbers by which a guest names sessions and futures.

import { notFound, unavailable } from "./ark_memory.js";

/**
 * Objects by handle, `generation << 32 | index + 1`, a BigInt.
 *
 * Zero is never given, and a dropped handle never names a later object.
 */
export class Handles {
  #items = [];
  #generations = [];
  #free = [];
  #live = 0;
  #most;

  constructor(most) {
    this.#most = most;
  }

  /** Check that there is room for another object. */
  requireRoom() {
    if (this.#live >= this.#most) throw unavailable(`${this.#live} handles are live, the limit is ${this.#most}`);
  }

  /** Keep an object, and return its handle. */
  insert(item) {
    this.requireRoom();
    const index = this.#free.pop() ?? this.#items.length;
    this.#items[index] = item;
    this.#generations[index] ??= 0n;
    this.#live += 1;
    return (this.#generations[index] << 32n) | BigInt(index + 1);
  }

  /** Return the object of a handle, which has to be of a kind, a class. */
  get(handle, kind) {
    const index = Number(handle & 0xffff_ffffn) - 1;
    const item = this.#generations[index] === handle >> 32n ? this.#items[index] : undefined;
    if (!(item instanceof kind)) throw notFound(`0x${handle.toString(16)} is not a live handle of a ${kind.name}`);
    return item;
  }

  /** Remove a handle, and return its object. */
  remove(handle, kind) {
    const item = this.get(handle, kind);
    const index = Number(handle & 0xffff_ffffn) - 1;
    this.#items[index] = undefined;
    this.#generations[index] += 1n;
    if (this.#generations[index] < 1n << 32n) this.#free.push(index);
    this.#live -= 1;
    return item;
  }

  /** The number of live objects of a kind. */
  count(kind) {
    return this.#items.filter((item) => item instanceof kind).length;
  }
}
