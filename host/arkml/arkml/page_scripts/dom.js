// Elements of a page. Texts of guests, runs and people become text, never HTML.

/** Return the element of the page with an id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Return a new element with properties, classes and children; texts are children, too. */
export function element(tag, { className = "", ...properties } = {}, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  for (const [name, value] of Object.entries(properties)) {
    if (/^(aria-|data-|role$|for$|scope$)/.test(name)) made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

/** Set the text of an element if it differs, so that nothing is drawn or read aloud again. */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/** Show or hide an element. */
export function setShown(target, isShown) {
  if (target.hidden === isShown) target.hidden = !isShown;
}

/**
 * Return a number in few characters.
 *
 * extent: that of the range which the number is declared to have. What is smaller than the rounding
 * of float32 there is 0.
 */
export function short(value, extent = 0) {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size < 1e-6 * extent) return short(0);
  if (size !== 0 && (size < 0.001 || size >= 100_000)) return value.toExponential(1);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}
