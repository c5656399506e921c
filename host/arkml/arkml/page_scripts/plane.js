// The plane in which agents are drawn, by the two values of their observations that are positions.

import { drawMap, fixedPoints, mapOf } from "./plane_map.js";

const MARGIN = 0.07; // of the canvas, beyond the bounds
const RADIUS = 7; // pixels
const CROWD = 64; // agents, of which more have no trails, and no names but those of chosen ones

/** The number of colors of actors in the style sheet. */
export const INK_COUNT = 8;

/** The number of places of an agent that its trail has. */
export const TRAIL = 24;

/** Return a function from variables of the style sheet to colors, which a canvas takes. */
export function inkOf(canvas) {
  const style = getComputedStyle(canvas);
  return (name) => {
    canvas.style.color = `var(${name})`;
    return style.color;
  };
}

/** Return {low, high} of each value of a class's observations, in their order. */
function boundsOf(actorClass) {
  const low = actorClass.observations.flatMap((part) => [...part.low]);
  const high = actorClass.observations.flatMap((part) => [...part.high]);
  return { low, high };
}

/** The bounds of one coordinate: those that are declared, and beyond what agents have reached. */
class Extent {
  constructor(low, high) {
    const isOpen = !(Number.isFinite(low) && Number.isFinite(high) && low < high);
    this.low = isOpen ? -1 : low;
    this.high = isOpen ? 1 : high;
  }

  reach(value) {
    this.low = Math.min(this.low, value);
    this.high = Math.max(this.high, value);
  }

  /** Return where a value is, from 0 to 1 within the bounds. */
  place(value) {
    return (value - this.low) / (this.high - this.low);
  }
}

/** Draws the actors of a scene whose classes have positions. The second coordinate points up. */
export class Plane {
  #canvas;
  #extents = null;
  #trails = new Map(); // by actor: [{agent, x, y}]
  #places = []; // of what is drawn: [x, y, name], in pixels of CSS
  #mapped = new Set(); // the classes whose maps the bounds have room for

  constructor(canvas) {
    this.#canvas = canvas;
  }

  /** Return true if an actor of the scene has positions. */
  static fits(scene) {
    return scene.actors.some(({ actorClass }) => actorClass.positions.length === 2);
  }

  /** Forget what was drawn. */
  clear() {
    this.#extents = null;
    this.#mapped.clear();
    this.clearTrails();
  }

  /** Forget where the actors came from. */
  clearTrails() {
    this.#trails.clear();
  }

  /** Take in where the actors of a scene are; return those that have a place. */
  follow(scene) {
    const places = scene.actors.map((actor) => this.#placeOf(actor)).filter(Boolean);
    for (const place of places) this.#extend(place);
    return places;
  }

  /** Return the name of the actor that is drawn near a point of the canvas, "" without one. */
  at(x, y) {
    const near = this.#places
      .map(([left, top, name]) => [Math.hypot(left - x, top - y), name])
      .filter(([distance]) => distance < 3 * RADIUS)
      .sort(([one], [other]) => one - other);
    return near[0]?.[1] ?? "";
  }

  /** Return where an actor was drawn, [x, y] in pixels of CSS, undefined if it was not. */
  placeOf(actorName) {
    return this.#places.find(([, , name]) => name === actorName)?.slice(0, 2);
  }

  /** Follow the actors of a scene, and draw them; `mine` and `looked` are names. */
  draw(scene, mine, looked) {
    const places = this.follow(scene);
    const { context, width, height } = this.#sized();
    const ink = inkOf(this.#canvas);
    context.clearRect(0, 0, width, height);
    this.#grid(context, width, height, ink("--line"));
    const [across, up] = this.#extents ?? [new Extent(), new Extent()];
    const inner = (1 - 2 * MARGIN) * Math.min(width, height);
    const left = (width - inner) / 2;
    const top = (height - inner) / 2;
    const at = ({ x, y }) => [left + across.place(x) * inner, top + (1 - up.place(y)) * inner];
    this.#map(context, places, mine || looked, at, ink, height);
    places.sort((one, other) => (one.actor.name === mine) - (other.actor.name === mine));
    const isCrowd = places.length > CROWD;
    const inks = [...Array(INK_COUNT).keys()].map((index) => ink(`--actor-${index}`));
    const inkFor = ({ index }) => inks[index % INK_COUNT];
    this.#places = places.map((place) => [...at(place), place.actor.name]);
    if (isCrowd) this.#crowd(context, inks, places);
    places.forEach(({ actor }, index) => {
      const [x, y, name] = this.#places[index];
      const [isMine, isLooked] = [name === mine, name === looked];
      if (isCrowd && !isMine && !isLooked) return;
      if (!isCrowd) this.#trail(context, actor, at, inkFor(actor));
      this.#dots(context, inkFor(actor), [[x, y]]);
      if (isMine || isLooked) this.#ring(context, x, y, isMine, ink);
      this.#label(context, x, y, name, isMine, ink);
    });
  }

  #placeOf(actor) {
    const { actorClass, observation } = actor;
    if (actorClass.positions.length !== 2 || !observation?.present) return null;
    const [x, y] = actorClass.positions.map((position) => observation.values[position]);
    if (!Number.isFinite(x) || !Number.isFinite(y)) return null;
    const { low, high } = boundsOf(actorClass);
    this.#extents ??= actorClass.positions.map((one) => new Extent(low[one], high[one]));
    if (actorClass.game && !this.#mapped.has(actorClass)) {
      this.#mapped.add(actorClass);
      for (const point of fixedPoints(actorClass.game)) this.#reach(point);
    }
    this.#reach({ x, y });
    return { actor, agent: observation.agent, x, y };
  }

  #reach({ x, y }) {
    this.#extents[0].reach(x);
    this.#extents[1].reach(y);
  }

