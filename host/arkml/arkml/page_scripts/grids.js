// Parts of an observation that are grids: colored cells with a legend.

import { element } from "./dom.js";
import { INK_COUNT, inkOf } from "./plane.js";

const GRID_SIDE = 256; // pixels of the longer side, about
const LEAST_LINED = 6; // pixels of a cell that has a line around it
const NAMED = 48; // colors in a legend
const FAINTEST = 0.2; // of a color, for the smallest number that is not 0
const TURN = 137.5; // degrees of hue from one further color to the next

/** Return the color of a channel or a category; `ink` makes one of a variable of the style sheet. */
function colorOf(index, ink) {
  return index < INK_COUNT ? ink(`--actor-${index}`) : `hsl(${Math.round(index * TURN) % 360} 60% 50%)`;
}

/**
 * Return [index, strength] of each cell: what is drawn there, and how strongly, from 0 to 1.
 *
 * A category other than 0 is drawn. Of channels the last one is drawn whose number is not 0; the
 * strength is its part of `most`.
 */
export function cellsOf(values, { count, channels, categories }, most) {
  const cells = [];
  for (let at = 0; at < count; at += 1) {
    if (categories > 0) {
      const isOne = Number.isInteger(values[at]) && values[at] > 0 && values[at] < categories;
      cells.push(isOne ? [values[at], 1] : [0, 0]);
      continue;
    }
    let channel = channels - 1;
    while (channel > 0 && !values[at * channels + channel]) channel -= 1;
    const part = Math.min(Math.abs(values[at * channels + channel]) / most, 1);
    cells.push([channel, part > 0 ? FAINTEST + (1 - FAINTEST) * part : 0]);
  }
  return cells;
}

/** The cells of a part. */
export class Grid {
  constructor(part, offset) {
    const [height, width, channels = 1] = part.shape;
    const { categories } = part;
    this.offset = offset;
    this.width = width;
    this.shape = { count: height * width, channels, categories };
    this.colors = categories || channels;
    this.size = height * width * channels;
    this.most = 0; // the largest size of a number, declared or seen
    for (const bounds of [part.low, part.high]) for (const bound of bounds) this.#reach(bound);
    this.side = Math.max(1, Math.floor(GRID_SIDE / Math.max(height, width)));
    this.line = this.side >= LEAST_LINED ? 1 : 0;
    const what = categories > 0 ? `${categories} categories` : `${channels} ${channels === 1 ? "channel" : "channels"}`;
    this.canvas = element("canvas", {
      width: width * this.side - this.line, height: height * this.side - this.line, className: "grid", role: "img",
      "aria-label": `${part.name}: a grid of ${width} by ${height} cells, ${what}`,
    });
    const word = categories > 0 ? "category" : "channel";
    const names = [...Array(Math.min(this.colors, NAMED)).keys()].map((index) => this.#named(index, word));
    if (this.colors > NAMED) names.push(element("li", {}, `and ${this.colors - NAMED} more`));
    const legend = element("ul", { className: "legend" }, ...names);
    this.root = element("figure", {}, this.canvas, element("figcaption", {}, part.name, legend));
  }

  show(values) {
    const own = values.slice(this.offset, this.offset + this.size);
    if (own.length < this.size) return;
    if (this.shape.categories === 0) for (const value of own) this.#reach(value);
    const { side, line, canvas } = this;
    const context = canvas.getContext("2d");
    const ink = inkOf(canvas);
    const [paper, edges] = [ink("--paper"), ink("--line")];
    const inks = new Map();
    context.fillStyle = edges;
    context.fillRect(0, 0, canvas.width, canvas.height);
    cellsOf(own, this.shape, this.most || 1).forEach(([index, strength], at) => {
      const box = [(at % this.width) * side, Math.floor(at / this.width) * side, side - line, side - line];
      context.fillStyle = paper;
      context.fillRect(...box);
      if (strength === 0) return;
      if (!inks.has(index)) inks.set(index, colorOf(index, ink));
      context.fillStyle = inks.get(index);
      context.globalAlpha = strength;
      context.fillRect(...box);
      context.globalAlpha = 1;
    });
  }

  #reach(value) {
    if (Number.isFinite(value)) this.most = Math.max(this.most, Math.abs(value));
  }

  #named(index, word) {
    const swatch = element("i");
    const isEmpty = this.shape.categories > 0 && index === 0;
    swatch.style.background = isEmpty ? "var(--paper)" : colorOf(index, (name) => `var(${name})`);
    return element("li", {}, swatch, `${word} ${index}`);
  }
}
