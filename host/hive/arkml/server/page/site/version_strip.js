// The curve of a run's returns with its kept versions, of which one is chosen by click or keys.

import { element } from "./dom.js";
import { moment, short, whole } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [1000, 100];
const CURVES = ["eval/mean_reward", "rollout/ep_rew_mean"]; // the first that has values

function drawn(tag, properties) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties)) made.setAttribute(name, String(value));
  return made;
}

/** Return the index of the version that is nearest to a time. */
export function nearest(versions, at) {
  let found = 0;
  versions.forEach((one, index) => {
    if (Math.abs(one.at - at) < Math.abs(versions[found].at - at)) found = index;
  });
  return found;
}

/** Return the value of a curve, [[, value, at]], at a time: of the last point that is not after it. */
export function valueAt(points, at) {
  const before = points.filter((point) => point[2] <= at);
  return before.at(-1)?.[1] ?? points[0]?.[1];
}

/**
 * A strip of versions, each {version, at}; `choose` is called with the number of the one chosen.
 *
 * `pointsOf` returns the points of a metric by its name.
 */
export class VersionStrip {
  #versions = [];
  #marked = []; // numbers of those that are watched
  #extent = [0, 1];

  constructor(pointsOf, choose) {
    this.pointsOf = pointsOf;
    this.picture = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    this.picture.addEventListener("click", (event) => {
      if (!this.#versions.length) return;
      const { left, width } = this.picture.getBoundingClientRect();
      const [from, to] = this.#extent;
      choose(this.#versions[nearest(this.#versions, from + ((event.clientX - left) / width) * (to - from))].version);
    });
    this.slider = element("input", { type: "range", min: "0", step: "1", "aria-label": "kept version" });
    this.slider.addEventListener("input", () => choose(this.#versions[Number(this.slider.value)].version));
    this.about = element("p", { className: "quiet" });
    this.element = element("div", { className: "strip" }, this.picture, this.slider, this.about);
  }

  /** Show these versions, with the chosen one and those that are watched. */
  show(versions, chosen, marked) {
    this.#versions = versions;
    this.#marked = marked;
    this.element.hidden = versions.length === 0;
    if (!versions.length) return;
    const index = Math.max(0, versions.findIndex(({ version }) => version === chosen));
    this.slider.max = String(versions.length - 1);
    this.slider.value = String(index);
    this.slider.setAttribute("aria-valuetext", `version ${versions[index].version}`);
    this.#draw(versions[index]);
  }

  #draw(chosen) {
    const points = CURVES.map((name) => this.pointsOf(name)).find((one) => one.length > 1) ?? [];
    const times = [...points.map((point) => point[2]), ...this.#versions.map(({ at }) => at)];
    const [from, to] = [Math.min(...times), Math.max(...times)];
    this.#extent = [from, to];
    const across = (at) => ((at - from) / (to - from || 1)) * WIDTH; // a run may have one version
    const values = points.map((point) => point[1]).filter(Number.isFinite);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const up = (value) => HEIGHT - 14 - ((value - low) / (high - low || 1)) * (HEIGHT - 22);
    const line = points.map((point) => `${across(point[2])},${up(point[1])}`).join(" ");
    const tick = ({ at }, kind, top) =>
      drawn("line", { class: kind, x1: across(at), x2: across(at), y1: top, y2: HEIGHT, "vector-effect": "non-scaling-stroke" });
    const watched = this.#versions.filter(({ version }) => this.#marked.includes(version));
    this.picture.replaceChildren(
      drawn("polyline", { points: line, "vector-effect": "non-scaling-stroke" }),
      ...this.#versions.map((one) => tick(one, "kept", HEIGHT - 10)),
      ...watched.map((one) => tick(one, "watched", 0)),
      tick(chosen, "chosen", 0)
    );
    const value = valueAt(points, chosen.at);
    const kept = `${whole(this.#versions.length)} versions are kept`;
    const mean = value === undefined ? "" : `, when the return was ${short(value)}`;
    this.about.textContent = `Version ${whole(chosen.version)} of ${moment(chosen.at)}${mean}; ${kept}.`;
  }
}
