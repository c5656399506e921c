// The parts of a run's view besides charts: sessions, events, configuration, versions, log.

import { get } from "./api.js";
import { savePolicy } from "./actions.js";
import { hiveAddress } from "./address.js";
import { button, command, element, setShown, setText, table } from "./dom.js";
import { fileName } from "./csv.js";
import { harmless, moment, setting, short, whole } from "./format.js";
import { titleOf } from "./labels.js";

const LOG_EVERY = 5_000; // milliseconds between two looks at an open log in view
const SHAPE = ["features", "parts", "actions", "branches", "seed"];

/** An element that says if it is in view; `come` is called when it comes there. */
function watched(target, come = () => {}) {
  let isSeen = false;
  const observer = new IntersectionObserver((entries) => {
    const before = isSeen;
    isSeen = entries.at(-1).isIntersecting;
    if (isSeen && !before) come();
  }, { rootMargin: "200px" });
  observer.observe(target);
  return { isSeen: () => isSeen && !document.hidden, free: () => observer.disconnect() };
}

/** Replace the children of an element if what they are made of has changed. */
function replacer(target, make) {
  let known = null;
  return (values) => {
    const key = JSON.stringify(values);
    if (key === known) return;
    known = key;
    target.replaceChildren(...make(values));
  };
}

/** The sessions of a run, with their charts, and its workers. */
export function sessionsOf(app, run, charts) {
  const shown = element("div", {});
  const grid = element("div", { className: "charts", hidden: true }, ...charts);
  const target = element("div", { className: "sessions" }, shown, grid);
  const { isSeen, free } = watched(target, () => app.wantDetails());
  const show = replacer(shown, ({ sessions, workers }) => {
    if (!sessions?.length && !workers.length) {
      return [element("p", { className: "quiet" }, "No host takes part now.")];
    }
    const parts = [];
    if (sessions?.length) {
      const header = [
        "session", "role", "rows", "rows/s", "refused", "refused/s", "dropped", "dropped/s",
        "version", "lag", "policy age", "",
      ];
      const rows = sessions.map((one) => [
        String(one.index), one.role, whole(one.rows ?? 0), short(one.rows_per_second ?? 0),
        whole(one.refused ?? 0), short(one.refused_per_second) || "–",
        whole(one.dropped ?? 0), short(one.dropped_per_second) || "–",
        whole(one.policy_version ?? 0), short(one.lag ?? 0),
        one.policy_seconds ? `${short(one.policy_seconds)} s` : "–",
        one.alive === false ? "gone" : "alive",
      ]);
      parts.push(table(header, rows, "numbers"));
    }
    if (workers.length) {
      const header = ["worker", "restarts", "rows", "rows/s", "version", "", "last reason"];
      const rows = workers.map((one) => [
        String(one.number), String(one.incarnation), whole(one.rows), short(one.rows_per_second),
        whole(one.policy_version), one.is_alive ? "alive" : "ended", harmless(one.reason),
      ]);
      parts.push(table(header, rows, "numbers"));
    }
    return parts;
  });
  const update = () => {
    const details = app.store.details.get(run.id);
    const samples = app.store.samples.get(run.id);
    const sessions = details?.sessions?.map((one) => ({
      ...one,
      refused_per_second: samples?.rate(one.index, "refused"),
      dropped_per_second: samples?.rate(one.index, "dropped"),
    }));
    const workers = details?.workers ?? [];
    setShown(target, Boolean(sessions || workers.length));
    setShown(grid, !app.view.metric && Boolean(samples?.lines("accepted").length));
    show({ sessions: sessions ?? null, workers });
  };
  return { element: target, update, isWanted: isSeen, free };
}

const MOST_SHOWN_EVENTS = 200;

/** The events of runs, the newest first; the kinds `view.hidden` are left out. */
export function eventsOf(app, runs) {
  const kinds = element("div", { className: "kinds", role: "group", "aria-label": "kinds of events" });
  const target = element("div", { className: "events" });
  const show = replacer(target, ({ events, left, isFiltered }) => {
    if (!events.length) {
      const text = isFiltered ? "All kinds of events are left out." : "Nothing has happened yet.";
      return [element("p", { className: "quiet" }, text)];
    }
    const header = runs.length > 1 ? ["time", "run", "", ""] : ["time", "", ""];
    const rows = events.map(({ at, run, kind, text }) => {
      const cells = [moment(at), element("span", { className: `kind ${kind}` }, kind), harmless(text)];
      if (runs.length > 1) cells.splice(1, 0, harmless(run));
      return cells;
    });
    const more = element("p", { className: "quiet" }, `${left} older ones are not shown.`);
    return [table(header, rows), ...(left ? [more] : [])];
  });
  const update = () => {
    const all = runs.flatMap((run) =>
      (app.store.histories.get(run.id) ?? []).map((one) => ({ ...one, run: titleOf(app.store.runs.get(run.id) ?? run) }))
    );
    showKinds(app, kinds, all);
    const events = all.filter(({ kind }) => !app.view.hidden.includes(kind)).sort((a, b) => b.at - a.at);
    const left = Math.max(0, events.length - MOST_SHOWN_EVENTS);
    show({ events: events.slice(0, MOST_SHOWN_EVENTS), left, isFiltered: all.length > 0 });
  };
  return { element: element("div", {}, kinds, target), update, redraw: update };
}

