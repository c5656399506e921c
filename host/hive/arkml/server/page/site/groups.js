// Groups of runs that are drawn as one: what tells them apart, and their looks. No browser needed.

import { styleOf } from "./colors.js";
import { harmless, setting } from "./format.js";
import { titleOf } from "./labels.js";

const MOST_PARTS = 4; // settings that a label names

/** Return whether policies of a run were evaluated, as a setting of it. */
export function evaluationsOf(run) {
  return "eval/mean_reward" in (run.latest ?? {}) ? "some" : "none";
}

/** Return the first digits of the SHA-256 of a run's guest, as a setting of it. */
function guestOf(run) {
  return run.guest ?? "unknown";
}

/**
 * Return the settings of a run that are not the defaults; keys of the configuration that are not
 * settings are called `other.KEY`. `changed` has the settings of runs by their ids.
 */
export function changedOf(run, changed) {
  const { other, ...own } = changed[run.id] ?? {};
  const keys = Object.entries(other ?? {}).map(([key, value]) => [`other.${key}`, value]);
  return new Map([...Object.entries(own), ...keys]);
}

/** Return the value of a setting of a run, undefined where neither it nor the defaults have it. */
export function settingOf(run, name, { runs: changed, defaults }) {
  const own = changedOf(run, changed);
  if (own.has(name)) return own.get(name);
  return Object.hasOwn(defaults, name) ? defaults[name] : undefined;
}

/**
 * Return the settings in which runs differ: [{name, texts, values}], by name. Both are maps of the
 * ids of runs; the game is the first of them where runs have several.
 */
export function differences(runs, settings) {
  const own = new Map(runs.map((run) => [run.id, changedOf(run, settings.runs)]));
  const names = new Set([...own.values()].flatMap((values) => [...values.keys()]));
  const valueOf = (run, name) =>
    own.get(run.id).has(name) ? own.get(run.id).get(name) : settings.defaults[name];
  const all = [
    told("", runs, (run) => run.game),
    ...[...names].sort().map((name) => told(name, runs, (run) => valueOf(run, name))),
    told("guest", runs, guestOf),
    told("evaluations", runs, evaluationsOf),
  ];
  return all.filter(({ texts }) => new Set(texts.values()).size > 1);
}

function told(name, runs, valueOf) {
  const values = new Map(runs.map((run) => [run.id, valueOf(run)]));
  const textOf = (value) => (value === undefined ? "default" : setting(value));
  const texts = new Map([...values].map(([id, value]) => [id, textOf(value)]));
  return { name, values, texts };
}

/** Return runs in groups that differ in their seed only, in the order of their first runs. */
export function groupedBySeed(runs, changed) {
  return partition(runs, (run) =>
    JSON.stringify([
      run.game, run.features, run.actions, run.branches, guestOf(run), evaluationsOf(run),
      [...changedOf(run, changed)].sort(([a], [b]) => (a < b ? -1 : 1)),
    ])
  );
}

function partition(runs, keyOf) {
  const groups = new Map();
  for (const run of runs) {
    const key = keyOf(run);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(run);
  }
  return [...groups.values()];
}

/** Return runs in groups. `by` is "seed", "none", "game" or "setting:NAME". */
export function grouped(runs, settings, by) {
  if (by === "none") return runs.map((run) => [run]);
  if (by === "game") return partition(runs, (run) => run.game);
  if (!by.startsWith("setting:")) return groupedBySeed(runs, settings.runs);
  const name = by.slice("setting:".length);
  return partition(runs, (run) => setting(settingOf(run, name, settings) ?? "default"));
}

/**
 * Return the groups of runs that are drawn as one each, by what tells them apart:
 * [{label, runs, color, dash, mark}].
 *
 * A label names the settings that differ between groups and not within them, and the runs where
 * there are none. `settings` has those of `runs` that were changed, and `defaults`.
 */
export function groupsOf(runs, settings, by, colors) {
  const members = grouped(runs, settings, by);
  const isSame = ({ texts }) =>
    members.every((group) => group.every((run) => texts.get(run.id) === texts.get(group[0].id)));
  const telling = differences(runs, settings).filter(isSame);
  members.sort(([a], [b]) => inOrder(a, b, telling));
  const labels = unlike(members.map((group) => [labelOf(group, telling, settings, by), group]));
  return members.map((group, index) => ({
    label: labels[index] + countOf(group, settings),
    runs: group,
    ...styleOf(index, colors),
  }));
}

function inOrder(a, b, telling) {
  for (const { values, texts } of telling) {
    const [x, y] = [values.get(a.id), values.get(b.id)];
    if (typeof x === "number" && typeof y === "number" && x !== y) return x - y;
    const [s, t] = [texts.get(a.id), texts.get(b.id)];
    if (s !== t) return s < t ? -1 : 1;
  }
  return 0;
}

function labelOf(group, telling, settings, by) {
  const [first] = [...group].sort((a, b) => titleOf(a).length - titleOf(b).length);
  const parts = telling.map(({ name, texts }) => `${name} ${texts.get(first.id)}`.trim());
  const name = by.slice("setting:".length);
  if (by === "game") parts.splice(0, 1, first.game);
  else if (by.startsWith("setting:") && !telling.some((one) => one.name === name)) {
    parts.unshift(`${name} ${setting(settingOf(first, name, settings) ?? "default")}`);
  }
  const shown = parts.length ? parts : [titleOf(first)];
  const rest = shown.length - MOST_PARTS;
  const more = rest > 0 ? [`${rest} more`] : [];
  return harmless([...shown.slice(0, MOST_PARTS), ...more].join(", "));
}

/** Return labels, with what tells apart those that are the same: seeds, names, or ids. */
function unlike(pairs) {
  const alike = new Map();
  for (const [label, group] of pairs) alike.set(label, [...(alike.get(label) ?? []), group[0]]);
  const isOfOne = pairs.every(([, group]) => group.length === 1); // else the seeds are told anyway
  const kinds = [...(isOfOne ? [(run) => `seed ${run.seed}`] : []), titleOf, (run) => run.id.slice(0, 6)];
  return pairs.map(([label, [run]]) => {
    const runs = alike.get(label);
    if (runs.length === 1) return label;
    const tells = (kind) => new Set(runs.map(kind)).size === runs.length;
    return `${label}, ${harmless((kinds.find(tells) ?? ((one) => one.id))(run))}`;
  });
}

function countOf(group, settings) {
  if (group.length === 1) return "";
  const isOfSeeds = groupedBySeed(group, settings.runs).length === 1;
  return `, ${group.length} ${isOfSeeds ? "seeds" : "runs"}`;
}

/** Return the choices of groups: [[value, text]], with the settings in which runs differ. */
export function groupChoices(runs, settings) {
  const named = differences(runs, settings).filter(({ name }) => name && name !== "evaluations");
  return [
    ["seed", "seeds joined"], ["none", "each run"], ["game", "game"],
    ...named.map(({ name }) => [`setting:${name}`, name]),
  ];
}

/** Return the median of numbers, undefined without any. */
export function median(values) {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b);
  if (!sorted.length) return undefined;
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}
