// The table of all runs: searched, sorted by changed settings and results, with progress.

import { get } from "./api.js";
import { isOver } from "./actions.js";
import { hiveAddress } from "./address.js";
import { sparkline } from "./curves.js";
import { button, command, element, setText } from "./dom.js";
import { duration, harmless, moment, setting, short, whole } from "./format.js";

const RETURN = "rollout/ep_rew_mean";
const EVALUATION = "eval/mean_reward";
const SPARK = { width: 90, height: 22, points: 60 };
const SPARK_EVERY = 30_000; // milliseconds between two looks at the curve of a run that goes on
const MOST_SETTINGS = 12;

const COLUMNS = [
  { key: "name", title: "run", value: (run) => run.name.toLowerCase() },
  { key: "game", title: "game", value: (run) => run.game.toLowerCase() },
  { key: "status", title: "status", value: (run) => run.status },
  { key: "return", title: "mean return", value: (run) => run.latest[RETURN], number: true },
  { key: "evaluation", title: "evaluation", value: (run) => run.latest[EVALUATION], number: true },
  { key: "rows", title: "rows", value: (run) => run.rows, number: true },
  { key: "n_opts", title: "updates", value: (run) => run.n_opts, number: true },
  { key: "progress", title: "progress", value: (run) => lasted(run), number: true },
  { key: "started_at", title: "started", value: (run) => run.started_at },
  { key: "seed", title: "seed", value: (run) => run.seed, number: true },
];

function lasted(run) {
  return ((run.ended_at || Date.now() * 1e6) - run.started_at) / 1e9;
}

/** Return the settings in which runs differ, or that are not the defaults, by name. */
export function changedSettings(runs, { runs: changed, defaults }) {
  const names = new Set(runs.flatMap((run) => Object.keys(changed[run.id] ?? {})));
  names.delete("other");
  const valueOf = (run, name) => (changed[run.id] ?? {})[name] ?? defaults[name];
  const kinds = (name) => new Set(runs.map((run) => setting(valueOf(run, name)))).size;
  return [...names].sort((a, b) => kinds(b) - kinds(a) || (a < b ? -1 : 1)).slice(0, MOST_SETTINGS);
}