  /** Draw the targets and walls of one actor: that by its name, else the first. */
  #map(context, places, name, at, ink, height) {
    const shown = places.find(({ actor }) => actor.name === name) ?? places[0];
    const game = shown?.actor.actorClass.game;
    if (!game) return;
    const map = mapOf(game, shown.actor.observation.values, [shown.x, shown.y]);
    const inks = { wall: ink("--text"), target: ink("--target"), text: ink("--quiet"), paper: ink("--card") };
    drawMap(context, map, at, inks, height);
  }

  #sized() {
    const canvas = this.#canvas;
    const scale = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = canvas;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    return { context, width, height };
  }

  #grid(context, width, height, line) {
    const inner = (1 - 2 * MARGIN) * Math.min(width, height);
    const left = (width - inner) / 2;
    const top = (height - inner) / 2;
    context.strokeStyle = line;
    context.lineWidth = 1;
    context.beginPath();
    for (let part = 0; part <= 8; part += 1) {
      const step = (part / 8) * inner;
      context.moveTo(left + step, top);
      context.lineTo(left + step, top + inner);
      context.moveTo(left, top + step);
      context.lineTo(left + inner, top + step);
    }
    context.stroke();
  }

  #extend({ actor, agent, x, y }) {
    let trail = this.#trails.get(actor.name) ?? [];
    if (trail.at(-1)?.agent !== agent) trail = [];
    const last = trail.at(-1);
    if (last?.x !== x || last?.y !== y) trail.push({ agent, x, y });
    if (trail.length > TRAIL) trail.shift();
    this.#trails.set(actor.name, trail);
  }

  #trail(context, actor, at, color) {
    const trail = this.#trails.get(actor.name);
    context.strokeStyle = color;
    context.lineWidth = 2;
    for (let index = 1; index < trail.length; index += 1) {
      context.globalAlpha = (0.5 * index) / trail.length;
      context.beginPath();
      context.moveTo(...at(trail[index - 1]));
      context.lineTo(...at(trail[index]));
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  /** Draw all dots of a color at once, which takes a part of the time. */
  #crowd(context, inks, places) {
    inks.forEach((color, index) => {
      const own = this.#places.filter((_, place) => places[place].actor.index % INK_COUNT === index);
      this.#dots(context, color, own);
    });
  }

  #dots(context, color, points) {
    context.fillStyle = color;
    context.beginPath();
    for (const [x, y] of points) {
      context.moveTo(x + RADIUS, y);
      context.arc(x, y, RADIUS, 0, 2 * Math.PI);
    }
    context.fill();
  }

  #ring(context, x, y, isMine, ink) {
    context.strokeStyle = ink("--text");
    context.lineWidth = isMine ? 2.5 : 1;
    context.beginPath();
    context.arc(x, y, RADIUS + 4, 0, 2 * Math.PI);
    context.stroke();
  }

  #label(context, x, y, name, isMine, ink) {
    context.fillStyle = ink(isMine ? "--text" : "--quiet");
    context.font = `${isMine ? "600 " : ""}12px system-ui, sans-serif`;
    context.textAlign = "center";
    const above = y - RADIUS - 9;
    const label = isMine ? `${name} (you)` : name;
    const half = context.measureText(label).width / 2;
    const middle = Math.max(half, Math.min(x, this.#canvas.clientWidth - half)); // not cut off
    context.strokeStyle = ink("--card");
    context.lineWidth = 4;
    context.lineJoin = "round";
    context.strokeText(label, middle, above < 12 ? y + 26 : above);
    context.fillText(label, middle, above < 12 ? y + 26 : above);
  }
}
