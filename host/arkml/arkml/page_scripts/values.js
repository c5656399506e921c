// The panel with the observation of one actor: bars of its values, and images of its planes.

import { element, setShown, setText, short } from "./dom.js";

const MOST = 48; // bars of a part
const LEAST_SIDE = 4; // of a part that is an image

/** Return {height, width, channels, isPlanar} if a part is an image, else null. */
export function imageShape(shape) {
  const sides = [...shape];
  if (sides.length === 2) sides.push(1);
  if (sides.length !== 3) return null;
  const isPlanar = [1, 3, 4].includes(sides[0]) && ![1, 3, 4].includes(sides[2]);
  const [height, width, channels] = isPlanar ? [sides[1], sides[2], sides[0]] : sides;
  if (height < LEAST_SIDE || width < LEAST_SIDE || ![1, 3, 4].includes(channels)) return null;
  return { height, width, channels, isPlanar };
}

/** Return the bytes of an image, RGBA, of values between bounds. */
export function pixelsOf(values, image, low, high) {
  const { height, width, channels, isPlanar } = image;
  const size = height * width;
  const bytes = new Uint8ClampedArray(4 * size).fill(255);
  for (let at = 0; at < size; at += 1) {
    for (let color = 0; color < Math.max(channels, 3); color += 1) {
      const channel = Math.min(color, channels - 1);
      const place = isPlanar ? channel * size + at : at * channels + channel;
      bytes[4 * at + color] = (255 * (values[place] - low)) / (high - low);
    }
  }
  return bytes;
}

/** The range of one value: declared, or grown to what it has been, around 0 where it is open. */
class Range {
  constructor(low, high) {
    this.isLowOpen = !Number.isFinite(low);
    this.isHighOpen = !Number.isFinite(high);
    this.low = this.isLowOpen ? Math.min(-1, high - 1) : low;
    this.high = this.isHighOpen ? Math.max(1, low + 1) : high;
  }

  reach(value) {
    if (!Number.isFinite(value)) return;
    const size = this.isLowOpen && this.isHighOpen ? Math.abs(value) : null;
    if (this.isLowOpen) this.low = Math.min(this.low, size === null ? value : -size);
    if (this.isHighOpen) this.high = Math.max(this.high, size ?? value);
  }

  /** Return where a value is, from 0 to 1; what is beyond the range is at its end. */
  place(value) {
    return Math.min(Math.max((value - this.low) / (this.high - this.low || 1), 0), 1);
  }
}

/** The bars of a part's values. */
class Bars {
  constructor(part, offset, size) {
    const count = Math.min(size, MOST);
    this.offset = offset;
    this.root = element("div", { className: "bars" });
    this.rows = [...Array(count).keys()].map((index) => {
      const range = new Range(part.low[index] ?? -Infinity, part.high[index] ?? Infinity);
      const fill = element("i");
      const value = element("output", { className: "number" });
      const label = size === 1 ? part.name : `${part.name} ${index}`;
      const track = element("span", { className: "track" }, fill);
      this.root.append(element("span", { className: "label", title: label }, label), track, value);
      return { range, fill, value };
    });
    if (size > count) {
      this.root.append(element("span", { className: "label quiet" }, `and ${size - count} more`));
    }
  }

  show(values) {
    this.rows.forEach(({ range, fill, value }, index) => {
      const number = values[this.offset + index];
      range.reach(number);
      const [zero, end] = [range.place(0), range.place(number)];
      fill.style.left = `${100 * Math.min(zero, end)}%`;
      fill.style.width = `${100 * Math.abs(end - zero)}%`;
      setText(value, number === undefined ? "" : short(number));
    });
  }
}

/** The image of a part. */
class Picture {
  constructor(part, offset, image) {
    this.offset = offset;
    this.image = image;
    this.size = image.height * image.width * image.channels;
    this.range = new Range(Math.min(...part.low), Math.max(...part.high));
    this.canvas = element("canvas", { width: image.width, height: image.height, className: "image" });
    this.root = element("figure", {}, this.canvas, element("figcaption", {}, part.name));
  }

  show(values) {
    const own = values.slice(this.offset, this.offset + this.size);
    if (own.length < this.size) return;
    for (const value of own) this.range.reach(value);
    const bytes = pixelsOf(own, this.image, this.range.low, this.range.high);
    const { width, height } = this.image;
    this.canvas.getContext("2d").putImageData(new ImageData(bytes, width, height), 0, 0);
  }
}

/** Shows observations of one class at a time in an element. */
export class ValuePanel {
  #root;
  #note;
  #actorClass = null;
  #parts = [];

  constructor(root, note) {
    this.#root = root;
    this.#note = note;
  }

  /** Show the newest observation of an actor of a scene. */
  show(actor) {
    if (actor.actorClass !== this.#actorClass) this.#build(actor.actorClass);
    const isPresent = actor.observation?.present === true;
    setShown(this.#note, !isPresent);
    this.#root.classList.toggle("stale", !isPresent);
    if (actor.observation) for (const part of this.#parts) part.show(actor.observation.values);
  }

  #build(actorClass) {
    this.#actorClass = actorClass;
    let offset = 0;
    this.#parts = actorClass.observations.map((part) => {
      const size = part.shape.reduce((product, side) => product * side, 1);
      const image = imageShape(part.shape);
      const made = image ? new Picture(part, offset, image) : new Bars(part, offset, size);
      offset += size;
      return made;
    });
    this.#root.replaceChildren(...this.#parts.map((part) => part.root));
  }
}
