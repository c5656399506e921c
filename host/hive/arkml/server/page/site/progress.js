// How far a run is in the time that was asked for.

import { isOver } from "./actions.js";
import { duration } from "./format.js";

/** Return the seconds that a run has lasted so far, or in all. */
export function lasted(run, now = Date.now()) {
  return ((run.ended_at || now * 1e6) - run.started_at) / 1e9;
}

/**
 * Return the progress of a run as { share, text }: of the limit that it reaches first.
 *
 * Limits are what its command has asked for, from when that began, and how long the run may last.
 * `share` is null for a run without limits, or one that is over.
 */
export function progressOf(run, now = Date.now()) {
  const all = lasted(run, now);
  if (isOver(run)) return { share: null, text: duration(all) };
  const { seconds = 0, since = run.started_at } = run.goal ?? {};
  const limits = [[(now * 1e6 - since) / 1e9, seconds], [all, run.seconds]].filter(([, most]) => most);
  if (!limits.length) return { share: null, text: duration(all) };
  const [spent, most] = limits.reduce((a, b) => (b[0] / b[1] > a[0] / a[1] ? b : a));
  const text = `${duration(Math.min(spent, most))} of ${duration(most)}`;
  return { share: Math.min(1, spent / most), text };
}
