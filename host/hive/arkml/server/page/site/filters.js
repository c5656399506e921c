// The language of the search box: words, and comparisons such as "return>450 gamma=0.9..0.99".

import { MOST_FILTER } from "./address.js";
import { harmless, setting } from "./format.js";
import { changedOf, settingOf } from "./groups.js";
import { titleOf } from "./labels.js";

const RETURN = "rollout/ep_rew_mean";
const EVALUATION = "eval/mean_reward";
const FACTS = {
  return: (run) => run.latest[RETURN],
  evaluation: (run) => run.latest[EVALUATION],
  rows: (run) => run.rows,
  updates: (run) => run.n_opts,
  seed: (run) => run.seed,
  hours: (run) => ((run.ended_at || Date.now() * 1e6) - run.started_at) / 3.6e12,
  name: (run) => [run.name, titleOf(run)],
  game: (run) => run.game,
  status: (run) => run.status,
  id: (run) => run.id,
  tag: (run) => run.tags ?? [],
};
const SIGNS = { "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b };
const SCALES = { k: 1e3, m: 1e6, g: 1e9 };
const PART = /^([^<>=:!"]*)(<=|>=|!=|<|>|=|:)(.*)$/s;
const TOKEN = /(?:"[^"]*"?|[^\s"])+/g;

/**
 * Return what a search asks for: {matches, isOfArchived, error}. `matches(run)` is true for the
 * runs that have all of it; `error` is a sentence about the first part that is wrong, else empty.
 *
 * Args: `q` is the text, `settings` has those of `runs`, by id, and the defaults.
 */
export function filterOf(q, runs, settings) {
  if (q.length > MOST_FILTER) return wrong(`a search takes ${MOST_FILTER} letters at most`);
  const tests = [];
  let isOfArchived = false;
  for (const token of q.match(TOKEN) ?? []) {
    const word = token.toLowerCase();
    if (word === "archived") isOfArchived = true;
    else if (word === "starred") tests.push((run) => run.starred === true);
    else {
      const [name, sign, value] = PART.exec(token)?.slice(1) ?? [];
      const found = sign ? comparison(name, sign, bare(value), runs, settings) : hasWord(bare(word), settings);
      if (typeof found === "string") return wrong(found);
      tests.push(found);
    }
  }
  const matches = (run) =>
    (run.archived === true) === isOfArchived && tests.every((test) => test(run));
  return { matches, isOfArchived, error: "" };
}

function wrong(error) {
  return { matches: () => false, isOfArchived: false, error };
}

function bare(text) {
  return text.replace(/"/g, "");
}

/** Return the test for a word among the names, states, tags and settings of a run. */
function hasWord(word, settings) {
  return (run) => {
    const own = [...changedOf(run, settings.runs)].map(([name, value]) => `${name}=${setting(value)}`);
    const texts = [run.name, titleOf(run), run.game, run.id, run.status, ...(run.tags ?? []), ...own];
    return texts.join(" ").toLowerCase().includes(word);
  };
}

/** Return the test of one comparison, or a sentence about what is wrong with it. */
function comparison(name, sign, text, runs, settings) {
  const shown = harmless(`${name}${sign}${text}`).slice(0, 80);
  if (!name) return `"${shown}" does not say what is compared: write it before the ${sign}`;
  if (!text) return `"${shown}" has no value after the ${sign}`;
  const valueOf = valuesOf(name, runs, settings);
  if (!valueOf) {
    return `there is no "${harmless(name).slice(0, 80)}" to compare: there are ${Object.keys(FACTS).join(", ")}, ` +
      "settings such as gamma, and names of metrics";
  }
  const each = (test) => (run) => [valueOf(run)].flat().some((value) => value !== undefined && test(value));
  if (SIGNS[sign]) {
    const number = numberIn(text);
    if (number === null) return `"${shown}" compares with a text: ${sign} takes a number`;
    return each((value) => typeof value === "number" && SIGNS[sign](value, number));
  }
  const range = rangeIn(text);
  if (range === null) return `"${shown}" is not a range: write it as 0.9..0.99, with the lower end first`;
  const test = range ? inRange(range) : isEqual(text, sign === ":" && name.toLowerCase() !== "tag");
  return sign === "!=" ? (run) => !each(test)(run) : each(test);
}

/** Return the function that gives what a name stands for in a run, null for an unknown one. */
function valuesOf(name, runs, settings) {
  const lower = name.toLowerCase();
  if (Object.hasOwn(FACTS, lower)) return FACTS[lower];
  const known = new Set(Object.keys(settings.defaults));
  for (const run of runs) for (const key of changedOf(run, settings.runs).keys()) known.add(key);
  const key = known.has(name) ? name : [...known].find((one) => one.toLowerCase() === lower);
  if (key !== undefined) return (run) => settingOf(run, key, settings);
  if (runs.some((run) => Object.hasOwn(run.latest, name))) {
    return (run) => (Object.hasOwn(run.latest, name) ? run.latest[name] : undefined);
  }
  return null;
}

/** Return a number with a prefix such as 2k or 1.5M, null for another text. */
function numberIn(text) {
  const [, digits, scale] = /^([+-]?[\d._]+(?:e[+-]?\d+)?)([kmg]?)$/i.exec(text) ?? [];
  const number = Number((digits ?? "x").replaceAll("_", "")) * (SCALES[scale?.toLowerCase()] ?? 1);
  return Number.isFinite(number) ? number : null;
}

/** Return the ends of a range, undefined for a text that is none, null for a wrong one. */
function rangeIn(text) {
  const ends = text.split("..");
  if (ends.length === 1) return undefined;
  if (ends.length !== 2 || text === "..") return null;
  const [low, high] = ends.map((end, index) => (end ? numberIn(end) : index ? Infinity : -Infinity));
  return low === null || high === null || low > high ? null : [low, high];
}

function inRange([low, high]) {
  return (value) => typeof value === "number" && value >= low && value <= high;
}

function isEqual(text, isPart) {
  const lower = text.toLowerCase();
  const number = numberIn(text);
  return (value) => {
    // Guests give 32-bit floats: 0.98 is 0.98000001907 of the 64 bits that JSON has.
    if (typeof value === "number") return number !== null && Number(value.toPrecision(7)) === number;
    const own = setting(value).toLowerCase();
    return isPart ? own.includes(lower) : own === lower;
  };
}
