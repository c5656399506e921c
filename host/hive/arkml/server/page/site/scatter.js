// The chart of returns against one setting: a point for each run, and a line of medians.

import { element } from "./dom.js";
import { harmless, short } from "./format.js";
import { titleOf } from "./labels.js";
import { svg } from "./svg.js";
import { axisOf, mediansOf, placeOn, pointsOf, ticksOf } from "./sweep_points.js";

const WIDTH = 560;
const HEIGHT = 260;
const LEFT = 56;
const RIGHT = 16;
const TOP = 12;
const BOTTOM = 46;
const INSIDE = 0.05; // the share of an axis that stays free at its ends
const LONGEST = 14; // letters of a category

/** Return the chart. `yOf(run)` is the return of a run, whose title is `title`. */
export function scatterOf({ runs, axis, yOf, title, colors }) {
  const points = pointsOf(runs, axis, yOf);
  const vertical = { ...axisOf(title, new Map(points.map(({ run, y }) => [run.id, y]))), isLog: false };
  const inset = (place) => INSIDE + place * (1 - 2 * INSIDE);
  const at = (x) => LEFT + inset(placeOn(axis, x)) * (WIDTH - LEFT - RIGHT);
  const up = (y) => HEIGHT - BOTTOM - inset(placeOn(vertical, y)) * (HEIGHT - TOP - BOTTOM);
  const middle = mediansOf(points);
  const image = svg(
    "svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": `${title} against ${harmless(axis.name)}`, class: "scatter" },
    ...acrossOf(axis, at, colors), ...(points.length ? upOf(vertical, up, colors) : []),
    svg("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle", fill: colors.quiet }, harmless(axis.name) + (axis.isLog ? ", logarithmic" : "")),
    svg("polyline", { points: middle.map(({ x, y }) => `${at(x)},${up(y)}`).join(" "), fill: "none", stroke: colors.runs[0], "stroke-width": 1.7, class: "medians" }),
    ...points.map((point) => pointOf(point, at, up, axis, colors))
  );
  const caption = element("figcaption", {}, element("span", { className: "title" }, `${title} against ${harmless(axis.name)}`), element("span", { className: "quiet" }, "points: runs; line: medians"));
  const note = points.length ? [] : [element("p", { className: "quiet note" }, "no values yet")];
  return element("figure", { className: "chart", "data-metric": "sweep/scatter" }, caption, ...note, element("div", { className: "scrolled", tabIndex: 0 }, image));
}

function pointOf({ run, x, y }, at, up, axis, colors) {
  const text = `${harmless(titleOf(run))}: ${short(y)} at ${harmless(axis.categories ? axis.categories[x - 1] : String(x))}, seed ${run.seed}`;
  const circle = svg("circle", { cx: at(x), cy: up(y), r: 4, fill: colors.runs[1], "fill-opacity": 0.65 }, svg("title", {}, text));
  return svg("a", { href: `#runs=${run.id}`, "aria-label": text }, circle);
}

function acrossOf(axis, at, colors) {
  const ticks = axis.categories ? axis.categories.map((text, index) => [index + 1, shortened(text)]) : ticksOf(axis).map((x) => [x, short(x)]);
  return ticks.flatMap(([x, text]) => [
    svg("line", { x1: at(x), x2: at(x), y1: TOP, y2: HEIGHT - BOTTOM, stroke: colors.line }),
    svg("text", { x: at(x), y: HEIGHT - BOTTOM + 15, "text-anchor": "middle", fill: colors.quiet }, harmless(text)),
  ]);
}

function upOf(axis, up, colors) {
  return ticksOf(axis).flatMap((y) => [
    svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: up(y), y2: up(y), stroke: colors.line }),
    svg("text", { x: LEFT - 6, y: up(y) + 4, "text-anchor": "end", fill: colors.quiet }, short(y)),
  ]);
}

function shortened(text) {
  return text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text;
}
