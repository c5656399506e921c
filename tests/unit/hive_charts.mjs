// Answers questions about the modules that draw the charts of the hive's page.

import { answerAll, module } from "./questions.mjs";

const data = await module("plot_data");
const text = await module("chart_text");
const { dashOf } = await module("plot_paint");

const UNKNOWN = "no point"; // JSON has no undefined

const answers = {
  aligned: (traces, isLog) =>
    data.aligned(traces, isLog).map((column) => column.map((value) => (value === undefined ? UNKNOWN : value))),
  bands: (traces) => data.bandsOf(traces),
  roomy: (low, high, fromZero) => data.roomy(low, high, fromZero),
  tick: (value, step) => data.tick(value, step),
  times: (times, step) => data.timeTicks(times, step),
  nearest: (places, x) => data.nearest(places, x),
  dash: (dash) => dashOf(dash),
  value: (spec, value) => text.valueText(spec, value),
  ticks: (spec, values, step) => text.tickTexts(spec, values, step),
  summary: (spec, traces, axis, good) => text.summaryOf(spec, traces, axis, good),
  table: (spec, traces, axis) => text.tableOf(spec, traces, axis),
  description: (name, known) => text.descriptionOf(name, known),
};

await answerAll(answers);
