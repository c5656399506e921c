// What metrics are, in a sentence each, which reports say, too: loaded once.

import { descriptionOf } from "./chart_text.js";

let loading = null;

/** Return what a metric is and which direction is good: {text, good}, both empty where it is not known. */
export async function describe(name) {
  loading ??= load();
  return descriptionOf(name, await loading);
}

async function load() {
  try {
    return await (await fetch("metrics.json")).json();
  } catch {
    loading = null; // the hive is away, which the page says: a later chart tries again
    return {};
  }
}
