// The note of a run: shown, changed, and never overwritten unseen when two people change it.

import { button, element, setShown, setText } from "./dom.js";
import { harmless } from "./format.js";
import { takeLabels } from "./label_panel.js";
import { mayLabel, patchLabels } from "./labels.js";

const CHANGED_MEANWHILE = 409;
const NOT_SAVED = "Not saved yet.";

/** The note of a run, which those write who may. */
export function noteOf(app, [run]) {
  return mayLabel(app.who) ? writtenNote(app, run.id) : readNote(app, run.id);
}

function readNote(app, id) {
  const target = element("p", { className: "note-text" });
  const update = () => {
    const note = app.store.details.get(id)?.note ?? "";
    setText(target, harmless(note));
    setShown(target.closest("details") ?? target, Boolean(note));
  };
  return { element: target, update };
}

function writtenNote(app, id) {
  const text = element("textarea", { rows: 4, "aria-label": "note", disabled: true });
  const state = element("p", { className: "quiet", role: "status" });
  const save = button("Save the note", () => keep(known.note_revision), { disabled: true });
  const other = element("pre", { className: "theirs", tabIndex: 0 });
  const take = button("Take that one", () => show(details()));
  const replace = button("Replace it by mine", () => keep(details().note_revision));
  const conflict = element(
    "div", { className: "conflict", hidden: true },
    element("p", { className: "trouble" }, "Someone has changed this note meanwhile:"), other,
    element("div", { className: "buttons" }, take, replace)
  );
  let known = null; // the note that the text began from
  const details = () => app.store.details.get(id);
  const isChanged = () => known !== null && text.value !== known.note;
  const show = (given) => {
    known = { note: given.note ?? "", note_revision: given.note_revision ?? 0 };
    text.value = known.note;
    text.disabled = false;
    setShown(conflict, false);
    setText(state, "");
    save.disabled = true;
  };
  const keep = async (revision) => {
    const note = text.value;
    save.disabled = true;
    try {
      const answer = await patchLabels({ id }, { note, note_revision: revision });
      known = { note: answer.note, note_revision: answer.note_revision };
      takeLabels(app.store, answer);
      setShown(conflict, false);
      setText(state, "Saved.");
    } catch (error) {
      const isConflict = error.status === CHANGED_MEANWHILE;
      setText(state, isConflict ? NOT_SAVED : error.message);
      if (isConflict) await app.store.loadDetails(id).catch(() => {});
    }
    offer();
  };
  const offer = () => (save.disabled = !isChanged() || !conflict.hidden);
  text.oninput = () => {
    offer();
    setText(state, isChanged() ? NOT_SAVED : "");
  };
  const update = () => {
    const now = details();
    if (!now) return;
    const revision = now.note_revision ?? 0;
    if (known === null && now.note) target.closest("details").open = true;
    if (known === null || (revision > known.note_revision && !isChanged())) show(now);
    else if (revision > known.note_revision) {
      setText(other, harmless(now.note));
      setShown(conflict, true);
      offer();
    }
  };
  const buttons = element("div", { className: "buttons" }, save, state);
  const target = element("div", { className: "note-panel" }, text, buttons, conflict);
  return { element: target, update, isWanted: () => !document.hidden, isFolded: true }; // until there is a note
}
