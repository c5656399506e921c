// The line below the heading of a run: star, title, tags and archive, which people change there.

import { button, element, setShown, setText } from "./dom.js";
import { harmless } from "./format.js";
import { mayLabel, patchLabels, titleOf, withTags } from "./labels.js";

const LONGEST_TITLE = 200;

/** Keep the answer of a change in the store, before an event says so. */
export function takeLabels(store, { run, note, note_revision }) {
  store.takeRuns({ runs: [run], removed: [] });
  const details = store.details.get(run.id);
  if (details) store.details.set(run.id, { ...details, note, note_revision });
  store.changed("details");
}

/** The heading and the labels of one run. `tell` is called with a sentence about what went wrong. */
export function labelsOf(app, id, tell) {
  const run = () => app.store.runs.get(id);
  const isChangeable = mayLabel(app.who);
  const save = async (labels) => {
    try {
      tell("");
      takeLabels(app.store, await patchLabels(run(), labels));
      return true;
    } catch (error) {
      tell(error.message);
      return false;
    }
  };
  const title = titleOfRun(run, save, isChangeable);
  const tags = tagsOf(run, save, isChangeable);
  const star = starOf(run, save, isChangeable);
  const archive = archiveOf(run, save);
  const archived = element("span", { className: "pill" }, "archived");
  const target = element("div", { className: "labels" }, archived, tags.element);
  if (isChangeable) target.append(archive.element);
  const update = () => {
    if (!run()) return;
    for (const part of [title, tags, star, archive]) part.update();
    setShown(archived, Boolean(run().archived));
    target.hidden = !isChangeable && !run().archived && !run().tags?.length;
  };
  return { heading: [star.element, title.element], element: target, update };
}

function starOf(run, save, isChangeable) {
  const star = button("☆", () => save({ starred: !run().starred }), {
    className: "star", "aria-label": "star", title: "star", disabled: !isChangeable,
  });
  const update = () => {
    const isStarred = Boolean(run().starred);
    setText(star, isStarred ? "★" : "☆");
    star.setAttribute("aria-pressed", String(isStarred));
    star.hidden = !isChangeable && !isStarred;
  };
  return { element: star, update };
}

function titleOfRun(run, save, isChangeable) {
  const heading = element("h1", {});
  const name = element("span", { className: "quiet", title: "name" });
  const edit = button("Rename", () => show(true), { "data-act": "rename" });
  const input = element("input", { maxLength: LONGEST_TITLE, "aria-label": "title", size: 30 });
  const form = element(
    "form", { className: "buttons", hidden: true }, input,
    element("button", { type: "submit" }, "Save"), button("Cancel", () => show(false))
  );
  const show = (isEditing) => {
    setShown(form, isEditing);
    for (const other of [heading, edit]) setShown(other, !isEditing);
    if (isEditing) {
      input.value = titleOf(run());
      input.focus();
      input.select();
    } else edit.focus();
  };
  form.onsubmit = async (event) => {
    event.preventDefault();
    const title = input.value.trim();
    if (await save({ title: title === run().name ? "" : title })) show(false);
  };
  form.onkeydown = (event) => {
    if (event.key === "Escape") show(false);
  };
  const update = () => {
    setText(heading, harmless(titleOf(run())));
    setText(name, harmless(run().name));
    setShown(name, Boolean(run().title) && run().title !== run().name);
  };
  const parts = isChangeable ? [heading, name, form, edit] : [heading, name];
  return { element: element("span", { className: "heading" }, ...parts), update };
}

function tagsOf(run, save, isChangeable) {
  const shown = element("ul", { className: "tags", "aria-label": "tags" });
  const input = element("input", { placeholder: "add a tag", "aria-label": "add a tag", size: 12 });
  const form = element("form", {}, input);
  form.onsubmit = async (event) => {
    event.preventDefault();
    if (input.value.trim() && (await save({ tags: withTags(run().tags ?? [], input.value) }))) {
      input.value = "";
    }
  };
  const remove = async (tag) => {
    if (await save({ tags: run().tags.filter((one) => one !== tag) })) input.focus();
  };
  const chip = (tag) => {
    const cross = button("×", () => remove(tag), { "aria-label": `remove the tag ${harmless(tag)}` });
    return element("li", { className: "pill" }, harmless(tag), isChangeable ? cross : "");
  };
  let known = "";
  const update = () => {
    const tags = run().tags ?? [];
    if (JSON.stringify(tags) === known) return;
    known = JSON.stringify(tags);
    shown.replaceChildren(...tags.map(chip));
  };
  return { element: element("div", { className: "tags" }, shown, isChangeable ? form : ""), update };
}

function archiveOf(run, save) {
  const press = button("Archive", () => save({ archived: !run().archived }), {
    title: "Archived runs are hidden in lists. Nothing is removed.",
  });
  const update = () => setText(press, run().archived ? "Restore" : "Archive");
  return { element: press, update };
}
