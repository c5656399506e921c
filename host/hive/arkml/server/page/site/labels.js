// The labels that people give to a run: its title, tags, a star, and whether it is put away.

import { change } from "./api.js";

/** Return the text that stands for a run: its title, or its name where it has none. */
export function titleOf(run) {
  return run.title || run.name;
}

/** Change some of title, note, tags, starred and archived of a run. Throws ApiError. */
export function patchLabels(run, part) {
  return change("PATCH", `v1/runs/${run.id}`, part);
}
