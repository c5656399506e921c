// A dialog with many boxes to check, such as columns or metrics, and a search among them.

import { button, element, setText } from "./dom.js";
import { harmless } from "./format.js";

/**
 * Ask for some of many names.
 *
 * Args (of one object): `title`; `choices`, groups [title, [[key, text]]]; `chosen`, the keys that
 * are checked; `most`, how many may be; `take(keys)`, called with those that were chosen, in the
 * order of `choices`; `usual()`, if there is one, to go back to what is chosen without a choice.
 */
export function chooseNames({ title, choices, chosen, most, take, usual }) {
  const boxes = new Map();
  const said = element("p", { className: "trouble", role: "status" });
  const groups = choices.filter(([, entries]) => entries.length).map(([name, entries]) => {
    const labels = entries.map(([key, text]) => {
      const box = element("input", { type: "checkbox", checked: chosen.includes(key) });
      const label = element("label", {}, box, ` ${harmless(text)}`);
      boxes.set(key, { box, label, text: text.toLowerCase() });
      return label;
    });
    return element("fieldset", {}, element("legend", {}, name), ...labels);
  });
  const search = element("input", {
    type: "search", placeholder: "Search", "aria-label": `Search ${title.toLowerCase()}`,
    oninput: () => {
      const wanted = search.value.trim().toLowerCase();
      for (const { label, text } of boxes.values()) label.hidden = !text.includes(wanted);
    },
  });
  const apply = () => {
    const keys = [...boxes].filter(([, { box }]) => box.checked).map(([key]) => key);
    if (!keys.length) setText(said, "choose one at least");
    else if (keys.length > most) setText(said, `${keys.length} are chosen: ${most} at most`);
    else {
      dialog.close();
      take(keys);
    }
  };
  const back = () => {
    dialog.close();
    usual();
  };
  const buttons = [button("Cancel", () => dialog.close()), button("Show", apply)];
  if (usual) buttons.unshift(button("As by default", back));
  const dialog = element(
    "dialog", { className: "choices", "aria-label": title },
    element("h2", {}, title), search, element("div", { className: "groups" }, ...groups),
    said, element("div", { className: "buttons" }, ...buttons)
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
