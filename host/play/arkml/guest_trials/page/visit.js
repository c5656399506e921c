// One visit: it watches a trial, plays an actor of it, and goes over to the next trial.

import { mappingOf } from "./shared/mapping.js";
import { Scene } from "./shared/scene.js";
import { Backoff, pause, Seat } from "./seat.js";

const PATIENCE = 1_000; // milliseconds between two looks for the next trial
const UNCONFIRMED = 500; // milliseconds until an action counts as taken, if no view shows it

/** Return whether two actions are alike; those of views went through floats of 32 bits. */
function isSame(one, other) {
  const numbers = ({ continuous, choices }) => [...continuous.map(Math.fround), ...choices];
  const [first, second] = [numbers(one), numbers(other)];
  return first.length === second.length && first.every((value, at) => value === second[at]);
}

/**
 * The trials that a person watches and plays in, one after another.
 *
 * `page` has `opened(scene)` and `seated()` for a new trial and a new part, `noticed({text,
 * isTrouble, action, act})` with what the person should know, `action(allowed)` for the action of
 * what is held, and `settled(time)` when actions up to a time have reached the trial.
 */
export class Visit {
  #service;
  #user;
  #page;
  #classes;
  #scene = null;
  #seat = null;
  #wanted = ""; // the actor that is played, also in the next trial
  #watching = new AbortController();
  #trials = []; // of the last description
  #isClosed = false;
  #acted = null; // my last action, with the time at which it was sent first
  #sent = null; // the time of the oldest change of my action that no observation has followed

  constructor(service, description, user, page) {
    this.#service = service;
    this.#user = user;
    this.#page = page;
    this.#learn(description);
  }

  /** The name of the actor that I play now, "" while I watch. */
  get mine() {
    return this.#seat?.isPlaying ? this.#seat.place.actor : "";
  }

  /** Begin with a trial, or without an id with the next one. */
  begin(trialId, slot) {
    this.#wanted = slot;
    const trial = this.#trials.find((one) => one.trialId === trialId);
    if (trial) this.#open(trial);
    else void this.#findNext("There is no trial yet.");
  }

  /** Take an actor over, after handing back the one that I play. */
  take(actor) {
    if (!this.#scene) return;
    this.#seat?.leave();
    this.#wanted = actor;
    const place = { trialId: this.#scene.trialId, actor, user: this.#user };
    const seat = new Seat(this.#service, place, {
      playing: () => this.#playing(seat),
      observed: (tick, observation) => this.#observed(seat, tick, observation),
      interrupted: (reason, delay) => this.#interrupted(seat, reason, delay),
      over: (end) => this.#over(seat, end),
    });
    this.#seat = seat;
    this.#notice(`Taking over ${actor} …`);
    void seat.open();
  }

  /** Hand my actor back, for a reason that is shown. */
  leave(reason = "") {
    const actor = this.#seat?.place.actor;
    if (!actor) return;
    this.#dropSeat();
    this.#wanted = "";
    const why = reason ? `, because ${reason}` : "";
    this.#notice(`You handed ${actor} back${why}. You watch now.`, actor);
  }

  /** End the visit. */
  close() {
    this.#isClosed = true;
    this.#watching.abort();
    this.#dropSeat();
  }

  /** Act on the last observation. */
  act() {
    if (!this.mine) return;
    this.#sent ??= performance.now();
    this.#send();
  }

  /** Give an actor a reward for the present tick. */
  reward(value, actor) {
    this.#seat?.reward(value, actor);
  }

  #learn(description) {
    this.#trials = description.trials;
    this.#classes = new Map();
    for (const one of description.classes) {
      this.#classes.set(one.name, Object.assign(one, { mapping: mappingOf(one) }));
    }
  }

