// The histograms of a run over time: a choice of them, and the chart of the chosen one.

import { get } from "./api.js";
import { element } from "./dom.js";
import { short } from "./format.js";
import { kept } from "./kept.js";

const EVERY = 30_000; // milliseconds between two requests: a learner makes histograms once a minute

/** Return the chart of a histogram, for `Charts.add`. `kind` is "actions" or "features". */
export function histogramSpec(run, kind, name, { ask = get, now } = {}) {
  return {
    title: `Values of ${kind.slice(0, -1)} ${name.slice(kind.length + 1)}`,
    name: `hist/${name}`,
    heat: kept(() => ask(`v1/runs/${run.id}/histograms`, { name }), EVERY, now),
  };
}

/**
 * Return an element with a choice of the histograms of a kind, hidden where the run has none.
 *
 * `charts()` are the charts of the view: nothing is added to them once the view has others.
 */
export function histogramsOf(run, kind, charts) {
  const holder = element("div", { className: "histograms", hidden: true });
  fill(holder, run, kind, charts);
  return holder;
}

async function fill(holder, run, kind, charts) {
  const begun = charts();
  let known = [];
  try {
    known = (await get(`v1/runs/${run.id}/histograms`)).histograms;
  } catch (error) {
    if (error.status === undefined) throw error;
    return; // the loss of the hive is shown elsewhere
  }
  const own = known.filter((one) => one.name.startsWith(`${kind}/`));
  if (!own.length || begun !== charts()) return;
  const choice = element("select", { "aria-label": `dimension of ${kind}` });
  for (const { name, lowest, highest, at_bounds: share } of own) {
    const text = `${name.slice(kind.length + 1)}: ${short(lowest)} to ${short(highest)}`;
    const bounds = share ? `, ${short(100 * share)} % at the bounds` : "";
    choice.append(element("option", { value: name }, text + bounds));
  }
  const specs = new Map(own.map(({ name }) => [name, histogramSpec(run, kind, name)]));
  let chart = null;
  const show = () => {
    chart?.remove();
    chart = begun.add(specs.get(choice.value));
    holder.append(chart);
  };
  choice.onchange = show;
  holder.append(element("label", {}, `Histogram of ${kind.slice(0, -1)} `, choice));
  holder.hidden = false;
  show();
}
