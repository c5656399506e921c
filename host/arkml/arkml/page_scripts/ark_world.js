// The clock and the random numbers of a guest, which follow from its seed and its calls alone.

import { shake128 } from "./shake.js";

const ORIGIN = 946_684_800_000_000_000n; // January 1, 2000, in nanoseconds of Unix

/** A clock that stands still during a call, and the random numbers of a seed, a BigInt. */
export class World {
  #seed;
  #frame;
  #draws = 0;

  constructor(seed, frameNanoseconds) {
    this.#seed = seed;
    this.#frame = BigInt(frameNanoseconds);
    this.now = ORIGIN; // nanoseconds
  }

  /** Advance the clock by a frame. */
  tick() {
    this.now += this.#frame;
  }

  /** Advance the clock to a time; a guest that sleeps wakes at once. */
  wait(until) {
    if (until > this.now) this.now = until;
  }

  /** Return the next random bytes. */
  random(size) {
    this.#draws += 1;
    return shake128(new TextEncoder().encode(`${this.#seed} ${this.#draws}`), size);
  }

  /** Return 53 random bits, a number. */
  bits() {
    const bytes = this.random(7);
    const number = bytes.reduceRight((sum, byte) => sum * 256n + BigInt(byte), 0n);
    return Number(number >> 3n);
  }
}
