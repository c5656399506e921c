// Versions of a run that are watched: chosen beside the curve, one or two side by side, recorded.

import { change, get } from "./api.js";
import { button, element, setShown, setText } from "./dom.js";
import { harmless, short, whole } from "./format.js";
import { VersionStrip } from "./version_strip.js";
import { WatchStage } from "./watch_stage.js";

const EVERY = 10_000; // milliseconds between two looks at the versions of a panel in view
const RESTS = 300; // milliseconds without another choice, after which it is watched
const NONE = "none";

/** Return the kept version of the lowest mean return in an evaluation, null without two of them. */
export function worstOf({ versions }) {
  const rated = versions.filter(({ mean_return }) => typeof mean_return === "number");
  if (rated.length < 2) return null;
  return rated.reduce((a, b) => (b.mean_return < a.mean_return ? b : a)).version;
}

/** Return [value, text] of each choice: best, latest, and the kept versions, the newest first. */
export function choicesOf({ versions, best, latest }) {
  const choices = [];
  if (best !== null) choices.push(["best", `best (${whole(best)})`]);
  if (latest !== null) choices.push(["latest", `latest (${whole(latest)})`]);
  for (const { version, mean_return: rated } of [...versions].reverse()) {
    const mean = typeof rated === "number" ? `, evaluated ${short(rated)}` : "";
    choices.push([String(version), `${whole(version)}${mean}`]);
  }
  return choices;
}

/** Return the number of a choice, null for one that is not there. */
export function numberOf(choice, { best, latest }) {
  if (choice === "best") return best;
  return choice === "latest" ? latest : choice === NONE ? null : Number(choice);
}

function choiceOf(label, changed) {
  const select = element("select", { "aria-label": label });
  select.addEventListener("change", changed);
  return { select, root: element("label", {}, `${label} `, select) };
}

/** Fill a choice anew; what is chosen stays, also where it is not kept any more. */
function fill(select, choices) {
  const chosen = select.value;
  const known = choices.some(([value]) => value === chosen) || !chosen;
  const all = known ? choices : [...choices, [chosen, `${chosen} (not kept)`]];
  select.replaceChildren(...all.map(([value, text]) => element("option", { value }, text)));
  select.value = chosen || all[0]?.[0] || "";
}

/**
 * The panel of a run, whose `open(version)` watches one.
 *
 * `recorded` is called with the replay of an episode that was recorded, and `listed` with the
 * versions that may be watched, [{version, at}], when they have changed.
 */
