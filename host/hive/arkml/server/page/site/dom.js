// Elements of the page. Texts of runs and people become text, never HTML.

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

/** Return a table of rows of cells, which are texts or elements; numbers stand on the right. */
export function table(header, rows, className = "") {
  const head = element("tr", {}, ...header.map((name) => element("th", { scope: "col" }, name)));
  const body = rows.map((cells) =>
    element("tr", {}, ...cells.map((cell) => (cell instanceof Node && cell.tagName === "TD" ? cell : element("td", {}, cell ?? ""))))
  );
  return element(
    "div",
    { className: "scrolled", tabIndex: 0 },
    element("table", { className }, element("thead", {}, head), element("tbody", {}, ...body))
  );
}

/** Return a button that calls `press`. */
export function button(text, press, properties = {}) {
  return element("button", { type: "button", onclick: press, ...properties }, text);
}

/** Return a text that a click puts onto the clipboard. */
export function command(text) {
  const copy = button("copy", async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "copied";
    setTimeout(() => (copy.textContent = "copy"), 1_500);
  });
  const shown = element("code", {}, text);
  return element("span", { className: "command" }, shown, navigator.clipboard ? copy : "");
}
