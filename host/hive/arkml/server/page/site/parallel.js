// Parallel coordinates: an axis for each setting and one for the return, and a line for each run.

import { element } from "./dom.js";
import { harmless, short } from "./format.js";
import { titleOf } from "./labels.js";
import { svg } from "./svg.js";
import { placeOn, ticksOf, valueAtPlace } from "./sweep_points.js";

const HEIGHT = 260;
const TOP = 26;
const BOTTOM = 12;
const WIDTH = 520; // of all axes, as far as that leaves room between them
const LEAST_APART = 110;
const MOST_APART = 320;
const SIDE = 60;
const BEYOND = 8; // an axis, where a drag may begin or end
const LEAST = 4; // of a drag that is no click
const LONGEST = 12; // letters of a category

/**
 * Return the chart. `axes` end with that of the return; `within` are those of the runs whose lines
 * are not faint; `brush(name, range)` changes the range of an axis, null for none; `ranges` has them.
 */
export function parallelOf({ runs, within, axes, brush, ranges, colors }) {
  const apart = Math.min(MOST_APART, Math.max(LEAST_APART, WIDTH / (axes.length - 1)));
  const at = (index) => SIDE + index * apart;
  const up = (place) => HEIGHT - BOTTOM - place * (HEIGHT - TOP - BOTTOM);
  const width = 2 * SIDE + (axes.length - 1) * apart;
  const isWithin = new Set(within);
  const last = axes.at(-1);
  const lines = [...runs].sort((a, b) => isWithin.has(a) - isWithin.has(b)).map((run) => {
    const points = axes
      .map((axis, index) => [at(index), up(placeOn(axis, axis.valueOf(run.id)))])
      .filter(([, y]) => Number.isFinite(y));
    const path = points.map((point) => point.join()).join(" ");
    const color = isWithin.has(run) ? colorOf(last, run, colors) : colors.line;
    const text = svg("title", {}, `${harmless(titleOf(run))}: ${short(last.valueOf(run.id))}`);
    return svg("polyline", { points: path, fill: "none", stroke: color, "stroke-width": 1.5, class: isWithin.has(run) ? "within" : "outside" }, text);
  });
  const parts = axes.map((axis, index) => axisPart(axis, at(index), up, ranges, brush, colors));
  const image = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, class: "parallel", role: "img", "aria-label": "parallel coordinates" }, ...lines, ...parts);
  const inputs = element("div", { className: "brushes" }, ...axes.map((axis) => rangeInputs(axis, ranges, brush)));
  const caption = element("figcaption", {}, element("span", { className: "title" }, "Parallel coordinates"), element("span", { className: "quiet" }, "drag over an axis, or write a range below"));
  return element("figure", { className: "chart", "data-metric": "sweep/parallel" }, caption, element("div", { className: "scrolled", tabIndex: 0 }, image), inputs);
}

function colorOf(axis, run, colors) {
  const value = axis.valueOf(run.id);
  if (!Number.isFinite(value)) return colors.quiet;
  const shades = colors.heat.slice(1);
  return shades[Math.min(shades.length - 1, Math.floor(placeOn(axis, value) * shades.length))];
}

function axisPart(axis, x, up, ranges, brush, colors) {
  const ticks = axis.categories ? axis.categories.map((text, index) => [index + 1, text]) : ticksOf(axis).map((value) => [value, short(value)]);
  const hit = svg("rect", { x: x - 14, y: up(1) - BEYOND, width: 28, height: up(0) - up(1) + 2 * BEYOND, fill: "transparent", class: "axis" });
  const group = svg(
    "g", {},
    svg("line", { x1: x, x2: x, y1: up(0), y2: up(1), stroke: colors.quiet }),
    svg("text", { x, y: 14, "text-anchor": "middle", fill: colors.text }, shortened(axis.name, 18)),
    ...ticks.map(([value, text]) => svg("text", { x: x + 5, y: up(placeOn(axis, value)) + 4, fill: colors.quiet }, shortened(text, LONGEST))),
    ...rangePart(axis, x, up, ranges, colors), hit
  );
  let from = null;
  const placeAt = (event) => {
    const box = hit.getBoundingClientRect();
    const beyond = (BEYOND / (up(0) - up(1) + 2 * BEYOND)) * box.height;
    return 1 - (event.clientY - box.top - beyond) / (box.height - 2 * beyond);
  };
  hit.addEventListener("pointerdown", (event) => {
    from = { y: event.clientY, place: placeAt(event) };
    hit.setPointerCapture(event.pointerId);
  });
  hit.addEventListener("pointerup", (event) => {
    if (!from) return;
    const ends = [from.place, placeAt(event)].sort((a, b) => a - b).map((place) => valueAtPlace(axis, place));
    const isClick = Math.abs(event.clientY - from.y) < LEAST;
    from = null;
    brush(axis.name, isClick ? null : ends.map((value) => Number(value.toPrecision(6))));
  });
  return group;
}

function rangePart(axis, x, up, ranges, colors) {
  if (!Object.hasOwn(ranges, axis.name)) return [];
  const [low, high] = ranges[axis.name].map((end, index) => up(end === null ? index : Math.min(1, Math.max(0, placeOn(axis, end)))));
  return [svg("rect", { x: x - 5, y: high, width: 10, height: Math.max(1, low - high), fill: colors.runs[0], "fill-opacity": 0.35 })];
}

function rangeInputs(axis, ranges, brush) {
  const ends = Object.hasOwn(ranges, axis.name) ? ranges[axis.name] : [null, null];
  const inputs = ends.map((end, index) => {
    const properties = {
      type: "number", step: "any", value: end ?? "", placeholder: short(index ? axis.high : axis.low),
      "aria-label": `${index ? "highest" : "lowest"} ${harmless(axis.name)}`, "data-brush": `${index} ${axis.name}`,
      onchange: () => {
        const range = inputs.map((input) => (input.value === "" ? null : Number(input.value)));
        // Later, since the change comes before the focus has moved to the next input.
        setTimeout(() => brush(axis.name, range.every((one) => one === null) ? null : range));
      },
    };
    return element("input", properties);
  });
  const numbers = axis.categories?.map((text, index) => `${index + 1} = ${shortened(text, 20)}`).join(", ");
  return element("div", {}, element("span", {}, shortened(axis.name, 24)), ...inputs, element("span", { className: "quiet" }, numbers ?? ""));
}

function shortened(text, most) {
  const shown = harmless(text);
  return shown.length > most ? `${shown.slice(0, most - 1)}…` : shown;
}
