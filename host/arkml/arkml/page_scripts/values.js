// The panel with the observation of one actor: each part as what its kind is, or as bars.

import { element, setShown, setText, short } from "./dom.js";
import { EntityTable } from "./entities.js";
import { Grid } from "./grids.js";
import { imageOf, Picture } from "./pictures.js";
import { Range } from "./ranges.js";

const MOST = 48; // bars of a part

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
      return { range, fill, value, texts: part.texts ?? [] };
    });
    if (size > count) {
      this.root.append(element("span", { className: "label quiet" }, `and ${size - count} more`));
    }
  }

  show(values) {
    this.rows.forEach(({ range, fill, value, texts }, index) => {
      const number = values[this.offset + index];
      range.reach(number);
      const [zero, end] = [range.place(0), range.place(number)];
      fill.style.left = `${100 * Math.min(zero, end)}%`;
      fill.style.width = `${100 * Math.abs(end - zero)}%`;
      const text = number === undefined ? "" : (texts[number] ?? short(number, range.extent));
      setText(value, text);
    });
  }
}

/** Return what shows a part whose values begin at an offset. */
function shownPart(part, offset, size) {
  if (part.kind === "grid") return new Grid(part, offset);
  if (part.kind === "entities") return new EntityTable(part, offset);
  const image = imageOf(part);
  return image ? new Picture(part, offset, image) : new Bars(part, offset, size);
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
    const parts = actorClass.observations;
    this.#parts = parts.flatMap((part, place) => {
      const size = part.shape.reduce((product, side) => product * side, 1);
      offset += size;
      // The table of entities has their number, which is the part before them.
      return parts[place + 1]?.kind === "entities" ? [] : [shownPart(part, offset - size, size)];
    });
    this.#root.replaceChildren(...this.#parts.map((part) => part.root));
  }
}
