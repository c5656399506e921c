// What charts say in words: values, places, a summary for those who hear them, a table of numbers.

import { bytes, duration, moment, percent, whole } from "./format.js";
import { nearest, placesOf, tick } from "./plot_data.js";

const MOST_ROWS = 60; // of a table
const MOST_NAMED = 6; // lines of a summary
const GENERAL = /^actions\/branch_\d+_share_\d+$/;

/** Return what a metric is and which direction is good: {text, good}; `known` is metrics.json. */
export function descriptionOf(name, known) {
  const [text = "", good = ""] = known[GENERAL.test(name) ? "actions/branch_B_share_C" : name] ?? [];
  return { text: [text, good && `${good === "higher" ? "Higher" : "Lower"} is better.`].filter(Boolean).join(" "), good };
}

/** Return a value of a chart as text. */
export function valueText(spec, value) {
  if (spec.format === ".0%") return percent(value);
  if (spec.unit === "B") return bytes(Math.round(value));
  const size = Math.abs(value);
  const isLong = size !== 0 && (size < 1e-3 || size >= 1e15);
  return isLong ? value.toExponential(3) : Number(value.toPrecision(6)).toLocaleString("en-US", { maximumFractionDigits: 12 });
}

/** Return the texts of ticks `step` apart. */
export function tickTexts(spec, values, step) {
  if (spec.format === ".0%") return values.map((value) => `${tick(100 * value, 100 * step)} %`);
  return values.map((value) => tick(value, step) + (spec.unit ?? ""));
}

/** Return a place on an axis as text. */
export function placeText(axis, x) {
  switch (axis) {
    case "time":
      return moment(x * 1e6);
    case "age":
      return `${duration(x)} after the start`;
    case "rows":
    case "updates":
      return `${whole(x)} ${axis}`;
    default:
      return `${valueText({}, x)} ${axis}`.trim();
  }
}

/** Return a chart in a sentence or more: where each line begins and ends, and its best value. */
export function summaryOf(spec, traces, axis, good = "") {
  const [map] = traces;
  if (!map) return `${spec.title}: no values yet.`;
  if (map.z) return heatSummary(spec, map, axis);
  const lines = linesOf(traces);
  const told = lines.slice(0, MOST_NAMED).map((line) => {
    const name = lines.length > 1 ? `${line.name}: ` : "";
    return name + courseOf(spec, line, axis, good);
  });
  if (lines.length > told.length) told.push(`and ${lines.length - told.length} more lines`);
  return `${spec.title}: ${told.join(". ")}.`;
}

/** Return the lines among traces: not the edges of areas, raw curves, and marks of the best. */
function linesOf(traces) {
  return traces.filter((trace) => !trace.isAside && trace.marker?.symbol !== "star");
}

function courseOf(spec, { x, y }, axis, good) {
  const known = y.map((_, index) => index).filter((index) => Number.isFinite(y[index]));
  if (!known.length) return "no values";
  const at = (index) => `${valueText(spec, y[index])} at ${placeText(axis, x[index])}`;
  const [first, last] = [known[0], known.at(-1)];
  if (first === last) return at(first);
  const pick = (better) => known.reduce((a, b) => (better(y[b], y[a]) ? b : a));
  const high = pick((a, b) => a > b);
  const low = pick((a, b) => a < b);
  const extremes =
    good === "higher" ? `best ${at(high)}`
    : good === "lower" ? `best ${at(low)}`
    : `lowest ${valueText(spec, y[low])}, highest ${valueText(spec, y[high])}`;
  return `from ${at(first)} to ${at(last)}, ${extremes}`;
}

function heatSummary(spec, { x, edges, z }, axis) {
  const last = x.length - 1;
  const bin = z.reduce((best, row, index) => (row[last] > z[best][last] ? index : best), 0);
  const range = `${valueText(spec, edges[bin])} to ${valueText(spec, edges[bin + 1])}`;
  return `${spec.title}: ${x.length} histograms from ${placeText(axis, x[0])} to ${placeText(axis, x[last])}; most values of the last one are from ${range}.`;
}

/** Return the numbers of a chart as texts: {header, rows, left}, `left` being the places that are left out. */
export function tableOf(spec, traces, axis) {
  const [map] = traces;
  if (map?.z) return heatTable(spec, map, axis);
  const lines = linesOf(traces);
  const places = placesOf(lines);
  const kept = spaced(places);
  const rows = kept.map((place) => {
    const cells = lines.map(({ x, y }) => {
      const index = x.length ? nearest(x, place) : -1;
      return x[index] === place && Number.isFinite(y[index]) ? valueText(spec, y[index]) : "";
    });
    return [placeText(axis, place), ...cells];
  });
  return { header: [axisName(axis), ...lines.map((line) => line.name)], rows, left: places.length - kept.length };
}

function heatTable(spec, { x, edges, z }, axis) {
  const kept = spaced(x.map((_, index) => index));
  const header = [axisName(axis), ...z.map((_, bin) => `${valueText(spec, edges[bin])} to ${valueText(spec, edges[bin + 1])}`)];
  const rows = kept.map((index) => [placeText(axis, x[index]), ...z.map((row) => percent(row[index]))]);
  return { header, rows, left: x.length - kept.length };
}

/** Return at most as many as a table has rows, evenly apart, with the first and the last. */
function spaced(all) {
  if (all.length <= MOST_ROWS) return all;
  const step = (all.length - 1) / (MOST_ROWS - 1);
  return Array.from({ length: MOST_ROWS }, (_, index) => all[Math.round(index * step)]);
}

function axisName(axis) {
  return { time: "time", age: "since the start" }[axis] ?? axis;
}
