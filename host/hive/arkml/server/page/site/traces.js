// The lines, bands and marks of one chart, as a plot takes them. No browser needed.

import { faint } from "./tint.js";
import { styleOf } from "./colors.js";
import { band, onAxis, smoothed } from "./curves.js";

export const UPDATES = "train/n_updates";
const BAND = { isAside: true, mode: "lines", line: { width: 0 } };

/** Return true if a chart over this axis needs the curve of updates. */
export function needsUpdates(view) {
  return view.x === "updates";
}

/**
 * Return the traces of a chart.
 *
 * `spec` has the `name` of a metric, and may have those of its `low` and `high` or of its `spread`,
 * and `best` to mark the highest value; or the `names` of several metrics, which need `colors`.
 * `points(id, name)` are the points of a curve.
 */
export function tracesOf(spec, groups, points, view, colors) {
  if (spec.names) return severalOf(spec, groups, points, view, colors);
  return groups.flatMap((group) => {
    if (group.runs.length > 1) {
      return bandTraces(spec, joinedOf(spec, group, points, view), group);
    }
    const curve = curveOf(group.runs[0], spec.name, points, view);
    return curve.xs.length ? lineTraces(spec, curve, group, points, view) : [];
  });
}

/**
 * Return the lines of several metrics in one chart, without the areas around them. Each metric has
 * its dash; of one group each has its color, too, and of several the groups have their colors, and
 * their widths when the colors come again.
 */
function severalOf({ names }, groups, points, view, colors) {
  const isOne = groups.length === 1;
  return names.flatMap((name, index) =>
    groups.flatMap((group, place) => {
      const { dash } = styleOf(index * colors.runs.length, colors);
      const looks = isOne ? { color: styleOf(index, colors).color } : { width: 1.7 + 1.5 * Math.floor(place / colors.runs.length) };
      const label = isOne ? name : `${name}, ${group.label}`;
      const traces = tracesOf({ name }, [{ ...group, ...looks, dash, label }], points, view);
      return traces.filter((trace) => !trace.isAside);
    })
  );
}

/**
 * Return what a chart is drawn from: it looks the same as long as all of this is the very same.
 */
export function inputsOf(spec, groups, points, histories, view) {
  const around = [spec.low, spec.high, spec.spread].filter(Boolean); // of runs that are no band
  const namesOf = ({ runs }) => [
    ...(spec.names ?? [spec.name]), ...(runs.length > 1 ? [] : around), ...(needsUpdates(view) ? [UPDATES] : []),
  ];
  return [
    groups, view.x, view.smooth, view.log, ...(view.zoom ?? []),
    ...groups.flatMap((group) => namesOf(group).flatMap((name) => group.runs.map((run) => points(run.id, name)))),
    ...groups.flatMap(({ runs }) => runs.map((run) => (histories.get(run.id) ?? []).at(-1)?.at)),
  ];
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
      const curve = points(run.id, spec.names?.[0] ?? spec.name);
      for (const { kind, at } of histories.get(run.id) ?? []) {
        const x = kind === "module" ? placeOf(run, curve, at, points, view) : undefined;
        if (x !== undefined) changes.push({ x, color, text: "module" });
      }
    }
  }
  return changes;
}

/**
 * Return the versions of a run that are kept, [{version, at}], each with its `x` in a chart.
 *
 * A version from before the first point lies there.
 */
export function versionsIn(spec, run, versions, points, view) {
  const curve = points(run.id, spec.name);
  return versions.flatMap((one) => {
    const x = placeOf(run, curve, Math.max(one.at, curve[0]?.[2]), points, view);
    return x === undefined ? [] : [{ ...one, x }];
  });
}

/** Return where a time lies on the axis: between the points beside it; undefined before the first. */
function placeOf(run, curve, at, points, view) {
  const index = curve.findLastIndex((point) => point[2] <= at);
  if (index < 0) return undefined;
  const [before, after] = [curve[index], curve[index + 1] ?? curve[index]];
  const part = after === before ? 0 : (at - before[2]) / (after[2] - before[2]);
  const rows = before[0] + part * (after[0] - before[0]);
  const updates = needsUpdates(view) ? points(run.id, UPDATES) : [];
  return onAxis([[rows, 0, at]], view.x, { updates, started: run.started_at }).xs[0];
}

function curveOf(run, name, points, view) {
  const updates = needsUpdates(view) ? points(run.id, UPDATES) : [];
  return onAxis(points(run.id, name), view.x, { updates, started: run.started_at });
}

const bands = new WeakMap(); // by the points of a group's first run: what was joined of them

/** Return the curves of a group and their band, which are made anew only from other points. */
function joinedOf(spec, { runs }, points, view) {
  const updates = (run) => (needsUpdates(view) ? points(run.id, UPDATES) : null);
  const inputs = runs.flatMap((run) => [points(run.id, spec.name), updates(run)]);
  const key = [view.x, view.smooth, ...inputs];
  const known = bands.get(inputs[0]);
  if (known && isAlike(known.key, key)) return known.joined;
  const curves = runs
    .map((run) => curveOf(run, spec.name, points, view))
    .filter((curve) => curve.xs.length);
  const smooth = curves.map(({ xs, ys }) => ({ xs, ys: smoothed(ys, view.smooth) }));
  const joined = { curves, smooth, ...band(smooth) };
  bands.set(inputs[0], { key, joined });
  return joined;
}

/** Return whether two lists have the very same members. */
export function isAlike(some, others) {
  return some.length === others.length && some.every((one, index) => Object.is(one, others[index]));
}

function bandTraces(spec, { curves, smooth, xs, middle, low, high }, group) {
  if (!curves.length) return [];
  const drawn = ({ xs, ys }) => line(xs, ys, group);
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

function line(x, y, { label, color, dash, mark, width = 1.7 }) {
  return {
    mode: x.length === 1 ? "markers" : "lines",
    x,
    y,
    name: label,
    line: { color, width, dash },
    marker: { color, size: 6 },
    mark: mark === "star" ? undefined : mark, // that of the best value
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