  #open(trial) {
    const actors = trial.actors
      .map(({ name, actorClass }) => ({ name, actorClass: this.#classes.get(actorClass) }));
    this.#scene = new Scene(trial.trialId, actors);
    this.#page.opened(this.#scene);
    this.#page.seated();
    void this.#watch(this.#scene);
    if (!this.#wanted) this.#notice("You watch. Take over an actor to play it.");
    else if (this.#scene.actor(this.#wanted)) this.take(this.#wanted);
    else this.#notice(`This trial has no actor ${this.#wanted}. You watch.`);
  }

  /** Watch a trial to its end, also over lost connections. */
  async #watch(scene) {
    const backoff = new Backoff();
    const { signal } = this.#watching;
    let reason = "";
    while (!signal.aborted && this.#scene === scene) {
      try {
        for await (const view of this.#service.look(scene.trialId, signal)) {
          if (this.#scene !== scene) return;
          backoff.reset();
          scene.view(performance.now(), view);
          this.#settle();
          reason = view.reason || reason;
        }
        break; // the trial has ended
      } catch (error) {
        if (!(await this.#isLive(scene))) break;
        if (!this.#seat) this.#notice(`${error.message} – trying again …`, "", true);
      }
      await pause(backoff.next(), signal);
    }
    this.#trialOver(scene, reason);
  }

  /** Return false if the server says that the trial of a scene has ended. */
  async #isLive(scene) {
    try {
      const { trials } = await this.#service.describe();
      return trials.some(({ trialId }) => trialId === scene.trialId);
    } catch {
      return true; // nothing is known: the server cannot be reached
    }
  }

  #trialOver(scene, reason) {
    if (this.#isClosed || this.#scene !== scene) return;
    this.#scene = null;
    this.#dropSeat();
    const why = reason ? `: ${reason}` : "";
    void this.#findNext(`The trial has ended${why}.`);
  }

  /** Look for a live trial until there is one, and go over to it. */
  async #findNext(text) {
    this.#notice(`${text} Waiting for the next one …`);
    const { signal } = this.#watching;
    while (!signal.aborted) {
      try {
        this.#learn(await this.#service.describe());
        if (this.#trials.length > 0) {
          this.#open(this.#trials[0]);
          return;
        }
        this.#notice(`${text} Waiting for the next one …`);
      } catch (error) {
        this.#notice(`${text} ${error.message} – trying again …`, "", true);
      }
      await pause(PATIENCE, signal);
    }
  }

  #dropSeat() {
    this.#seat?.leave();
    this.#seat = null;
    this.#sent = this.#acted = null;
    this.#page.seated();
  }

  #playing(seat) {
    if (seat !== this.#seat) return;
    this.#page.seated();
    this.#notice(`You play ${seat.place.actor}.`);
  }

  #observed(seat, tick, observation) {
    if (seat !== this.#seat || !this.#scene) return;
    const now = performance.now();
    if (this.#sent !== null) this.#scene.addLatency(now - this.#sent);
    this.#sent = null;
    this.#scene.observe(now, seat.place.actor, tick, observation);
    this.#page.settled(now - UNCONFIRMED);
    this.#send();
  }

  /** Settle what the last action was for, once a view shows that it was taken. */
  #settle() {
    const taken = this.mine ? this.#scene.actor(this.mine).action : null;
    if (taken === null || this.#acted === null || !isSame(taken, this.#acted)) return;
    this.#page.settled(this.#acted.time);
    if (!isSame(this.#action(), this.#acted)) this.#send();
  }

  #action() {
    return this.#page.action(this.#scene.actor(this.mine).observation.allowed);
  }

  #send() {
    const action = this.#action();
    if (this.#acted === null || !isSame(action, this.#acted)) {
      this.#acted = { ...action, time: performance.now() };
    }
    this.#seat.act(action);
  }

  #interrupted(seat, reason, delay) {
    if (seat !== this.#seat) return;
    this.#page.seated();
    const seconds = (delay / 1_000).toFixed(1);
    const { actor } = seat.place;
    this.#notice(`${actor} is not yours now: ${reason}. Trying again in ${seconds} s …`, "", true);
  }

  #over(seat, { reason, isRefused }) {
    if (seat !== this.#seat) return;
    const { actor } = seat.place;
    this.#dropSeat();
    if (isRefused) {
      this.#wanted = "";
      this.#notice(`You cannot play ${actor}: ${reason}`, actor, true);
    } else { // the end of the trial follows
      this.#notice(`You no longer play ${actor}${reason ? `: ${reason}` : ""}.`, actor);
    }
  }

  #notice(text, actor = "", isTrouble = false) {
    const again = actor ? { action: `Take over ${actor} again`, act: () => this.take(actor) } : {};
    this.#page.noticed({ text, isTrouble, ...again });
  }
}
