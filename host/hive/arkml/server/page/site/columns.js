// The columns of the table of runs: what there is to choose, and the value and text of each.

import { harmless, moment, setting, short, whole } from "./format.js";
import { changedOf, settingOf } from "./groups.js";
import { titleOf } from "./labels.js";
import { lasted } from "./progress.js";

export const RETURN = "rollout/ep_rew_mean";
export const EVALUATION = "eval/mean_reward";
const MOST_SETTINGS = 12;

/** The columns that are always there to choose; those with `cell` are more than a text. */
export const OWN = [
  { key: "starred", title: "★", label: "star", value: (run) => (run.starred ? 1 : 0), cell: "star" },
  { key: "name", title: "run", value: (run) => titleOf(run).toLowerCase(), cell: "name" },
  { key: "tags", title: "tags", value: (run) => (run.tags ?? []).join(" ").toLowerCase(), cell: "tags" },
  { key: "game", title: "game", value: (run) => run.game.toLowerCase(), text: (run) => harmless(run.game) },
  { key: "status", title: "status", value: (run) => run.status, cell: "status" },
  { key: "return", title: "mean return", value: (run) => run.latest[RETURN], text: (run) => short(run.latest[RETURN]), number: true },
  { key: "evaluation", title: "evaluation", value: (run) => run.latest[EVALUATION], text: (run) => short(run.latest[EVALUATION]), number: true },
  { key: "curve", title: "", label: "curve", cell: "spark" },
  { key: "rows", title: "rows", value: (run) => run.rows, text: (run) => whole(run.rows), number: true },
  { key: "n_opts", title: "updates", value: (run) => run.n_opts, text: (run) => whole(run.n_opts), number: true },
  { key: "progress", title: "progress", value: (run) => lasted(run), cell: "progress", number: true },
  { key: "started_at", title: "started", value: (run) => run.started_at, text: (run) => moment(run.started_at), className: "time" },
  { key: "seed", title: "seed", value: (run) => run.seed, text: (run) => String(run.seed), number: true },
];

/** Return the column of a key: "rows", "setting:NAME" or "metric:NAME"; undefined for another. */
export function columnOf(key, settings) {
  const [, kind, name] = /^(setting|metric):(.+)$/s.exec(key) ?? [];
  if (kind === "setting") {
    return {
      key, title: name, value: (run) => settingOf(run, name, settings),
      text: (run) => harmless(setting(settingOf(run, name, settings) ?? "")),
      isChanged: (run) => changedOf(run, settings.runs).has(name),
    };
  }
  if (kind === "metric") {
    const value = (run) => (Object.hasOwn(run.latest, name) ? run.latest[name] : undefined);
    return { key, title: name, value, text: (run) => short(value(run)), number: true };
  }
  return OWN.find((one) => one.key === key);
}

/** Return the settings in which runs differ, or that are not the defaults, by name. */
export function changedSettings(runs, settings) {
  const names = new Set(runs.flatMap((run) => [...changedOf(run, settings.runs).keys()]));
  const own = [...names].filter((name) => !name.startsWith("other."));
  const kinds = new Map(
    own.map((name) => [name, new Set(runs.map((run) => setting(settingOf(run, name, settings) ?? ""))).size])
  );
  return own.sort((a, b) => kinds.get(b) - kinds.get(a) || (a < b ? -1 : 1)).slice(0, MOST_SETTINGS);
}

/** Return the keys of the columns that are shown as long as none were chosen. */
export function usualColumns(runs, settings) {
  const hasTags = runs.some((run) => run.tags?.length);
  const own = OWN.map((one) => one.key).filter((key) => key !== "tags" || hasTags);
  return [...own, ...changedSettings(runs, settings).map((name) => `setting:${name}`)];
}

/** Return all that there is to choose, in groups: [[title, [[key, text]]]]. */
export function columnChoices(runs, settings) {
  const changed = new Set(runs.flatMap((run) => [...changedOf(run, settings.runs).keys()]));
  const names = [...changed].sort();
  const rest = Object.keys(settings.defaults).filter((name) => !changed.has(name)).sort();
  const metrics = [...new Set(runs.flatMap((run) => Object.keys(run.latest)))].sort();
  return [
    ["Of each run", OWN.map(({ key, title, label }) => [key, label ?? title])],
    ["Settings", [...names, ...rest].map((name) => [`setting:${name}`, name])],
    ["Newest value of a metric", metrics.map((name) => [`metric:${name}`, name])],
  ];
}

/**
 * Return runs in the order of a column, "-name" for the reverse; those without a value last.
 *
 * Those with a star come before all others, but where the column is that of the stars.
 */
export function sorted(runs, sort, settings) {
  const sign = sort.startsWith("-") ? -1 : 1;
  const key = sort.replace(/^-/, "");
  const value = columnOf(key, settings)?.value ?? (() => undefined);
  const isBehind = (run) => key !== "starred" && !run.starred;
  const values = new Map(runs.map((run) => [run.id, value(run)]));
  const isMissing = (one) => one === undefined || one === null || Number.isNaN(one);
  return [...runs].sort((a, b) => {
    if (isBehind(a) !== isBehind(b)) return isBehind(a) - isBehind(b);
    const [x, y] = [values.get(a.id), values.get(b.id)];
    if (isMissing(x) || isMissing(y)) return isMissing(x) - isMissing(y);
    if (typeof x === "number" && typeof y === "number") return sign * (x - y);
    const [s, t] = [setting(x), setting(y)];
    return sign * (s < t ? -1 : s > t ? 1 : 0);
  });
}
