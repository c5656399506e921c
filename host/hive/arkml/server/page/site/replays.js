// The replays of evaluated and of recorded episodes that a run keeps, drawn as those of traces are.

import { get, getBytes } from "./api.js";
import { button, element, setText } from "./dom.js";
import { harmless, moment, short, whole } from "./format.js";
import { unpackedReplay } from "./shared/replay_document.js";
import { ReplayView } from "./shared/replay_view.js";

const EVERY = 10_000; // milliseconds between two looks at a list in view

/** Return the replays of a run; `seen` is called with whether there are any. */
export function replaysOf(run, seen) {
  const choices = element("div", { className: "buttons" });
  const about = element("p", { className: "quiet" });
  const trouble = element("p", { className: "trouble", role: "status" });
  const holder = element("div", { tabIndex: 0, role: "group", "aria-label": "replay of an episode" });
  const target = element("div", { className: "replays" }, choices, about, trouble, holder);
  let view = null;
  let chosen = null; // what is shown: as the list has it
  let known = "";
  let isInView = false;

  const show = async (kept) => {
    try {
      setText(trouble, "");
      chosen = kept;
      mark();
      const named = kept.kind === "recorded" ? { version: kept.version } : {};
      const packed = await getBytes(`v1/runs/${run.id}/replay`, { which: kept.kind, ...named });
      const document = await unpackedReplay(packed, harmless);
      if (chosen !== kept) return;
      view?.free();
      view = new ReplayView(holder, document);
      setText(about, `Version ${whole(kept.version)}, a return of ${short(kept.score)}, ${moment(kept.at)}.`);
    } catch (error) {
      setText(trouble, error.message);
    }
  };
  const mark = () => {
    for (const one of choices.children) one.setAttribute("aria-pressed", String(chosen !== null && one.dataset.kind === keyOf(chosen)));
  };
  const list = (replays) => {
    const key = JSON.stringify(replays);
    if (key === known) return;
    known = key;
    choices.replaceChildren(
      ...replays.map((kept) =>
        button(`${keyOf(kept)}: ${short(kept.score)}`, () => show(kept), { "data-kind": keyOf(kept) })
      )
    );
    // What is looked at stays until something else is chosen.
    if (chosen === null && isInView && replays.length > 0) void show(replays[0]);
    mark();
  };
  const load = async () => {
    try {
      const { replays } = await get(`v1/runs/${run.id}/replays`);
      seen(replays.length > 0);
      list(replays);
    } catch (error) {
      if (error.status === undefined) throw error; // the stream shows a hive that is gone
    }
  };
  const observer = new IntersectionObserver((entries) => {
    isInView = entries.at(-1).isIntersecting;
    if (isInView) {
      known = "";
      void load();
    }
  }, { rootMargin: "200px" });
  observer.observe(target);
  const timer = setInterval(() => !document.hidden && load(), EVERY);
  void load();
  /** Show a replay that was recorded just now. */
  const open = async (kept) => {
    await load();
    await show(kept);
    target.scrollIntoView({ block: "nearest" });
  };
  const free = () => {
    clearInterval(timer);
    observer.disconnect();
    view?.free();
  };
  return { element: target, redraw: () => view?.redraw(), open, free };
}

/** Return the name of a kept replay: its kind, of recorded ones with the version. */
function keyOf({ kind, version }) {
  return kind === "recorded" ? `recorded ${version}` : kind;
}
