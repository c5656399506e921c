// The agents of a published guest, in places that they leave and others take, as a scene.

import { isEnd } from "./ark_sessions.js";
import { mappingOf } from "./mapping.js";
import { boundedPart } from "./ranges.js";
import { Scene } from "./scene.js";

const MOST_ACTORS = 1_024; // that are drawn

/** Return the class of actors that a behavior in the document of a page is. */
function classOf({ name, observations, low, high, branches, positions, game = null, names = [], choices = [] }) {
  const bounds = { low: low.map((one) => one ?? -Infinity), high: high.map((one) => one ?? Infinity) };
  const parts = observations.map(boundedPart);
  const mapping = mappingOf({ ...bounds, branches, names, choices });
  return { name, observations: parts, ...bounds, branches, positions, game, mapping };
}

/** The places of one session: agents keep theirs until their episodes end. */
class Places {
  constructor(prefix, actorClass) {
    this.prefix = prefix;
    this.actorClass = actorClass;
    this.actors = [];
    this.byId = new Map();
    this.free = [];
  }

  /** Return the actor of an agent; `make(name)` adds one. */
  of(id, make) {
    let actor = this.byId.get(id);
    if (actor) return actor;
    if (this.free.length === 0) {
      actor = make(`${this.prefix}${this.actors.length}`, this.actorClass);
      if (!actor) return null;
      this.actors.push(actor);
    } else {
      this.free.sort((one, other) => one - other);
      actor = this.actors[this.free.shift()];
    }
    this.byId.set(id, actor);
    return actor;
  }

  /** Free the place of an agent whose episode has ended. */
  leave(id) {
    this.free.push(this.actors.indexOf(this.byId.get(id)));
    this.byId.delete(id);
  }
}

/** What a page shows of a guest: `scene` has its actors, and `mine` is the name of a person's. */
export class Stage {
  #classes;
  #places = new Map(); // by session
  #action;

  /** `action(allowed)` is what the person does now: {continuous, choices}. */
  constructor(behaviors, action) {
    this.#classes = new Map(behaviors.map((one) => [widthsOf(one), classOf(one)]));
    this.#action = action;
    this.mine = "";
    this.scene = new Scene("", []);
  }

  /** Take in the rows of a session that are answered, and put the person's action among them. */
  take(session, time, frame) {
    const places = this.#placesOf(session);
    const { numFeatures: width, numActions } = session;
    const now = [];
    for (let row = 0; row < session.count; row += 1) {
      const id = session.ids[row];
      const isNew = !places.byId.has(id);
      const actor = places.of(id, (...made) => this.#made(...made));
      if (!actor) continue;
      const hasEnded = isEnd(session.states[row]);
      const isMine = actor.name === this.mine;
      const values = session.features.subarray(row * width, (row + 1) * width);
      const allowed = isMine ? session.allowed(row) : [];
      const episode = actor.observation === null ? 0 : actor.observation.episode + Number(isNew);
      const end = hasEnded ? session.states[row] : 0;
      const observation = { agent: id, present: true, episode, end, finalEnd: 0, values, allowed };
      now.push([actor, observation, session.rewards[row]]);
      if (isMine && !hasEnded) {
        const { continuous, choices } = this.#action(allowed);
        session.replace(row, [...continuous, ...choices].slice(0, numActions));
      }
      if (hasEnded) places.leave(id);
    }
    this.scene.answered(time, frame, now);
  }

  #placesOf(session) {
    let places = this.#places.get(session);
    if (places) return places;
    const actorClass = this.#classes.get(`${session.numFeatures},${session.numActions}`) ?? this.#plainClass(session);
    const kind = session.name || actorClass.name || "agent";
    const number = this.#places.size;
    const isTaken = [...this.#places.values()].some(({ prefix }) => prefix === `${kind} `);
    places = new Places(isTaken ? `${kind} ${number}:` : `${kind} `, actorClass);
    this.#places.set(session, places);
    return places;
  }

  #plainClass({ numFeatures, numActions }) {
    const open = (count) => Array(count).fill(null);
    const part = { name: "obs_0", shape: [numFeatures], low: [null], high: [null] };
    const actions = { low: open(numActions), high: open(numActions), branches: [] };
    return classOf({ name: "", observations: [part], ...actions, positions: [] });
  }

  #made(name, actorClass) {
    return this.scene.actors.length < MOST_ACTORS ? this.scene.add({ name, actorClass }) : null;
  }
}

/** Return the numbers of features and actions of a behavior, as text. */
function widthsOf({ observations, low, branches }) {
  const sizes = observations.map(({ shape }) => shape.reduce((product, side) => product * side, 1));
  return `${sizes.reduce((sum, size) => sum + size, 0)},${low.length + branches.length}`;
}