/** Show a box for each kind of events that there are, with their number. */
function showKinds(app, target, events) {
  const counts = new Map();
  for (const { kind } of events) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  const names = [...counts.keys()].sort();
  const boxes = new Map([...target.querySelectorAll("input")].map((box) => [box.value, box]));
  if (names.join() !== [...boxes.keys()].join()) {
    boxes.clear();
    for (const kind of names) {
      const box = element("input", { type: "checkbox", value: kind, onchange: () => {
        const others = app.view.hidden.filter((one) => one !== kind);
        app.change({ hidden: box.checked ? others : [...others, kind] });
      } });
      boxes.set(kind, box);
    }
    const labels = [...boxes].map(([kind, box]) => element("label", {}, box, element("span", { className: `kind ${kind}` }, ` ${kind}`), element("span", { className: "quiet" })));
    target.replaceChildren(...labels);
  }
  for (const [kind, box] of boxes) {
    box.checked = !app.view.hidden.includes(kind);
    setText(box.parentElement.lastChild, ` ${counts.get(kind)}`);
  }
}

/** The settings of runs against the defaults. */
export function configurationOf(app, runs) {
  const target = element("div", {});
  const show = replacer(target, ({ all, defaults }) => {
    if (all.some((settings) => !settings)) return [element("p", { className: "quiet" }, "…")];
    const names = [...new Set(all.flatMap((settings) => Object.keys(settings)))].filter(
      (name) => name !== "other"
    );
    const differs = (name) =>
      SHAPE.includes(name) || all.some((one) => setting(one[name]) !== setting(defaults[name]));
    const row = (name) => [
      name,
      SHAPE.includes(name) ? "" : setting(defaults[name] ?? null),
      ...all.map((one) => {
        const text = setting(one[name] ?? null);
        const isChanged = !SHAPE.includes(name) && text !== setting(defaults[name] ?? null);
        return element("td", { className: isChanged ? "changed" : "" }, harmless(text));
      }),
    ];
    const header = ["setting", "default", ...runs.map((run) => harmless(titleOf(run)))];
    const rest = names.filter((name) => !differs(name));
    const parts = [table(header, names.filter(differs).map(row))];
    parts.push(
      element(
        "details", {}, element("summary", {}, `${rest.length} settings with their defaults`),
        table(header, rest.map(row))
      )
    );
    const others = all.flatMap((one) => Object.entries(one.other ?? {}));
    if (others.length) {
      const rows = others.map(([name, value]) => [harmless(name), harmless(setting(value))]);
      parts.push(element("h3", {}, "Keys of the configuration that are not settings"));
      parts.push(table(["key", "value"], rows));
    }
    return parts;
  });
  const update = () =>
    show({
      all: runs.map((run) => app.store.details.get(run.id)?.settings ?? null),
      defaults: app.store.settings.defaults,
    });
  return { element: target, update };
}

/** The policies and the checkpoints of a run, with downloads and the commands that use them. */
export function versionsOf(app, [run]) {
  const target = element("div", {});
  const trouble = element("p", { className: "trouble", role: "status" });
  const { isSeen, free } = watched(target, () => app.wantDetails());
  const save = (which) => async () => {
    try {
      setText(trouble, "");
      await savePolicy(run, which);
    } catch (error) {
      setText(trouble, error.message);
    }
  };
  const show = replacer(target, ({ best, newest, checkpoints }) => {
    const file = (which) => `${fileName(run.name, which)}.onnx`;
    const policies = [
      ["best", best ? `version ${whole(best.version)}, ${whole(best.n_opts)} updates: ${short(best.score)} by ${best.by}` : "not rated yet", best],
      ["latest", newest ? `version ${whole(newest)}` : "none yet", newest],
      ["now", "what the learner has this moment", newest],
    ].map(([which, text, isThere]) => [
      which, text,
      isThere ? button("Download", save(which)) : "",
      isThere ? command(`arkml run GUEST.wasm --policy ${file(which)}`) : "",
    ]);
    const parts = [trouble, table(["policy", "", "", "play it"], policies)];
    if (!checkpoints) return parts;
    const rows = checkpoints.map((one) => [
      one.name, whole(one.n_opts),
      one.best ? `kept when the best policy was rated${best ? `, ${whole(one.n_opts - best.n_opts)} updates later` : ""}` : "",
      command(`arkml train GUEST.wasm --hive ${hiveAddress()} --from ${one.name}`),
    ]);
    parts.push(
      rows.length
        ? table(["checkpoint", "updates", "", "start from it"], rows)
        : element("p", { className: "quiet" }, "No checkpoint is kept yet.")
    );
    return parts;
  });
  const update = () => {
    const details = app.store.details.get(run.id);
    const newest = app.store.runs.get(run.id)?.policy_version ?? 0;
    show({ best: details?.best ?? null, newest, checkpoints: details?.checkpoints ?? null });
  };
  return { element: target, update, isWanted: isSeen, free };
}

/** The log of a run's learners, read while it is open. */
export function logOf(app, [run]) {
  const lines = element("pre", { className: "log", tabIndex: 0 }, "…");
  const target = element("div", {}, lines);
  const { isSeen, free } = watched(target);
  const load = async () => {
    try {
      const answer = await get(`v1/runs/${run.id}/log`, { lines: 500 });
      const isAtEnd = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 4;
      const text = answer.lines.map(harmless).join("\n") || "The learner has printed nothing.";
      setText(lines, answer.is_whole ? text : `…\n${text}`);
      if (isAtEnd) lines.scrollTop = lines.scrollHeight;
    } catch (error) {
      setText(lines, error.message);
    }
  };
  const timer = setInterval(() => isSeen() && target.closest("details").open && load(), LOG_EVERY);
  const end = () => {
    clearInterval(timer);
    free();
  };
  return { element: target, open: load, free: end };
}
