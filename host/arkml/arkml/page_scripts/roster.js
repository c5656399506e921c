// The table of actors: who plays each of them, its returns, and what may be done there.

import { element, setShown, setText, short } from "./dom.js";

/** One row of the table. */
class Row {
  constructor(actor, chosen) {
    this.actor = actor;
    this.chosen = chosen;
    this.mark = element("span", { className: "mark" }, "you");
    this.name = element("button", { type: "button", className: "name" });
    this.dot = element("span", { className: "dot" });
    this.dot.style.background = `var(--actor-${actor.index % 8})`;
    this.name.append(this.dot, actor.name);
    this.name.addEventListener("click", () => chosen.look(actor.name));
    this.who = element("td", { className: "who" });
    this.value = element("td", { className: "number" });
    this.last = element("td", { className: "number" });
    this.take = element("button", { type: "button" }, "Take over");
    this.take.addEventListener("click", () => chosen.take(actor.name));
    const head = element("th", { scope: "row" }, this.name, this.mark);
    const action = element("td", { className: "act" }, this.take);
    this.root = element("tr", {}, head, this.who, this.value, this.last, action);
  }

  show({ mine, looked }) {
    const { actor } = this;
    const isMine = actor.name === mine;
    setShown(this.mark, isMine);
    this.root.classList.toggle("mine", isMine);
    this.root.classList.toggle("looked", actor.name === looked);
    const pressed = String(actor.name === looked);
    if (this.name.getAttribute("aria-pressed") !== pressed) this.name.setAttribute("aria-pressed", pressed);
    setText(this.who, this.chosen.who(actor));
    setText(this.value, short(actor.return));
    const last = actor.ended.at(-1);
    setText(this.last, last ? short(last.return) : "–");
    setShown(this.take, !isMine && !this.chosen.isTaken(actor));
  }
}

/** Shows the actors of one scene at a time; `chosen` has `look(name)`, `take(name)`,
 * `who(actor)`, a text, and `isTaken(actor)`. */
export class Roster {
  #body;
  #chosen;
  #rows = [];

  constructor(body, chosen) {
    this.#body = body;
    this.#chosen = chosen;
  }

  /** Show the actors of a scene from now on. */
  use(scene) {
    this.#rows = scene.actors.map((actor) => new Row(actor, this.#chosen));
    this.#body.replaceChildren(...this.#rows.map((row) => row.root));
  }

  /** Show the present state; `mine` and `looked` are names. */
  show(marked) {
    for (const row of this.#rows) row.show(marked);
  }
}
