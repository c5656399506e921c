// Views that were given a name: addresses of the page, kept in the browser.

import { fragmentOf, viewIn } from "./address.js";
import { button, element, setText } from "./dom.js";
import { harmless } from "./format.js";

const KEY = "arkml.views";
const MOST = 50;
const MOST_LETTERS = 60;
const MOST_FRAGMENT = 8_000;

/** Return the saved views: [[name, fragment]]. What is kept is not trusted. */
export function viewsIn(text) {
  try {
    const kept = JSON.parse(text ?? "[]");
    if (!Array.isArray(kept)) return [];
    const isView = (one) => Array.isArray(one) && one.length === 2 && one.every((part) => typeof part === "string");
    const isShort = ([name, fragment]) => name.length <= MOST_LETTERS && fragment.length <= MOST_FRAGMENT;
    return kept.filter(isView).filter(isShort).slice(0, MOST);
  } catch {
    return [];
  }
}

function read() {
  try {
    return viewsIn(localStorage.getItem(KEY));
  } catch {
    return []; // a browser that keeps nothing
  }
}

/** Return a button with a dialog that saves the view, and lists, loads and removes saved ones. */
export function savedViews(app) {
  return button("Views …", () => open(app), { id: "views" });
}

function open(app) {
  const said = element("p", { className: "trouble", role: "status" });
  const list = element("ul", { className: "views" });
  const name = element("input", { maxLength: MOST_LETTERS, required: true, "aria-label": "Name of the view" });
  const write = (views) => {
    try {
      localStorage.setItem(KEY, JSON.stringify(views));
      setText(said, "");
    } catch {
      setText(said, "this browser keeps nothing: a bookmark of the page's address holds the view, too");
    }
    show();
  };
  const load = (fragment) => {
    dialog.close();
    app.change(viewIn(fragment));
  };
  const show = () => {
    const views = read();
    const rows = views.map(([title, fragment]) =>
      element(
        "li", {}, button(harmless(title), () => load(fragment)),
        button("Delete", () => write(views.filter((one) => one[0] !== title)), { "aria-label": `delete ${harmless(title)}` })
      )
    );
    list.replaceChildren(...rows);
    if (!rows.length) list.append(element("li", { className: "quiet" }, "None is saved yet."));
  };
  const save = (event) => {
    event.preventDefault();
    const title = name.value.trim();
    const others = read().filter((one) => one[0] !== title);
    const fragment = fragmentOf(app.view);
    if (!title) setText(said, "a view needs a name");
    else if (others.length >= MOST) setText(said, `${MOST} views are saved already: delete one first`);
    else if (fragment.length > MOST_FRAGMENT) setText(said, `the address of this view is longer than ${MOST_FRAGMENT} letters`);
    else write([...others, [title, fragment]]);
  };
  const form = element("form", { className: "buttons", onsubmit: save }, name, element("button", {}, "Save this view"));
  const dialog = element(
    "dialog", { "aria-label": "Saved views" },
    element("h2", {}, "Saved views"), list, form, said,
    element("p", { className: "quiet" }, "They are kept in this browser. The address of the page is the view: send it to show others the same."),
    element("div", { className: "buttons" }, button("Close", () => dialog.close()))
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  show();
  dialog.showModal();
}
