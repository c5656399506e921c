// What a plot says about one place: all values there, beside the pointer or by the arrow keys.

import { element } from "./shared/dom.js";

const MOST_READ = 14; // lines of one reading
const STEPS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };

/**
 * The reading of one plot, a slider for those who use keys or hear the page.
 *
 * `source` has `places()`, in their order, `read(place)` ({where, values: [{name, value, color}], hint}),
 * `point(place)`, which moves the cursor there and calls `show`, `zoom(factor, place)`, and
 * `enter(place)`, which returns false where the Enter key does nothing.
 */
export class Readout {
  constructor(target, label, source) {
    this.target = target;
    this.source = source;
    this.box = element("div", { className: "reading", hidden: true });
    target.tabIndex = 0;
    target.setAttribute("role", "slider");
    target.setAttribute("aria-label", label);
    target.addEventListener("keydown", (event) => this.#press(event));
    target.addEventListener("blur", () => this.hide());
  }

  /** Put the box into the area of a plot, and forget the place of another one. */
  attach(area) {
    this.hide();
    area.append(this.box);
    this.area = area;
  }

  /** Show the values at a place; `left` is where that lies in the area, in pixels. */
  show(place, left) {
    const { where, values, hint = "" } = this.source.read(place);
    this.index = this.source.places().indexOf(place);
    const shown = values.slice(0, MOST_READ).map(({ name, value, color }) => {
      const mark = element("span", { className: "swatch" });
      mark.style.background = color;
      return element("div", {}, mark, element("span", { className: "of" }, name), " ", element("b", {}, value));
    });
    const more = values.length - MOST_READ;
    if (more > 0) shown.push(element("div", {}, `and ${more} more`));
    if (hint) shown.push(element("div", { className: "where" }, hint));
    this.box.replaceChildren(element("div", { className: "where" }, where), ...shown);
    this.box.hidden = false;
    const isRight = left > this.area.clientWidth / 2;
    this.box.style.left = isRight ? "" : `${left + 12}px`;
    this.box.style.right = isRight ? `${this.area.clientWidth - left + 12}px` : "";
    this.#say(where, values, hint);
  }

  /** Show nothing. */
  hide() {
    this.box.hidden = true;
  }

  /** Tell the number of places, as the slider has it. */
  bound() {
    const most = Math.max(0, this.source.places().length - 1);
    this.target.setAttribute("aria-valuemin", "0");
    this.target.setAttribute("aria-valuemax", String(most));
    if (!this.target.hasAttribute("aria-valuenow")) {
      this.target.setAttribute("aria-valuenow", String(most));
      this.target.setAttribute("aria-valuetext", "arrow keys read the values");
    }
  }

  #say(where, values, hint) {
    const all = values.slice(0, MOST_READ);
    const text = all.map(({ name, value }) => (all.length > 1 ? `${name} ${value}` : value)).join("; ");
    this.target.setAttribute("aria-valuenow", String(Math.max(0, this.index)));
    this.target.setAttribute("aria-valuetext", [`${where}: ${text || "no value"}`, hint].filter(Boolean).join(". "));
  }

  #press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const places = this.source.places();
    const last = places.length - 1;
    const at = Math.min(this.index ?? last, last);
    const factor = { "+": 0.5, "-": 2 }[event.key];
    if (event.key === "Enter") {
      if (last < 0 || !this.source.enter(places[at])) return;
    } else if (factor !== undefined && last > 0) this.source.zoom(factor, places[at]);
    else if (event.key in STEPS && last >= 0) {
      const step = this.box.hidden && this.index === undefined && STEPS[event.key] === 1 ? 0 : STEPS[event.key];
      this.source.point(places[Math.max(0, Math.min(last, at + step))]);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
