// Runs as points over their settings: axes, returns, medians. No browser needed.

import { EVALUATION, RETURN } from "./columns.js";
import { setting } from "./format.js";
import { differences, median } from "./groups.js";

const DECADES = 100; // the highest by the lowest value, from which an axis is logarithmic
const MOST_AXES = 10;

/** Return the settings in which runs differ, by name, as axes can show them. */
export function axesOf(runs, settings) {
  return differences(runs, settings)
    .filter(({ name }) => name !== "evaluations")
    .slice(0, MOST_AXES)
    .map(({ name, values }) => axisOf(name || "game", values));
}

/**
 * Return an axis of the values of runs, by their ids: {name, isLog, categories, low, high, valueOf}.
 *
 * `categories` are texts, null for numbers; `valueOf(id)` is a number, the place of the category
 * from 1 for a text, and undefined for a run without a value.
 */
export function axisOf(name, values) {
  const all = [...values.values()].filter((value) => value !== undefined);
  const isNumber = all.length > 0 && all.every(Number.isFinite);
  const categories = isNumber ? null : [...new Set(all.map(setting))].sort();
  const valueOf = (id) => {
    const value = values.get(id);
    if (value === undefined) return undefined;
    return isNumber ? value : categories.indexOf(setting(value)) + 1;
  };
  const low = isNumber ? Math.min(...all) : 1;
  const high = isNumber ? Math.max(...all) : Math.max(1, categories.length);
  return { name, isLog: isNumber && low > 0 && high / low >= DECADES, categories, low, high, valueOf };
}

/** Return the place of a value on an axis, from 0 to 1. */
export function placeOn({ isLog, low, high }, value) {
  if (high === low) return 0.5;
  const at = isLog ? Math.log : (x) => x;
  return (at(value) - at(low)) / (at(high) - at(low));
}

/** Return the value at a place of an axis, from 0 to 1: what `placeOn` takes back. */
export function valueAtPlace({ isLog, low, high }, place) {
  const within = Math.min(1, Math.max(0, place));
  return isLog ? low * (high / low) ** within : low + within * (high - low);
}

/** Return about `count` round numbers of an axis. */
export function ticksOf({ isLog, low, high }, count = 5) {
  if (high === low) return [low];
  if (isLog) {
    const powers = [];
    for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power += 1) powers.push(10 ** power);
    const step = Math.ceil(powers.length / count);
    return powers.filter((_, index) => index % step === 0);
  }
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const ticks = [];
  for (let index = Math.ceil(low / step); index * step <= high + step / 1e6; index += 1) {
    ticks.push(Number((index * step).toPrecision(12)));
  }
  return ticks;
}

/** Return a return of a run: "best" of its evaluations, its last "evaluation", or mean "return". */
export function returnOf(run, of, bests) {
  if (of === "return") return run.latest[RETURN];
  if (of === "evaluation") return run.latest[EVALUATION];
  const known = [bests.get(run.id), run.latest[EVALUATION]].filter(Number.isFinite);
  return known.length ? Math.max(...known) : undefined;
}

/** Return the runs that have a value and a return: [{run, x, y}], by their values. */
export function pointsOf(runs, axis, yOf) {
  return runs
    .map((run) => ({ run, x: axis.valueOf(run.id), y: yOf(run) }))
    .filter(({ x, y }) => Number.isFinite(x) && Number.isFinite(y))
    .sort((a, b) => a.x - b.x);
}

/** Return the median at each value of points: [{x, y, count}], by value. */
export function mediansOf(points) {
  const at = new Map();
  for (const { x, y } of points) at.set(x, [...(at.get(x) ?? []), y]);
  return [...at].map(([x, ys]) => ({ x, y: median(ys), count: ys.length })).sort((a, b) => a.x - b.x);
}

/** Return whether a run is within all ranges [low, high] of axes by name; an end may be null. */
export function isWithin(run, axes, brush) {
  return axes.every(({ name, valueOf }) => {
    if (!Object.hasOwn(brush, name)) return true;
    const [low, high] = brush[name];
    const value = valueOf(run.id);
    return value !== undefined && value >= (low ?? -Infinity) && value <= (high ?? Infinity);
  });
}

/** Return the rows of a file of runs with their settings on the axes, and their return. */
export function sweepRows(runs, axes, title, yOf) {
  const textOf = ({ categories, valueOf }, run) => {
    const value = valueOf(run.id);
    return categories && value !== undefined ? categories[value - 1] : value ?? "";
  };
  const header = ["run", "id", "seed", ...axes.map((axis) => axis.name), title];
  return [header, ...runs.map((run) => [run.name, run.id, run.seed, ...axes.map((axis) => textOf(axis, run)), yOf(run) ?? ""])];
}
