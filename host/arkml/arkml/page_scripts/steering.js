// Steering by a finger on the plane: my agent is driven to where it points.

const FULL = 70; // pixels from the agent, at which an action is at its bound

/**
 * Sets the first two continuous actions while a finger or a pen is down on the plane.
 *
 * `mine()` returns {mapping, place} of the agent that I play, with its place in pixels, or null.
 */
export class Steering {
  #canvas;
  #inputs;
  #mine;
  #finger = null; // {id, x, y}

  constructor(canvas, inputs, mine) {
    this.#canvas = canvas;
    this.#inputs = inputs;
    this.#mine = mine;
    canvas.addEventListener("pointerdown", (event) => this.#press(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const end of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(end, (event) => this.#lift(event));
    }
  }

  /** True while a finger steers. */
  get isOn() {
    return this.#finger !== null;
  }

  /** Steer from where my agent is now. */
  update() {
    const mine = this.#finger === null ? null : this.#mine();
    if (!mine?.place) return;
    const [x, y] = mine.place;
    const ways = [(this.#finger.x - x) / FULL, (y - this.#finger.y) / FULL];
    mine.mapping.continuous.slice(0, 2).forEach(({ index, low, high, rest }) => {
      const part = Math.min(Math.max(ways[index], -1), 1);
      this.#inputs.slide(index, rest + Math.abs(part) * ((part > 0 ? high : low) - rest));
    });
  }

  #press({ pointerType, pointerId: id, offsetX: x, offsetY: y }) {
    const mine = this.#mine();
    if (pointerType === "mouse" || this.isOn || !mine?.mapping.continuous.length) return;
    this.#canvas.setPointerCapture(id);
    this.#finger = { id, x, y };
    this.update();
  }

  #move({ pointerId: id, offsetX: x, offsetY: y }) {
    if (this.#finger?.id === id) this.#finger = { id, x, y };
  }

  #lift({ pointerId }) {
    if (this.#finger?.id !== pointerId) return;
    this.#finger = null;
    for (const { index } of this.#mine()?.mapping.continuous.slice(0, 2) ?? []) {
      this.#inputs.slide(index, undefined);
    }
  }
}
