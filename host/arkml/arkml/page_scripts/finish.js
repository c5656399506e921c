// The end of my episode, shown over the plane with a countdown to the next one.

import { element, setShown, setText } from "./dom.js";
import { endText } from "./scores.js";

/** Milliseconds from the end of a person's episode to the next one. */
export const BREAK = 2_000;

/** Shows the end of an episode in one of two boxes: that of the plane, if it is shown. */
export class Finish {
  #boxes;
  #text = element("strong");
  #count = element("span");
  #root = element("div", { className: "finish", hidden: true, "aria-hidden": "true" }, this.#text, this.#count);
  #until = null;

  constructor(...boxes) {
    this.#boxes = boxes;
  }

  /** Show the end of an episode of a game from a time on, as `ScoreBoard.show` tells it. */
  begin(now, game, { end, isWhole, isBest }) {
    this.#until = now + BREAK;
    setText(this.#text, `${endText(game, end, isWhole)}${isBest ? " – your best today" : ""}`);
    this.#boxes.find((box) => !box.hidden)?.append(this.#root);
    this.show(now);
  }

  /** Show what is left of the break; return true while it lasts. */
  show(now) {
    const left = this.#until === null ? 0 : this.#until - now;
    setShown(this.#root, left > 0);
    if (left <= 0) this.#until = null;
    else setText(this.#count, `The next episode begins in ${Math.ceil(left / 1_000)} s`);
    return left > 0;
  }

  /** End the break. */
  clear() {
    this.#until = null;
    setShown(this.#root, false);
  }
}
