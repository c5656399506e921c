// Parts of an observation that are images, drawn pixel by pixel.

import { element } from "./dom.js";
import { Range } from "./ranges.js";

const LEAST_SIDE = 4; // of a vector that is taken for an image
const WHITE = 255; // the largest value of a declared image

/** Return {height, width, channels, isPlanar} if a vector has the shape of an image, else null. */
export function imageShape(shape) {
  const sides = [...shape];
  if (sides.length === 2) sides.push(1);
  if (sides.length !== 3) return null;
  const isPlanar = [1, 3, 4].includes(sides[0]) && ![1, 3, 4].includes(sides[2]);
  const [height, width, channels] = isPlanar ? [sides[1], sides[2], sides[0]] : sides;
  if (height < LEAST_SIDE || width < LEAST_SIDE || ![1, 3, 4].includes(channels)) return null;
  return { height, width, channels, isPlanar };
}

/** Return what `imageShape` does, for a part that is declared as an image, or looks like one. */
export function imageOf({ kind, shape }) {
  if (kind !== "image") return imageShape(shape);
  const [height, width, channels] = shape;
  return { height, width, channels, isPlanar: false };
}

/**
 * Return the bytes of an image, RGBA, of values between bounds.
 *
 * One channel is gray, four have an opacity, and of others the first three are red, green and blue.
 */
export function pixelsOf(values, image, low, high) {
  const { height, width, channels, isPlanar } = image;
  const size = height * width;
  const bytes = new Uint8ClampedArray(4 * size).fill(255);
  for (let at = 0; at < size; at += 1) {
    for (let color = 0; color < (channels === 4 ? 4 : 3); color += 1) {
      const channel = channels === 1 ? 0 : color;
      const place = isPlanar ? channel * size + at : at * channels + channel;
      const value = channel < channels ? values[place] : low;
      bytes[4 * at + color] = (255 * (value - low)) / (high - low);
    }
  }
  return bytes;
}

/** The image of a part. */
export class Picture {
  constructor(part, offset, image) {
    this.offset = offset;
    this.image = image;
    const { height, width, channels } = image;
    this.size = height * width * channels;
    const least = (one, other) => Math.min(one, other);
    const most = (one, other) => Math.max(one, other);
    this.range =
      part.kind === "image" ? new Range(0, WHITE) : new Range(part.low.reduce(least), part.high.reduce(most));
    this.canvas = element("canvas", {
      width, height, className: "image", role: "img",
      "aria-label": `${part.name}: an image of ${width} by ${height} pixels, ${channels} ${channels === 1 ? "channel" : "channels"}`,
    });
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
