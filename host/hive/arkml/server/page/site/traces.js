// The lines, bands and marks of one chart, as a plot takes them. No browser needed.

import { faint } from "./tint.js";
import { band, evaluationsOf, groupedBySeed, onAxis, smoothed } from "./curves.js";
import { harmless, setting } from "./format.js";

export const UPDATES = "train/n_updates";
const BAND = { isAside: true, mode: "lines", line: { width: 0 } };

/** Return the groups of runs that are drawn as one each: {label, runs, color}. */
export function groupsOf(runs, settings, view, colors) {
  const groups = view.band ? groupedBySeed(runs, settings) : runs.map((run) => [run]);
  return groups.map((members, index) => ({
    label: labelOf(members, runs, settings),
    runs: members,
    color: colors.runs[index % colors.runs.length],
  }));
}

function labelOf(members, runs, settings) {
  const [first] = [...members].sort((a, b) => a.name.length - b.name.length);
  const name = [harmless(first.name), ...differing(first, runs, settings)].join(", ");
  if (members.length > 1) return `${name}, ${members.length} seeds`;
  return runs.filter((run) => run.name === first.name).length > 1
    ? `${name} (seed ${first.seed}, ${first.id.slice(0, 6)})`
    : name;
}

/** Return the settings in which a run differs from others, but for the seed, each as text. */
function differing(run, runs, settings) {
  const valuesOf = (one) => ({ ...settings[one.id], evaluations: evaluationsOf(one) });
  const valueOf = (one, name) => setting(valuesOf(one)[name] ?? "default");
  const names = new Set(runs.flatMap((one) => Object.keys(valuesOf(one))));
  return [...names]
    .filter((name) => runs.some((one) => valueOf(one, name) !== valueOf(run, name)))
    .sort()
    .map((name) => harmless(`${name} ${valueOf(run, name)}`));
}

/** Return true if a chart over this axis needs the curve of updates. */
export function needsUpdates(view) {
  return view.x === "updates";
}

/**
 * Return the traces of a chart.
 *
 * `spec` has the `name` of a metric, and may have those of its `low` and `high` or of its `spread`,
 * and `best` to mark the highest value. `points(id, name)` are the points of a curve.
 */
export function tracesOf(spec, groups, points, view) {
  const traces = [];
  for (const group of groups) {
    const drawn = group.runs
      .map((run) => curveOf(run, spec.name, points, view))
      .filter((curve) => curve.xs.length);
    if (group.runs.length > 1) traces.push(...bandTraces(spec, drawn, group, view));
    else traces.push(...lineTraces(spec, drawn[0], group, points, view));
  }
  return traces;
}

/**
 * Return the places of a chart where the module of a guest has changed: {x, color, text}.
 *
 * `histories` has the events of runs by their ids. An event is at the last point before it.
 */
export function changesOf(spec, groups, points, histories, view) {
  const changes = [];
  for (const { runs, color } of groups) {
    for (const run of runs) {
      const curve = points(run.id, spec.name);
      for (const { kind, at } of histories.get(run.id) ?? []) {
        const before = kind === "module" && curve.findLast((point) => point[2] <= at);
        if (!before) continue;
        const updates = needsUpdates(view) ? points(run.id, UPDATES) : [];
        const [x] = onAxis([[before[0], 0, at]], view.x, { updates, started: run.started_at }).xs;
        if (x !== undefined) changes.push({ x, color, text: "module" });
      }
    }
  }
  return changes;
}

function curveOf(run, name, points, view) {
  const updates = needsUpdates(view) ? points(run.id, UPDATES) : [];
  return onAxis(points(run.id, name), view.x, { updates, started: run.started_at });
}

