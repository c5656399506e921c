// What people note about a run: its title, its tags, its star, its archive, its note.

import { change } from "./api.js";

/** Return the name under which a run is shown: its title, or its own name. Text of others. */
export function titleOf(run) {
  return run.title || run.name || run.id;
}

/** Return whether someone may change what is noted; the hive decides it for each run again. */
export function mayLabel(who) {
  return who?.role === "act" || who?.role === "admin";
}

/**
 * Change some labels of a run: any of title, note, note_revision, tags, starred, archived.
 *
 * Returns the answer, { run, note, note_revision }. Throws ApiError, with status 409 for a note
 * that someone has changed since the revision that `note_revision` names.
 */
export function patchLabels(run, labels) {
  return change("PATCH", `v1/runs/${run.id}`, labels);
}

/** Return tags with more of them, from a text with commas between them. */
export function withTags(tags, text) {
  const more = text.split(",").map((tag) => tag.trim()).filter(Boolean);
  return [...new Set([...tags, ...more])];
}
