// How far a run is in what was asked for.

import { isOver } from "./actions.js";
import { duration, short, whole } from "./format.js";

/** Return the seconds that a run has lasted so far, or in all. */
export function lasted(run, now = Date.now()) {
  return ((run.ended_at || now * 1e6) - run.started_at) / 1e9;
}

/**
 * Return the progress of a run as { share, text }: of the limit that it reaches first.
 *
 * Limits are what its command has asked for, from when that began, and how long the run may last.
 * The time of a command counts from the first policy, before which a run may wait for a learner,
 * and is over once no host takes part. `share` is null for a run without limits, or one that is over.
 * What is no limit is said beside: frames of which the host has told none yet, and a mean return, to
 * which no run comes steadily.
 */
export function progressOf(run, now = Date.now()) {
  const all = lasted(run, now);
  if (isOver(run)) return { share: null, text: duration(all) };
  const { seconds = 0, frames = 0, since = run.started_at, mean_return: wanted } = run.goal ?? {};
  const isPaused = run.status === "paused";
  const limits = [
    limit(run.policy_version ? (now * 1e6 - since) / 1e9 : 0, isPaused ? 0 : seconds, duration),
    limit(all, run.seconds, duration),
    limit(run.frames ?? 0, run.frames === undefined ? 0 : frames, whole, " frames"),
  ].filter(({ most }) => most);
  const first = limits.reduce((a, b) => (b.share > a.share ? b : a), { share: -1 });
  const { share, text } = limits.length ? first : { share: null, text: duration(all) };
  const later = frames && run.frames === undefined ? `${whole(frames)} frames wanted` : "";
  return { share, text: [text, later, returns(run, wanted)].filter(Boolean).join(", ") };
}

function limit(spent, most, shown, unit = "") {
  const reached = Math.min(spent, most);
  return { most, share: reached / most, text: `${shown(reached)} of ${shown(most)}${unit}` };
}

function returns({ latest = {} }, wanted) {
  if (typeof wanted !== "number") return "";
  const now = latest["eval/mean_reward"] ?? latest["rollout/ep_rew_mean"];
  const reached = now === undefined ? "" : `return ${short(now)}, `;
  return `${reached}${short(wanted)} wanted`;
}