function bandTraces(spec, curves, group, view) {
  if (!curves.length) return [];
  const smooth = curves.map(({ xs, ys }) => ({ xs, ys: smoothed(ys, view.smooth) }));
  const drawn = ({ xs, ys }) => line(xs, ys, group);
  const { xs, middle, low, high } = band(smooth);
  const traces = xs.length
    ? [
        { ...BAND, x: xs, y: low },
        { ...BAND, x: xs, y: high, fill: faint(group.color, 0.2) },
        drawn({ xs, ys: middle }),
      ]
    : smooth.map(drawn); // they have no place in common yet
  if (spec.best) {
    const highest = ({ ys }) => Math.max(...ys);
    const best = curves.reduce((a, b) => (highest(b) > highest(a) ? b : a));
    traces.push(bestOf(best.xs, best.ys, group));
  }
  return traces;
}

function lineTraces(spec, curve, group, points, view) {
  if (!curve) return [];
  const [run] = group.runs;
  const traces = [];
  const around = areaOf(spec, run, points, view);
  if (around) {
    const [low, high] = around;
    traces.push(
      { ...BAND, x: low.xs, y: low.ys },
      { ...BAND, x: high.xs, y: high.ys, fill: faint(group.color, 0.18) }
    );
  }
  if (view.smooth) {
    const raw = line(curve.xs, curve.ys, { ...group, color: faint(group.color, 0.25) });
    traces.push({ ...raw, mark: undefined, isAside: true });
  }
  traces.push(line(curve.xs, smoothed(curve.ys, view.smooth), group));
  if (spec.best) traces.push(bestOf(curve.xs, curve.ys, group));
  return traces;
}

/** Return the curves below and above a line, null without them. */
function areaOf(spec, run, points, view) {
  if (spec.low) {
    const pair = [spec.low, spec.high].map((name) => curveOf(run, name, points, view));
    const smooth = pair.map(({ xs, ys }) => ({ xs, ys: smoothed(ys, view.smooth) }));
    return pair.every((curve) => curve.xs.length) ? smooth : null;
  }
  if (!spec.spread) return null;
  const widths = new Map(points(run.id, spec.spread).map((point) => [point[2], point[1]]));
  const both = points(run.id, spec.name).filter((point) => widths.has(point[2]));
  if (!both.length) return null;
  const updates = needsUpdates(view) ? points(run.id, UPDATES) : [];
  return [-1, 1].map((sign) => {
    const moved = both.map(([step, value, at]) => [step, value + sign * widths.get(at), at]);
    const { xs, ys } = onAxis(moved, view.x, { updates, started: run.started_at });
    return { xs, ys: smoothed(ys, view.smooth) };
  });
}

function line(x, y, { label, color, dash, mark }) {
  return {
    mode: x.length === 1 ? "markers" : "lines",
    x,
    y,
    name: label,
    line: { color, width: 1.7, dash },
    marker: { color, size: 6 },
    mark,
  };
}

function bestOf(x, ys, group) {
  const at = ys.indexOf(Math.max(...ys));
  return {
    mode: "markers",
    x: [x[at]],
    y: [ys[at]],
    name: `highest of ${group.label}`,
    marker: { color: group.color, size: 11, symbol: "star" },
  };
}

/** Return the axis of a histogram: rows in place of updates where `updates` has no points. */
export function axisOfHeat(view, updates) {
  return needsUpdates(view) && !updates.length ? "rows" : view.x;
}

/**
 * Return the map of a histogram over time: its shares by bin and place; null without any rows.
 *
 * `updates` are the points of train/n_updates, which an axis of updates needs.
 */
export function heatOf({ times, rows, edges, counts }, view, started, colors, updates = []) {
  if (!counts?.length) return null;
  const kind = axisOfHeat(view, updates);
  const { xs: x } = onAxis(times.map((at, index) => [rows[index], 0, at]), kind, { updates, started });
  const sums = counts.map((one) => one.reduce((sum, count) => sum + count, 0) || 1);
  const z = edges.slice(1).map((_, bin) => counts.map((one, index) => one[bin] / sums[index]));
  return { x, edges, z, colors: colors.heat };
}
