// Elements of the page, with those that all pages share. Texts become text, never HTML.

import { byId, element, setShown, setText } from "./shared/dom.js";

export { byId, element, setShown, setText };

/** Return a table of rows of cells, which are texts or elements; numbers stand on the right. */
export function table(header, rows, className = "") {
  const head = element("tr", {}, ...header.map((name) => (name ? element("th", { scope: "col" }, name) : element("td", {}))));
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