/** Return the runs that have all words of a search, among their names, states and settings. */
export function searched(runs, q, settings) {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  return runs.filter((run) => {
    const changed = Object.entries(settings.runs[run.id] ?? {});
    const own = changed.map(([name, value]) => `${name}=${setting(value)}`);
    const text = [run.name, run.game, run.id, run.status, ...own].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

/** Return runs in the order of a column, "-name" for the reverse; those without a value last. */
export function sorted(runs, sort, settings) {
  const key = sort.replace(/^-/, "");
  const sign = sort.startsWith("-") ? -1 : 1;
  const column = COLUMNS.find((one) => one.key === key);
  const name = key.replace(/^setting:/, "");
  const value = column?.value ?? ((run) => (settings.runs[run.id] ?? {})[name] ?? settings.defaults[name]);
  const isMissing = (one) => one === undefined || one === null || Number.isNaN(one);
  return [...runs].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (isMissing(x) || isMissing(y)) return isMissing(x) - isMissing(y);
    if (typeof x === "number" && typeof y === "number") return sign * (x - y);
    const [s, t] = [setting(x), setting(y)];
    return sign * (s < t ? -1 : s > t ? 1 : 0);
  });
}

/** The table. `app` has store, view, and `change(view)`. */
export class RunsTable {
  constructor(app) {
    this.app = app;
    this.chosen = new Set();
    this.sparks = new Map(); // by run: {points, at}
    this.lines = new Map(); // by run: its row
    this.search = element("input", {
      id: "run-search", type: "search", placeholder: "Search runs (/)", value: app.view.q,
      "aria-label": "Search runs", oninput: () => app.change({ q: this.search.value }),
    });
    this.compare = button("Lay over each other", () => app.change({ runs: [...this.chosen], zoom: null }), {
      disabled: true, id: "compare",
    });
    this.count = element("span", { className: "quiet" });
    this.head = element("tr", {});
    this.body = element("tbody", {});
    const grid = element("table", { className: "runs" }, element("thead", {}, this.head), this.body);
    this.full = element(
      "div", {},
      element("div", { className: "toolbar" }, this.search, this.compare, this.count),
      element("div", { className: "scrolled" }, grid)
    );
    this.empty = emptyState();
    this.element = element("main", {}, element("h1", {}, "Runs"), this.full, this.empty);
    this.observer = new IntersectionObserver((entries) => this.#see(entries));
    this.seen = new Set();
    this.timer = setInterval(() => this.#loadSparks(), 2_000);
  }

  update() {
    const { store, view } = this.app;
    const all = [...store.runs.values()];
    this.full.hidden = !all.length;
    this.empty.hidden = all.length > 0 || !store.hasLoaded;
    const runs = sorted(searched(all, view.q, store.settings), view.sort, store.settings);
    const names = changedSettings(all, store.settings);
    this.#showHead(names);
    const rows = runs.map((run) => this.#row(run, names));
    if (rows.length !== this.body.childElementCount || rows.some((row, index) => this.body.children[index] !== row)) {
      this.body.replaceChildren(...rows);
    }
    for (const id of this.chosen) if (!store.runs.has(id)) this.chosen.delete(id);
    this.compare.disabled = this.chosen.size < 2;
    const total = all.length === 1 ? "1 run" : `${all.length} runs`;
    setText(this.count, runs.length === all.length ? total : `${runs.length} of ${total}`);
  }

  redraw() {
    this.update();
  }

  free() {
    clearInterval(this.timer);
    this.observer.disconnect();
  }

  #showHead(names) {
    const { view } = this.app;
    const columns = [
      ...COLUMNS.slice(0, 5), { title: "", key: "" }, ...COLUMNS.slice(5),
      ...names.map((name) => ({ key: `setting:${name}`, title: name })),
    ];
    const key = JSON.stringify([columns.map((column) => column.key), view.sort]);
    if (key === this.shownHead) return;
    this.shownHead = key;
    const focused = document.activeElement?.dataset?.sort;
    const cells = columns.map((column) => {
      if (!column.key) return element("th", { "aria-label": "curve" });
      const isUp = view.sort === column.key;
      const isDown = view.sort === `-${column.key}`;
      const press = () => this.app.change({ sort: isDown ? column.key : `-${column.key}` });
      const mark = isUp ? " ▲" : isDown ? " ▼" : "";
      return element(
        "th",
        { scope: "col", "aria-sort": isUp ? "ascending" : isDown ? "descending" : "none", className: column.number ? "number" : "" },
        button(harmless(column.title) + mark, press, { className: "sort", "data-sort": column.key })
      );
    });
    this.head.replaceChildren(element("th", { "aria-label": "chosen" }), ...cells);
    if (focused) this.head.querySelector(`[data-sort="${CSS.escape(focused)}"]`)?.focus();
  }

  #row(run, names) {
    const key = names.join();
    let line = this.lines.get(run.id);
    if (!line || line.key !== key) {
      line = this.#newRow(run, names, key);
      this.lines.set(run.id, line);
    }
    const { store } = this.app;
    line.link.href = `#runs=${run.id}`;
    setText(line.link, harmless(run.name) || run.id);
    setText(line.status, run.place ? `${run.status}, number ${run.place}` : run.status);
    line.status.dataset.status = run.status;
    line.status.title = run.reason ? harmless(run.reason) : "";
    setText(line.cells.game, harmless(run.game));
    setText(line.cells.return, short(run.latest[RETURN]));
    setText(line.cells.evaluation, short(run.latest[EVALUATION]));
    setText(line.cells.rows, whole(run.rows));
    setText(line.cells.n_opts, whole(run.n_opts));
    setText(line.cells.started_at, moment(run.started_at));
    setText(line.cells.seed, String(run.seed));
    this.#showProgress(line, run);
    const changed = store.settings.runs[run.id] ?? {};
    for (const name of names) {
      const isChanged = name in changed;
      setText(line.settings[name], harmless(setting(isChanged ? changed[name] : store.settings.defaults[name] ?? "")));
      line.settings[name].className = isChanged ? "changed" : "quiet";
    }
    return line.element;
  }

  #newRow(run, names, key) {
    const number = (name) => element("td", { className: "number", "data-column": name });
    const box = element("input", {
      type: "checkbox", checked: this.chosen.has(run.id), "aria-label": `choose ${harmless(run.name)}`,
      onchange: () => {
        if (box.checked) this.chosen.add(run.id);
        else this.chosen.delete(run.id);
        this.compare.disabled = this.chosen.size < 2;
      },
    });
    const link = element("a", {});
    const status = element("span", { className: "pill" });
    const cells = {
      game: element("td", {}), return: number("return"), evaluation: number("evaluation"),
      rows: number("rows"), n_opts: number("n_opts"), progress: number("progress"),
      started_at: element("td", { className: "time" }), seed: number("seed"),
    };
    const bar = element("progress", { max: 1, hidden: true });
    const text = element("span", {});
    cells.progress.append(bar, text);
    const spark = element("td", { className: "spark" });
    const settings = Object.fromEntries(names.map((name) => [name, element("td", {})]));
    const row = element(
      "tr", { "data-run": run.id },
      element("td", {}, box), element("td", { className: "name" }, link), cells.game,
      element("td", {}, status), cells.return, cells.evaluation, spark, cells.rows, cells.n_opts,
      cells.progress, cells.started_at, cells.seed, ...Object.values(settings)
    );
    this.observer.observe(row);
    const line = { key, element: row, link, status, cells, bar, text, spark, settings };
    this.#drawSpark(line, run.id);
    return line;
  }

  #showProgress(line, run) {
    const seconds = lasted(run);
    line.bar.hidden = !run.seconds || isOver(run);
    if (run.seconds) line.bar.value = Math.min(1, seconds / run.seconds);
    setText(line.text, run.seconds && !isOver(run) ? `${duration(seconds)} of ${duration(run.seconds)}` : duration(seconds));
  }

  #see(entries) {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) this.seen.add(target.dataset.run);
      else this.seen.delete(target.dataset.run);
    }
    this.#loadSparks();
  }

  async #loadSparks() {
    if (document.hidden || this.isLoading) return;
    const now = performance.now();
    const due = [...this.seen].filter((id) => {
      const run = this.app.store.runs.get(id);
      const known = this.sparks.get(id);
      return run && (!known || (!isOver(run) && now - known.at > SPARK_EVERY));
    });
    this.isLoading = true;
    for (const id of due.slice(0, 8)) {
      try {
        const answer = await get(`v1/runs/${id}/curves`, { names: RETURN, points: SPARK.points });
        this.sparks.set(id, { points: answer.curves[0].points, at: now });
      } catch (error) {
        if (error.status === undefined) throw error;
        this.sparks.set(id, { points: [], at: now });
      }
      const line = this.lines.get(id);
      if (line) this.#drawSpark(line, id);
    }
    this.isLoading = false;
  }

  #drawSpark(line, id) {
    const points = sparkline((this.sparks.get(id)?.points ?? []).map((point) => point[1]), SPARK.width, SPARK.height);
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", `0 0 ${SPARK.width} ${SPARK.height}`);
    svg.setAttribute("aria-hidden", "true");
    const path = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    path.setAttribute("points", points);
    svg.append(path);
    line.spark.replaceChildren(svg);
  }
}

function emptyState() {
  const address = hiveAddress();
  return element(
    "div", { className: "empty", hidden: true },
    element("p", {}, "There are no runs yet. Start one from a shell:"),
    element("p", {}, command(`arkml train GUEST.wasm --hive ${address}`)),
    element("p", {}, "or from Python:"),
    element("p", {}, command(`arkml.train("GUEST.wasm", hive="${address}")`)),
    element("p", { className: "quiet" }, "It is here as soon as the guest starts its training.")
  );
}
