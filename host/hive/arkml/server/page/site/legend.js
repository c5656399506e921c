// The legend of several runs: a swatch as the charts draw it, what the group differs in, its seeds.

import { element } from "./dom.js";
import { svg } from "./svg.js";

const WIDTH = 30;
const HEIGHT = 12;
const MOST_SEEDS = 12;
const MARKS = {
  square: "M10 1h10v10h-10z",
  diamond: "M15 0l6 6l-6 6l-6 -6z",
  cross: "M13 1h4v3h3v4h-3v3h-4v-3h-3v-4h3z",
  "triangle-up": "M15 0l6 11h-12z",
};

/** Return the entries of a legend. `groups` are those of the charts. */
export function legendOf(groups) {
  return groups.map((group) => element("li", {}, swatchOf(group), group.label + seedsOf(group)));
}

function seedsOf({ runs }) {
  if (runs.length === 1) return "";
  const seeds = [...new Set(runs.map((run) => run.seed))].sort((a, b) => a - b);
  return `: ${seeds.slice(0, MOST_SEEDS).join(", ")}${seeds.length > MOST_SEEDS ? ", …" : ""}`;
}

function swatchOf({ runs, color, dash, mark }) {
  const image = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "swatch", "aria-hidden": "true" });
  if (runs.length > 1) image.append(svg("rect", { y: 1, width: WIDTH, height: HEIGHT - 2, fill: color, "fill-opacity": 0.25 }));
  const middle = HEIGHT / 2;
  image.append(svg("line", { x2: WIDTH, y1: middle, y2: middle, stroke: color, "stroke-width": 2.2, "stroke-dasharray": dash.join(" ") }));
  if (MARKS[mark]) image.append(svg("path", { d: MARKS[mark], fill: color }));
  return image;
}
