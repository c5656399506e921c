// Answers questions about the modules of the hive's page that need no browser.

import { readFileSync } from "node:fs";

const given = JSON.parse(readFileSync(0, "utf-8"));
const module = (name) => import(new URL(`${name}.js`, given.folder));
const { viewIn, fragmentOf, takeToken } = await module("address");
const { cell, csv, curveRows, fileName } = await module("csv");
const curves = await module("curves");
const format = await module("format");
const { plain } = await module("markup");
const { sectionsOf } = await module("sections");
const { Stream } = await module("stream");
const { histogramSpec } = await module("histograms");
const { axisOfHeat, groupsOf, tracesOf, heatOf } = await module("traces");
const { changedSettings, searched, sorted } = await module("runs_table");

const COLORS = { runs: ["rgb(1, 2, 3)", "rgb(4, 5, 6)"], heat: ["a", "b", "c", "d"] };

class FakeSource {
  static made = [];
  constructor(path) {
    this.path = path;
    this.readyState = 0;
    this.listeners = {};
    FakeSource.made.push(this);
  }
  addEventListener(kind, listener) {
    this.listeners[kind] = listener;
  }
  close() {
    this.readyState = 2;
  }
  send(kind, data = {}, lastEventId = "") {
    this.readyState = 1;
    this.listeners[kind]({ data: JSON.stringify(data), lastEventId });
  }
}

/** Play a script of steps: what the stream does and which states it has had. */
async function streamed(steps) {
  FakeSource.made = [];
  const said = [];
  let time = 0;
  let isThere = true;
  const answer = (name) => async () => {
    said.push(name);
    if (!isThere) throw Object.assign(new Error("the hive does not answer"), { status: 0 });
  };
  const page = { hidden: false, addEventListener: (_, listener) => (page.turn = listener) };
  const handlers = {
    load: answer("load"),
    poll: answer("poll"),
    metrics: (event) => said.push(`metrics ${event.run}`),
    changed: (state) => said.push(state),
  };
  const stream = new Stream(handlers, { page, Source: FakeSource, now: () => time });
  const begin = globalThis.setInterval;
  globalThis.setInterval = () => 0; // the script checks by itself
  stream.start();
  globalThis.setInterval = begin;
  for (const [what, ...values] of steps) {
    const source = FakeSource.made.at(-1);
    if (what === "event") source.send(...values);
    else if (what === "broken") source.readyState = 2;
    else if (what === "server") isThere = values[0];
    else if (what === "watch") stream.watch(values[0]);
    else if (what === "hidden") {
      page.hidden = values[0];
      page.turn();
    } else if (what === "wait") {
      time += values[0];
      stream.check();
    }
    await new Promise((resolve) => setImmediate(resolve));
  }
  return { said, paths: FakeSource.made.map((one) => one.path), open: FakeSource.made.filter((one) => one.readyState !== 2).length };
}

/** Draw a histogram at these seconds, [second, is the hive there]: the answers, and the requests. */
async function drawnHistogram(steps) {
  let time = 0;
  let isThere = true;
  const asked = [];
  const ask = async (path, { name }) => {
    asked.push(`${time / 1_000} ${path} ${name}`);
    if (!isThere) throw Object.assign(new Error("the hive does not answer"), { status: 0 });
    return asked.length;
  };
  const { heat } = histogramSpec({ id: "a" }, "actions", "actions/0", { ask, now: () => time });
  const drawn = [];
  for (const step of steps) {
    time = step[0] * 1_000;
    isThere = step[1];
    drawn.push(await heat());
  }
  return { asked, drawn };
}

const answers = {
  plain: (text) => plain(text),
  cell: (value) => cell(value),
  csv: (rows) => csv(rows),
  curveRows: (given) => curveRows(given),
  fileName: (...parts) => fileName(...parts),
  view: (fragment) => viewIn(fragment),
  fragment: (view) => fragmentOf({ ...viewIn(""), ...view }),
  again: (view) => viewIn(fragmentOf({ ...viewIn(""), ...view })),
  token: (hash) => {
    const page = { location: { hash, pathname: "/hive/", search: "" }, history: {} };
    page.history.replaceState = (_, __, address) => (page.address = address);
    return { token: takeToken(page), address: page.address ?? null };
  },
  joined: (points, newer) => curves.joined(points, newer),
  thinned: (points, most) => curves.thinned(points, most),
  smoothed: (values, weight) => curves.smoothed(values, weight),
  onAxis: (points, kind, more) => curves.onAxis(points, kind, more),
  band: (given) => curves.band(given),
  seeds: (runs, settings) => curves.groupedBySeed(runs, settings).map((group) => group.map((run) => run.id)),
  spark: (values) => curves.sparkline(values, 90, 22),
  format: (name, value) => format[name](value),
  sections: (names, q) => sectionsOf(new Set(names), q),
  traces: (spec, runs, settings, points, view) => {
    const all = { ...viewIn(""), ...view };
    const groups = groupsOf(runs, settings, all, COLORS);
    return tracesOf(spec, groups, (id, name) => points[id]?.[name] ?? [], all);
  },
  heat: (reply, x = "rows", updates = []) => ({
    ...heatOf(reply, { x }, 0, COLORS, updates),
    axis: axisOfHeat({ x }, updates),
  }),
  histogram: (steps) => drawnHistogram(steps),
  changed: (runs, settings) => changedSettings(runs, settings),
  searched: (runs, q, settings) => searched(runs, q, settings).map((run) => run.id),
  sorted: (runs, sort, settings) => sorted(runs, sort, settings).map((run) => run.id),
  stream: (steps) => streamed(steps),
};

const found = [];
for (const [name, ...values] of given.questions) found.push(await answers[name](...values));
console.log(JSON.stringify(found));
