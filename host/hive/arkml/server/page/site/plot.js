// One plot of traces over an axis, drawn by uPlot: its scales, axes and bands, its cursor, its zoom.

import { aligned, bandsOf, nearest, placesOf, roomy, tick, timeTicks } from "./plot_data.js";
import { dashOf, paintChanges, paintHeat, paintMarks, paintVersions } from "./plot_paint.js";
import { Readout } from "./readout.js";
import uPlot from "./vendor/uplot/uPlot.esm.js";

const HEIGHT = 220;
const FONT = "11px system-ui, sans-serif";
const LEAST_DRAG = 6; // pixels: less is a click
const NEAR_AXIS = 24; // pixels above it, in which a click chooses a version

/**
 * The plot in an element.
 *
 * `draw` takes traces {name, x, y, mode, line, marker, mark, fill, isAside} or one map {x, edges, z, colors}.
 * A trace with `fill` is filled down to the one before it; one that `isAside` is not read. The
 * layout has isTime, isLog, fromZero, range, label, changes, colors, and the texts `where(x)`, `text(value)` and `ticks(values, step)`;
 * its `versions` {version, x} are marked on the axis, and `watch(version)` is called with the one that a click or the Enter key chooses.
 */
export class Plot {
  constructor(target, label, zoomed) {
    this.target = target;
    this.zoomed = zoomed;
    this.chart = null;
    this.readout = new Readout(target, label, {
      places: () => this.places,
      read: (place) => this.#read(place),
      point: (place) => this.#point(place),
      zoom: (factor, place) => this.#zoom(factor, place),
      enter: (place) => this.#watch(place),
    });
    this.sizes = new ResizeObserver(() => this.#fit());
    this.sizes.observe(target);
  }

  /** Draw traces; what was drawn before goes. */
  draw(traces, layout) {
    this.traces = traces;
    this.layout = layout;
    this.places = placesOf(traces);
    this.target.data = traces; // for those who look into the page
    const { shape, data } = this.#prepared();
    if (this.chart && shape === this.shape) this.chart.setData(data);
    else {
      this.chart?.destroy();
      this.chart = new uPlot(this.#options(this.#width(), HEIGHT), data, this.target);
      this.shape = shape;
      this.readout.attach(this.chart.over);
      this.chart.over.addEventListener("click", (event) => this.#clicked(event));
    }
    this.readout.bound();
  }

  /** Return a canvas with the plot as large as asked, in pixels. */
  async canvas(width, height) {
    const options = { ...this.#options(width, height), pxRatio: 1 };
    return new Promise((resolve) => {
      options.hooks.draw.push((chart) => {
        const copy = document.createElement("canvas");
        [copy.width, copy.height] = [width, height];
        copy.getContext("2d").drawImage(chart.ctx.canvas, 0, 0);
        resolve(copy);
        setTimeout(() => chart.destroy());
      });
      new uPlot(options, this.#prepared().data, document.createElement("div"));
    });
  }

  /** Free everything. */
  free() {
    this.sizes.disconnect();
    this.chart?.destroy();
    this.chart = null;
  }

  /** Return the columns that uPlot draws, and what they must have in common to be drawn by the same one. */
  #prepared() {
    const { traces, layout } = this;
    const [map] = traces;
    const data = map.z ? [map.x, map.x.map(() => null)] : aligned(traces, layout.isLog);
    const { isLog, isTime, label, colors } = layout;
    const looks = traces.map(({ mode, line, fill, isAside, z }) => [mode, line, fill, isAside, !!z]);
    return { data, shape: JSON.stringify([looks, isLog, isTime, label, colors.line, colors.quiet]) };
  }

  #options(width, height) {
    const { layout } = this;
    return {
      width, height, ms: 1,
      padding: [8, 14, 0, 0],
      legend: { show: false },
      cursor: this.#cursor(),
      select: { show: true, left: 0, top: 0, width: 0, height: 0 },
      scales: { x: { time: layout.isTime, range: (chart) => this.#across(chart.data[0]) }, y: this.#upwards() },
      axes: [this.#axis(layout.isTime ? 36 : 26, { label: layout.label || undefined, labelSize: 15 }), this.#axis(0, { size: widthOf })],
      series: [{}, ...this.traces.map((trace) => seriesOf(trace))],
      bands: bandsOf(this.traces),
      hooks: {
        draw: [(chart) => this.#paint(chart)],
        setSelect: [(chart) => this.#selected(chart)],
        setCursor: [(chart) => this.#pointed(chart)],
      },
    };
  }

  #cursor() {
    return {
      y: false,
      drag: { x: true, y: false, setScale: false },
      bind: { dblclick: () => () => this.zoomed(null) },
      points: {
        size: 7,
        show: (chart, index) => !this.traces[index - 1].isAside && uPlot.assign(document.createElement("div"), { className: "u-cursor-pt" }),
      },
    };
  }

  #axis(size, more) {
    const { line, quiet } = this.layout.colors;
    const isX = size > 0;
    return {
      stroke: quiet, font: FONT, labelFont: FONT, labelGap: 0, gap: 4, size,
      grid: { stroke: line, width: 1 },
      ticks: { stroke: line, width: 1, size: 4 },
      space: isX ? (this.layout.isTime ? 80 : 60) : 32,
      values: (_, splits, __, ___, step) => this.#tickTexts(isX, splits, step),
      ...more,
    };
  }

  /** Return the texts of ticks; those of a logarithmic axis that have no room for one are null. */
  #tickTexts(isX, splits, step) {
    const { isTime, isLog, ticks } = this.layout;
    if (isX) return isTime ? timeTicks(splits, step) : splits.map((value) => tick(value, step));
    if (!isLog) return ticks(splits, step);
    return splits.map((value) => (value === null ? null : ticks([value], value)[0]));
  }

  #across(places) {
    if (this.layout.range) return this.layout.range;
    if (!places.length) return [0, 1];
    const [low, high] = [places[0], places.at(-1)];
    if (low < high) return [low, high];
    const around = this.layout.isTime ? 30_000 : Math.abs(low) / 2 || 1;
    return [low - around, low + around];
  }

  #upwards() {
    const [map] = this.traces;
    const { isLog, fromZero } = this.layout;
    if (map.z) return { range: () => [this.traces[0].edges[0], this.traces[0].edges.at(-1)] };
    if (!isLog) return { range: (_, low, high) => roomy(low, high, fromZero) };
    return { distr: 3, range: (_, low, high) => powersOf(low, high) };
  }

  #paint(chart) {
    if (this.traces[0].z) paintHeat(chart, this.traces[0]);
    else paintMarks(chart, this.traces);
    paintChanges(chart, this.layout.changes);
    paintVersions(chart, this.layout.versions, this.layout.colors.quiet);
  }

  #selected(chart) {
    const { left, width } = chart.select;
    chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (width < LEAST_DRAG) return;
    this.zoomed([chart.posToVal(left, "x"), chart.posToVal(left + width, "x")]);
  }

  #clicked({ offsetX, offsetY }) {
    const { over } = this.chart;
    if (offsetY > over.clientHeight - NEAR_AXIS) this.#watch(this.chart.posToVal(offsetX, "x"));
  }

  /** Watch the version that is nearest to a place; return false where there is none. */
  #watch(place) {
    const one = this.#versionAt(place);
    if (one) this.layout.watch(one.version);
    return one !== undefined;
  }

