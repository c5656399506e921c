// What a document of a replay shows at one of its frames, as the plane and the panels take it.

import { boundedPart } from "./ranges.js";

/** Return what `ValuePanel` takes as a class, for the actions of a behavior. */
function actionsOf({ low, high, branches, names = [], choices = [] }) {
  const count = low.length;
  const part = { name: "action", shape: [count], low, high };
  const each = names.slice(0, count).map((name, place) => ({ name, shape: [1], low: [low[place]], high: [high[place]] }));
  const parts = (each.length > 0 ? each : count > 0 ? [part] : []).map(boundedPart);
  let offset = 0;
  for (const [index, size] of branches.entries()) {
    const texts = choices.slice(offset, offset + size);
    parts.push({ name: names[count + index] ?? `choice ${index}`, shape: [1], low: [0], high: [size - 1], texts });
    offset += size;
  }
  return { observations: parts };
}

/** An observation of a row, whose values are put together when they are asked for. */
class RowObservation {
  #parts;
  #numbers;
  #images;
  #values = null;

  constructor(agent, parts, numbers, images) {
    this.agent = agent;
    this.present = numbers.length + images.length > 0;
    this.#parts = parts;
    this.#numbers = numbers;
    this.#images = images; // the bytes of each image, as base64
  }

  /** The features, with those of images in their places. */
  get values() {
    this.#values ??= this.#images.length > 0 ? this.#joined() : this.#numbers.map(Number);
    return this.#values;
  }

  #joined() {
    let [at, image] = [0, 0];
    return this.#parts.flatMap(({ kind, shape }) => {
      const size = shape.reduce((product, side) => product * side, 1);
      if (kind === "image") {
        const bytes = atob(this.#images[image++] ?? "");
        return Array.from({ length: size }, (_, place) => bytes.charCodeAt(place)); // NaN beyond its end
      }
      at += size;
      return this.#numbers.slice(at - size, at).map(Number);
    });
  }
}

/** The agents of a replay at one frame; `actors` are what is drawn. */
export class ReplayScene {
  constructor(actors, frame, isFresh) {
    this.actors = actors;
    this.frame = frame;
    this.isFresh = isFresh; // the frame has submits of its own
  }

  /** Return an actor by its name, undefined if there is none. */
  actor(name) {
    return this.actors.find((one) => one.name === name);
  }
}

/** The scenes of a document, made when they are asked for. */
export class ReplayScenes {
  #document;
  #behaviors;
  #colors = new Map(); // by name: the number of its color
  #sessions; // the numbers of all
  #sources = []; // for each frame the newest one with submits

  constructor(document) {
    this.#document = document;
    this.#behaviors = document.behaviors.map((behavior) => ({
      ...behavior,
      observations: behavior.observations.map(boundedPart),
      actions: actionsOf(behavior),
    }));
    this.#sessions = new Set(
      document.frames.flatMap(({ submits }) => submits.map(({ session }) => session)),
    );
    let source = -1;
    document.frames.forEach(({ submits }, index) => {
      if (submits.length > 0) source = index;
      this.#sources.push(source);
    });
    // Colors follow the order in which agents appear, so that a step backwards changes none.
    for (let index = 0; index < document.frames.length; index += 1) this.at(index);
  }

  /** The number of agents that have appeared, each with a color of its own. */
  get agents() {
    return this.#colors.size;
  }

  /** Return whether any frame has rows of agents. */
  get hasAgents() {
    return this.#colors.size > 0;
  }

  /** Return whether agents have places in a plane. */
  get hasPlane() {
    return this.#behaviors.some(({ positions }) => positions.length === 2);
  }

  /** Return the scene at a frame, by its index in the document. */
  at(index) {
    const { frames } = this.#document;
    const source = this.#sources[index] ?? -1;
    const actors = source < 0 ? [] : frames[source].submits.flatMap((one) => this.#actors(one));
    return new ReplayScene(actors, frames[index] ?? null, source === index);
  }

  /** Return the scene of a frame that is not in the document, as of a guest that plays now. */
  of(frame) {
    for (const { session } of frame.submits) this.#sessions.add(session);
    return new ReplayScene(frame.submits.flatMap((one) => this.#actors(one)), frame, true);
  }

  #actors(submit) {
    const actorClass = this.#behaviors[submit.behavior];
    const kind = actorClass.name || "agent";
    const of = this.#sessions.size > 1 ? `${kind} ${submit.session}:` : `${kind} `;
    return submit.agents.map((agent, row) => {
      const name = `${of}${agent}`;
      if (!this.#colors.has(name)) this.#colors.set(name, this.#colors.size);
      const { observations } = actorClass;
      const [numbers, images] = [submit.observations[row] ?? [], submit.images?.[row] ?? []];
      const actions = (submit.actions[row] ?? []).map(Number);
      return {
        name,
        index: this.#colors.get(name),
        actorClass,
        observation: new RowObservation(agent, observations, numbers, images),
        acted: { present: actions.length > 0, values: actions },
        state: submit.states[row],
        reward: Number(submit.rewards[row]),
        return: Number(submit.returns[row]),
        value: submit.values.length > row ? Number(submit.values[row]) : null,
      };
    });
  }
}

/** Return [frame, reward] for a time line: of an agent by name, or the middle of all agents. */
export function rewardsOf(scenes, count, name) {
  const points = [];
  for (let index = 0; index < count; index += 1) {
    const scene = scenes.at(index);
    if (!scene.isFresh) continue;
    const actors = name ? scene.actors.filter((one) => one.name === name) : scene.actors;
    const rewards = actors.map(({ reward }) => reward).filter(Number.isFinite);
    if (rewards.length === 0) continue;
    points.push([index, rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length]);
  }
  return points;
}

/** Return the index of the last frame of a document that is not after a frame by its number. */
export function indexOf(frames, number) {
  let [low, high] = [0, frames.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (frames[middle].frame <= number) low = middle;
    else high = middle - 1;
  }
  return Math.max(low, 0);
}

/** Return rows of a dump of memory: {address, bytes: [{hex, isFault}], text}. */
export function dumpOf({ start, fault, data }, width = 16) {
  const bytes = data.match(/../g) ?? [];
  const rows = [];
  for (let at = 0; at < bytes.length; at += width) {
    const part = bytes.slice(at, at + width);
    const text = part.map((hex) => {
      const code = parseInt(hex, 16);
      return code >= 32 && code < 127 ? String.fromCharCode(code) : "·";
    });
    rows.push({
      address: `0x${(start + at).toString(16).padStart(8, "0")}`,
      bytes: part.map((hex, place) => ({ hex, isFault: start + at + place === fault })),
      text: text.join(""),
    });
  }
  return rows;
}
