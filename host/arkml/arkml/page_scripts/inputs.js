// What a person holds down: keys, a gamepad, sliders and resting choices.

const IDLE = { axes: [], buttons: [] };

/** Return true for an element that needs a key itself: texts all, sliders and lists their arrows. */
function takesKey(element, code) {
  if (!(element instanceof Element)) return false;
  if (element.closest("dialog") !== null) return true;
  if (element.matches("input[type=range], select")) return code.startsWith("Arrow");
  return element.matches("input, textarea");
}

/**
 * Listens to the keyboard and reads the gamepad. `changed` is called after each change.
 *
 * A key that is pressed and released between two ticks counts as held until `settle` is told that
 * an action with it was taken.
 */
export class Inputs {
  #held = new Set(); // codes of keys that are down
  #tapped = new Map(); // the times of presses since `settle`, by codes of keys
  #values = new Map(); // of continuous actions, by their sliders
  #rests = new Map(); // of branches
  #changed;
  #mapped = new Set(); // codes that mean something
  #lastPad = "";
  isEnabled = false;

  constructor(changed) {
    this.#changed = changed;
    window.addEventListener("keydown", (event) => this.#press(event));
    window.addEventListener("keyup", (event) => this.#release(event));
    window.addEventListener("blur", () => this.releaseAll());
  }

  /** Listen to the keys of a mapping from now on. */
  use(mapping) {
    const keys = [
      ...mapping.continuous.flatMap(({ less, more }) => [...less, ...more]),
      ...mapping.branches.flatMap((branch) => branch.keys),
    ];
    this.#mapped = new Set(keys.filter((code) => code !== null));
    this.#rests.clear();
    this.releaseAll();
  }

  /** Return what is held, as `actionOf` takes it. */
  get held() {
    const keys = new Set([...this.#held, ...this.#tapped.keys()]);
    return { keys, values: this.#values, rests: this.#rests, pad: gamepad() };
  }

  /** Forget presses up to a time of performance.now(), which have had their effect. */
  settle(time) {
    for (const [code, pressed] of this.#tapped) if (pressed <= time) this.#tapped.delete(code);
  }

  /** Release everything: keys, sliders and what was tapped. */
  releaseAll() {
    const wasHeld = this.#held.size + this.#tapped.size + this.#values.size > 0;
    this.#held.clear();
    this.#tapped.clear();
    this.#values.clear();
    if (wasHeld) this.#changed();
  }

  /** Set a continuous action by its slider; undefined lets go of it. */
  slide(index, value) {
    if (value === undefined) this.#values.delete(index);
    else this.#values.set(index, value);
    this.#changed();
  }

  /** Set the choice that a branch rests at. */
  rest(index, choice) {
    this.#rests.set(index, choice);
    this.#changed();
  }

  /** Report a change if the gamepad has moved since the last call. */
  poll() {
    const pad = JSON.stringify(gamepad());
    if (pad === this.#lastPad) return;
    this.#lastPad = pad;
    this.#changed();
  }

  #press(event) {
    if (!this.isEnabled || event.ctrlKey || event.altKey || event.metaKey) return;
    if (!this.#mapped.has(event.code) || takesKey(event.target, event.code)) return;
    event.preventDefault(); // arrows would scroll
    if (event.repeat || this.#held.has(event.code)) return;
    this.#held.add(event.code);
    this.#tapped.set(event.code, performance.now());
    this.#changed();
  }

  #release(event) {
    if (this.#held.delete(event.code)) this.#changed();
  }
}

/** Return the axes and buttons of the first gamepad that is connected. */
function gamepad() {
  const pads = navigator.getGamepads?.() ?? []; // missing where the page is not secure
  const pad = [...pads].find((one) => one?.connected);
  if (!pad) return IDLE;
  return { axes: [...pad.axes], buttons: pad.buttons.map((button) => button.pressed) };
}
