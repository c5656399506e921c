// A person's seat in a trial: it takes an actor over, and takes it over again when it was lost.

import { isPassing, isTakenError } from "./service.js";

const FIRST_DELAY = 250; // milliseconds before the first attempt to take over again
const LONGEST_DELAY = 4_000;
const ATTEMPTS = 3; // to take over what another connection has, which may be an old one of mine
const CERTAIN = 1; // the confidence of a person's rewards

/** Wait for milliseconds, or until a signal is aborted. */
export function pause(milliseconds, signal) {
  return new Promise((resume) => {
    const timer = setTimeout(resume, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      resume();
    });
  });
}

/** The delays between attempts: longer and longer, until `reset`. */
export class Backoff {
  #delay = FIRST_DELAY;

  /** Return the next delay in milliseconds. */
  next() {
    const delay = this.#delay;
    this.#delay = Math.min(2 * delay, LONGEST_DELAY);
    return delay;
  }

  reset() {
    this.#delay = FIRST_DELAY;
  }
}

/**
 * Plays an actor from `open` to `leave`, or to the end of its trial.
 *
 * `place` is {trialId, actor, user}. `listener` has `playing()`, `observed(tick, observation)`,
 * `interrupted(reason, milliseconds)` before the next attempt, and `over({reason, isRefused})`.
 */
export class Seat {
  #service;
  #listener;
  #session = null; // while the actor is mine
  #leaving = new AbortController();
  #hasPlayed = false;
  #backoff = new Backoff();

  constructor(service, place, listener) {
    this.#service = service;
    this.place = place;
    this.#listener = listener;
  }

  /** True while actions reach the trial. */
  get isPlaying() {
    return this.#session !== null;
  }

  /** Take the actor over; resolves when the seat is left, refused or its trial has ended. */
  async open() {
    const { signal } = this.#leaving;
    let attempts = 0;
    while (!signal.aborted) {
      let reason = "the connection was lost";
      try {
        const isLost = await this.#play();
        if (!isLost) {
          this.#over("", false);
          return;
        }
      } catch (error) {
        attempts += 1;
        // A connection that was lost may have the actor until the server notices.
        const isOld = isTakenError(error) && (this.#hasPlayed || attempts < ATTEMPTS);
        if (!isPassing(error) && !isOld) {
          this.#over(error.message, !this.#hasPlayed);
          return;
        }
        reason = error.message;
      }
      if (signal.aborted) return;
      const delay = this.#backoff.next();
      this.#listener.interrupted(reason, delay);
      await pause(delay, signal);
    }
  }

  /** Hand the actor back. */
  leave() {
    this.#leaving.abort();
    const session = this.#session;
    this.#session = null;
    session?.handBack();
  }

  /** Act on the last observation. Does nothing while the actor is not mine. */
  act(action) {
    this.#session?.doAction(action);
  }

  /** Give an actor a reward for the present tick. Does nothing while no actor is mine. */
  reward(value, actor) {
    this.#session?.addReward(value, CERTAIN, [actor]);
  }

  /** Play until the session ends; return whether its connection was lost. */
  async #play() {
    let isLost = false;
    try {
      await this.#service.takeOver(this.place, async (session) => {
        session.start();
        for await (const event of session.eventLoop()) {
          if (this.#leaving.signal.aborted) return;
          if (event.observation !== undefined) this.#take(session, event.observation);
        }
        isLost = session.isConnectionLost();
      });
    } finally {
      this.#session = null;
    }
    return isLost;
  }

  #take(session, observation) {
    if (this.#session === null) {
      this.#session = session;
      this.#hasPlayed = true;
      this.#backoff.reset();
      this.#listener.playing();
    }
    this.#listener.observed(session.getTickId(), observation);
  }

  #over(reason, isRefused) {
    if (!this.#leaving.signal.aborted) this.#listener.over({ reason, isRefused });
  }
}
