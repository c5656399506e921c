// The mapping of keys, gamepads and sliders to the actions of a class.

/** The keys of continuous actions: [less, more], each a list of KeyboardEvent.code. */
const PAIRS = [
  [["ArrowLeft", "KeyA"], ["ArrowRight", "KeyD"]],
  [["ArrowDown", "KeyS"], ["ArrowUp", "KeyW"]],
  [["KeyQ"], ["KeyE"]],
  [["KeyF"], ["KeyR"]],
  [["KeyJ"], ["KeyL"]],
  [["KeyK"], ["KeyI"]],
  [["KeyU"], ["KeyO"]],
  [["KeyN"], ["KeyM"]],
];
const DIGITS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0].map((digit) => `Digit${digit}`);
const LETTERS = [..."ZXCVBNMTYGHUIOPJKLQWERASDF"].map((letter) => `Key${letter}`);
const SHOWN = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓" };
const DEAD = 0.12; // of a gamepad's axis, around its middle

/** Return the label of a key, as it is printed on most keyboards. */
export function keyName(code) {
  return SHOWN[code] ?? code.replace(/^(Key|Digit)/, "");
}

/** Return a number within bounds, of which either may be infinite. */
function clipped(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

/**
 * Return what a person does for each action of a class.
 *
 * `continuous` has {index, name, low, high, rest, less, more, axis} for each continuous action: keys
 * that drive it to its bounds (at most 1 from its rest where it has none), and the axis of a gamepad.
 * `branches` has {index, name, names, offset, keys, buttons} for each branch: a name, a key and a
 * gamepad's button for each choice, null where there are not enough keys or buttons, and the place
 * of its first choice in masks.
 */
export function mappingOf(actorClass) {
  const continuous = actorClass.low.map((lowest, index) => {
    const highest = actorClass.high[index];
    const rest = clipped(0, lowest, highest);
    const low = Number.isFinite(lowest) ? lowest : Math.min(rest, highest) - 1;
    const high = Number.isFinite(highest) ? highest : Math.max(rest, lowest) + 1;
    const [less, more] = PAIRS[index] ?? [[], []];
    const name = actorClass.names[index] ?? `Action ${index}`;
    return { index, name, low, high, rest, less, more, axis: index };
  });
  const used = new Set(continuous.flatMap(({ less, more }) => [...less, ...more]));
  const letters = LETTERS.filter((code) => !used.has(code));
  let offset = 0;
  let buttons = 0;
  const branches = actorClass.branches.map((count, index) => {
    const pool = index === 0 ? DIGITS : letters.splice(0, count);
    const numbers = [...Array(count).keys()];
    const branch = {
      index,
      name: actorClass.names[continuous.length + index] ?? `Branch ${index}`,
      names: numbers.map((choice) => actorClass.choices[offset + choice] ?? String(choice)),
      offset,
      keys: numbers.map((choice) => pool[choice] ?? null),
      buttons: numbers.map(() => (buttons < 16 ? buttons++ : null)),
    };
    offset += count;
    return branch;
  });
  return { continuous, branches };
}

/** Return true if the masks of an observation allow a choice; without masks all are allowed. */
export function isAllowed(allowed, branch, choice) {
  return allowed.length === 0 || allowed[branch.offset + choice] === true;
}

/**
 * Return the action {continuous, choices} of what is held down.
 *
 * `held` has {keys: a Set of codes, values: a Map of continuous actions set by sliders, rests: a Map
 * of the choices that branches rest at, pad: {axes, buttons} or null}. A masked choice gives way to
 * the one at rest, and that to the lowest that is allowed.
 */
export function actionOf(mapping, held, allowed) {
  return {
    continuous: mapping.continuous.map((action) => valueOf(action, held)),
    choices: mapping.branches.map((branch) => choiceOf(branch, held, allowed)),
  };
}

function valueOf(action, held) {
  if (held.values.has(action.index)) return held.values.get(action.index);
  const isDown = (code) => held.keys.has(code);
  const sign = Number(action.more.some(isDown)) - Number(action.less.some(isDown));
  if (sign > 0) return action.high;
  if (sign < 0) return action.low;
  const tilt = held.pad?.axes[action.axis] ?? 0;
  if (Math.abs(tilt) < DEAD) return action.rest;
  const pushed = action.axis % 2 === 1 ? -tilt : tilt; // a gamepad's vertical axes point down
  const bound = pushed > 0 ? action.high : action.low;
  return action.rest + Math.min(Math.abs(pushed), 1) * (bound - action.rest);
}

function choiceOf(branch, held, allowed) {
  const isGiven = (choice) =>
    held.keys.has(branch.keys[choice]) || held.pad?.buttons[branch.buttons[choice]] === true;
  const numbers = [...branch.keys.keys()];
  const open = numbers.filter((choice) => isAllowed(allowed, branch, choice));
  const rest = held.rests.get(branch.index) ?? 0;
  return open.find(isGiven) ?? (open.includes(rest) ? rest : (open[0] ?? 0));
}