  /** Return the version that is nearest to a place, of several there the newest. */
  #versionAt(place) {
    const { versions } = this.layout;
    const { x: found } = versions[nearest(versions.map(({ x }) => x), place)] ?? {};
    return versions.findLast(({ x }) => x === found);
  }

  #zoom(factor, place) {
    const { min, max } = this.chart.scales.x;
    const width = (max - min) * factor;
    const [first, last] = [this.places[0], this.places.at(-1)];
    const begin = Math.max(first, Math.min(last - width, place - width / 2));
    this.zoomed(width >= last - first ? null : [begin, begin + width]);
  }

  #pointed(chart) {
    const { left } = chart.cursor;
    if (left === undefined || left < 0 || !this.places.length) this.readout.hide();
    else this.readout.show(this.places[nearest(this.places, chart.posToVal(left, "x"))], left);
  }

  #point(place) {
    const { over } = this.chart;
    const left = this.chart.valToPos(place, "x");
    const isSeen = left >= 0 && left <= over.clientWidth;
    if (isSeen) this.chart.setCursor({ left, top: over.clientHeight / 2 });
    this.readout.show(place, Math.max(0, Math.min(over.clientWidth, left)));
  }

  #read(place) {
    const { where, text } = this.layout;
    if (this.traces[0].z) return { where: where(place), values: this.#shares(place) };
    const values = this.traces.flatMap(({ isAside, x, y, name, line, marker }) => {
      if (isAside || !x.length || place < x[0] || place > x.at(-1)) return [];
      const value = y[nearest(x, place)];
      return Number.isFinite(value) ? [{ name, value: text(value), color: line?.color ?? marker.color }] : [];
    });
    const one = this.#versionAt(place);
    return { where: where(place), values, hint: one ? `Enter, or a click on its mark, watches version ${one.version}` : "" };
  }

  /** Return the largest shares of a histogram at a place. */
  #shares(place) {
    const { x, edges, z, colors } = this.traces[0];
    const { text } = this.layout;
    const index = x.indexOf(place);
    const bins = z.map((row, bin) => ({ share: row[index], bin })).filter(({ share }) => share > 0);
    bins.sort((a, b) => b.share - a.share);
    return bins.slice(0, 4).map(({ share, bin }) => ({
      name: `${text(edges[bin])} to ${text(edges[bin + 1])}`,
      value: `${Number((100 * share).toPrecision(3))} % of rows`,
      color: colors.at(-1),
    }));
  }

  #width() {
    return this.target.clientWidth || 400;
  }

  #fit() {
    const width = this.target.clientWidth;
    if (this.chart && width && width !== this.chart.width) this.chart.setSize({ width, height: HEIGHT });
  }
}

/** Return a range of a logarithmic axis, which has some room around values that hardly differ. */
function powersOf(low, high) {
  if (!(low > 0)) return [1, 10];
  return high < 1.1 * low ? uPlot.rangeLog(low / 2, high * 2, 10, false) : uPlot.rangeLog(low, high, 10, false);
}

function seriesOf({ mode, line = {}, fill }) {
  return {
    scale: "y",
    stroke: line.color,
    width: mode === "markers" ? 0 : line.width,
    dash: dashOf(line.dash),
    points: { show: false },
    paths: mode === "markers" && !fill ? () => null : undefined,
  };
}

/** Return the width of an axis that its longest value needs, as uPlot asks for it. */
function widthOf(chart, values, index, cycle) {
  const axis = chart.axes[index];
  if (cycle > 1) return axis._size;
  const longest = (values ?? []).reduce((a, b) => (b?.length > a.length ? b : a), "");
  chart.ctx.font = axis.font[0];
  return Math.ceil(axis.ticks.size + axis.gap + chart.ctx.measureText(longest).width / devicePixelRatio) + 4;
}
