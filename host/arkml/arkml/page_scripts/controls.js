// The controls of my actor: a slider for each continuous action, buttons for each branch, and keys.

import { element, setText, short } from "./dom.js";
import { actionOf, isAllowed, keyName } from "./mapping.js";

function keysOf(codes) {
  return codes.map((code) => element("kbd", {}, keyName(code)));
}

/** A slider, which springs back when it is let go. */
class Slider {
  #isHeld = false;

  constructor(action, inputs) {
    const { index, name, low, high, rest } = action;
    this.range = element("input", {
      type: "range", min: low, max: high, step: "any", value: rest, "aria-label": name,
    });
    this.extent = high - low;
    this.value = element("output", { className: "number" }, short(rest, this.extent));
    const less = element("span", { className: "keys" }, ...keysOf(action.less));
    const more = element("span", { className: "keys" }, ...keysOf(action.more));
    const label = element("span", { className: "label" }, name);
    this.root = element("div", { className: "slider" }, label, less, this.range, more, this.value);
    this.range.addEventListener("input", () => {
      this.#isHeld = true;
      inputs.slide(index, Number(this.range.value));
    });
    for (const end of ["pointerup", "pointercancel", "blur"]) {
      this.range.addEventListener(end, () => {
        this.#isHeld = false;
        inputs.slide(index, undefined);
        this.range.blur(); // else it would keep the arrows
      });
    }
  }

  show(value) {
    if (!this.#isHeld) this.range.value = value;
    setText(this.value, short(value, this.extent));
  }
}

/** The buttons of a branch: one click makes a choice the one that the branch rests at. */
class Choices {
  constructor(branch, inputs) {
    this.branch = branch;
    this.buttons = branch.keys.map((code, choice) => {
      const button = element(
        "button",
        { type: "button", className: "choice", "aria-pressed": "false" },
        element("span", {}, branch.names[choice]),
        ...(code ? keysOf([code]) : []),
      );
      button.addEventListener("click", () => inputs.rest(branch.index, choice));
      return button;
    });
    this.root = element(
      "div",
      { className: "choices", role: "group", "aria-label": branch.name },
      element("span", { className: "label" }, branch.name),
      ...this.buttons,
    );
  }

  show(chosen, allowed) {
    this.buttons.forEach((button, choice) => {
      const isMasked = !isAllowed(allowed, this.branch, choice);
      if (button.disabled !== isMasked) {
        button.disabled = isMasked;
        button.title = isMasked ? "masked: it cannot be chosen now" : "";
      }
      const pressed = String(choice === chosen);
      if (button.getAttribute("aria-pressed") !== pressed) {
        button.setAttribute("aria-pressed", pressed);
      }
    });
  }
}

/** Shows and reads the controls of one class at a time. */
export class Controls {
  #root;
  #inputs;
  #mapping = { continuous: [], branches: [] };
  #sliders = [];
  #choices = [];

  constructor(root, inputs) {
    this.#root = root;
    this.#inputs = inputs;
  }

  /** Show the controls of a class from now on. */
  use(mapping) {
    this.#mapping = mapping;
    this.#sliders = mapping.continuous.map((action) => new Slider(action, this.#inputs));
    this.#choices = mapping.branches.map((branch) => new Choices(branch, this.#inputs));
    this.#root.replaceChildren(...[...this.#sliders, ...this.#choices].map(({ root }) => root));
    this.#inputs.use(mapping);
  }

  /** Return the action of what is held now, and without what is masked. */
  action(allowed) {
    return actionOf(this.#mapping, this.#inputs.held, allowed);
  }

  /** Show the action of what is held now. */
  show(allowed) {
    const { continuous, choices } = this.action(allowed);
    this.#sliders.forEach((slider, index) => slider.show(continuous[index]));
    this.#choices.forEach((shown, index) => shown.show(choices[index], allowed));
  }
}