export function watchOf(app, run, recorded, listed) {
  let kept = null;
  let stages = [];
  let turning = null;
  let isSeen = false;
  const about = element("p", { className: "quiet" }, "…");
  const trouble = element("p", { className: "trouble", role: "alert" });
  const said = element("p", { className: "quiet", role: "status" });
  const first = choiceOf("Watch version", () => turned());
  const second = choiceOf("beside", () => turned());
  const seed = element("input", { type: "number", min: "0", max: "999999", value: "0", className: "seed" });
  const shown = element("div", { className: "stages" });
  const strip = new VersionStrip((name) => app.store.points(run.id, name), (version) => {
    first.select.value = String(version);
    turned();
  });

  const wanted = () => [first.select.value, second.select.value].filter((one) => one && one !== NONE);
  const drawStrip = () => {
    if (!kept) return;
    const chosen = numberOf(first.select.value, kept);
    strip.show(kept.versions, chosen, stages.map((stage) => numberOf(stage.version ?? NONE, kept)));
  };
  const stop = () => {
    clearTimeout(turning);
    stages.forEach((stage) => stage.free());
    stages = [];
    shown.replaceChildren();
    setText(watchButton, "Watch");
    drawStrip();
  };
  const watch = () => {
    stop();
    const from = Math.max(0, Math.floor(Number(seed.value)) || 0);
    stages = wanted().map((version) => new WatchStage(run, { version, seed: from }));
    shown.replaceChildren(...stages.map((stage) => stage.element));
    shown.classList.toggle("two", stages.length > 1);
    setText(watchButton, "Stop watching");
    drawStrip();
  };
  /** Go on with what is chosen now, where something is watched, once the slider rests. */
  const turned = () => {
    drawStrip();
    clearTimeout(turning);
    if (stages.length) turning = setTimeout(watch, RESTS);
  };
  const watchButton = button("Watch", () => (stages.length ? stop() : watch()));
  /** A button that watches a version at once, or two beside each other. */
  const shortcut = (text, title, versions) => button(text, () => {
    const [one, other = NONE] = versions();
    first.select.value = one;
    second.select.value = other;
    watch();
  }, { title });
  const best = shortcut("Best", "the version with the best rating: by evaluations, else by training", () => ["best"]);
  const worst = shortcut(
    "Worst", "the kept version with the lowest mean return in an evaluation", () => [String(worstOf(kept))]
  );
  const latest = shortcut("Latest", "the newest version", () => ["latest"]);
  const beforeAndAfter = shortcut(
    "Before and after", "the oldest version that is kept beside the latest, from the same seed",
    () => [String(kept.versions[0].version), "latest"]
  );
  const recordButton = button("Record an episode", () => record());

  const record = async () => {
    recordButton.disabled = true;
    setText(trouble, "");
    try {
      // "best" and "latest" may become others while the episode is played.
      const version = String(numberOf(first.select.value, kept));
      setText(said, `An episode of version ${version} is played …`);
      let answer;
      do answer = await change("POST", `v1/runs/${run.id}/recordings`, { version });
      while (answer.recorded === null);
      setText(said, `An episode of version ${version} is recorded, below.`);
      recorded(answer.recorded);
    } catch (error) {
      setText(said, "");
      setText(trouble, error.message);
    } finally {
      recordButton.disabled = false;
    }
  };

  const list = (found) => {
    const isOther = JSON.stringify(found) !== JSON.stringify(kept);
    kept = found;
    const isReady = !found.obstacle && found.latest !== null;
    setText(about, harmless(found.obstacle || (isReady ? "" : "There is no policy to watch yet.")));
    setShown(about, about.textContent !== "");
    for (const part of [controls, strip.element]) setShown(part, isReady);
    if (isOther) listed(isReady ? found.versions : []);
    if (!isReady) return;
    const choices = choicesOf(found);
    fill(first.select, choices);
    fill(second.select, [[NONE, NONE], ...choices]);
    best.disabled = found.best === null;
    worst.disabled = worstOf(found) === null;
    beforeAndAfter.disabled = found.versions.length < 2;
    drawStrip();
  };
  const load = async () => {
    if (document.hidden || !(isSeen || kept === null)) return; // charts have them from the beginning
    try {
      list(await get(`v1/runs/${run.id}/versions`));
      setText(trouble, "");
    } catch (error) {
      if (error.status === undefined) throw error; // the stream shows a hive that is gone
      if (error.status !== 0) setText(trouble, error.message);
    }
  };

  const mayRecord = app.who?.role !== "read";
  const controls = element(
    "div", { className: "buttons", hidden: true },
    best, worst, latest, beforeAndAfter,
    first.root, second.root, element("label", {}, "seed ", seed), watchButton,
    mayRecord ? recordButton : ""
  );
  const target = element("div", { className: "watch" }, about, strip.element, controls, trouble, said, shown);
  strip.element.hidden = true;
  seed.addEventListener("change", turned);
  const observer = new IntersectionObserver((entries) => {
    isSeen = entries.at(-1).isIntersecting;
    void load();
  }, { rootMargin: "200px" });
  observer.observe(target);
  const timer = setInterval(load, EVERY);

  // A hidden tab watches nothing, and goes on where it comes back.
  let wasWatching = false;
  const turn = () => {
    if (document.hidden) {
      wasWatching = stages.length > 0;
      stop();
    } else if (wasWatching) watch();
  };
  document.addEventListener("visibilitychange", turn);
  const free = () => {
    stop();
    clearInterval(timer);
    observer.disconnect();
    document.removeEventListener("visibilitychange", turn);
  };
  void load();
  return {
    element: target,
    open: (version) => {
      first.select.value = String(version);
      watch();
    },
    fold: (isOpen) => !isOpen && stop(),
    redraw: () => stages.forEach((stage) => stage.redraw()),
    update: () => isSeen && drawStrip(),
    free,
  };
}
