// Parts of an observation that are entities: a table with a row for each that is there.

import { element, setShown, setText, short } from "./dom.js";
import { Range } from "./ranges.js";

const LISTED = 48; // entities

/** Return how many of `most` entities are there, by the number that a row has. */
export function presentOf(count, most) {
  return Math.min(Math.max(Math.ceil(count) || 0, 0), most);
}

/** The table of a part; the value before its first one is the number of its entities. */
export class EntityTable {
  constructor(part, offset) {
    [this.most, this.width] = part.shape;
    this.offset = offset;
    this.name = part.name;
    this.caption = element("caption");
    const columns = [...Array(this.width).keys()];
    const head = ["", ...columns].map((name) => element("th", { scope: "col", className: "number" }, String(name)));
    this.rows = [...Array(Math.min(this.most, LISTED)).keys()].map((index) => {
      const cells = columns.map((column) => {
        const at = index * this.width + column;
        const { extent } = new Range(part.low[at], part.high[at]);
        return { extent, root: element("td", { className: "number" }) };
      });
      const name = element("th", { scope: "row", className: "number" }, String(index));
      return { cells, root: element("tr", { hidden: true }, name, ...cells.map(({ root }) => root)) };
    });
    this.more = element("p", { className: "quiet", hidden: true });
    const body = element("tbody", {}, ...this.rows.map(({ root }) => root));
    const table = element("table", {}, this.caption, element("thead", {}, element("tr", {}, ...head)), body);
    const options = { className: "entities", tabIndex: 0, role: "region", "aria-label": `${part.name}: entities` };
    this.root = element("div", options, table, this.more);
  }

  show(values) {
    const count = presentOf(values[this.offset - 1], this.most);
    setText(this.caption, `${this.name}: ${count} of ${this.most}`);
    this.rows.forEach(({ cells, root }, index) => {
      setShown(root, index < count);
      if (index >= count) return;
      const first = this.offset + index * this.width;
      cells.forEach(({ root, extent }, column) => setText(root, short(values[first + column], extent)));
    });
    setShown(this.more, count > this.rows.length);
    setText(this.more, `and ${count - this.rows.length} more`);
  }
}
