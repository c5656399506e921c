// The table of all runs: filtered, grouped, sorted by chosen columns, with progress.

import { isOver } from "./actions.js";
import { hiveAddress } from "./address.js";
import { columnChoices, columnOf, EVALUATION, RETURN, sorted, usualColumns } from "./columns.js";
import { chooseNames } from "./choices.js";
import { button, command, element, setShown, setText } from "./dom.js";
import { filterOf } from "./filters.js";
import { harmless, short } from "./format.js";
import { groupChoices, groupsOf, median } from "./groups.js";
import { mayLabel, patchLabels, titleOf } from "./labels.js";
import { progressOf } from "./progress.js";
import { savedViews } from "./saved_views.js";
import { Sparks } from "./sparks.js";
import { sweepOf } from "./sweep.js";
import { groupSelect } from "./toolbar.js";

const METRICS_EVERY = 15_000; // milliseconds between two looks at metrics of columns and searches
const MOST_LAID_OVER = 64;

/** The table. `app` has store, view, who, and `change(view)`. */
export class RunsTable {
  constructor(app) {
    this.app = app;
    this.chosen = new Set();
    this.lines = new Map(); // by run: its row
    this.shownKeys = "";
    this.sparks = new Sparks((id) => app.store.runs.get(id));
    this.#buildToolbar();
    this.head = element("tr", {});
    this.grid = element("table", { className: "runs" }, element("thead", {}, this.head));
    this.sweep = sweepOf(app, () => this.#compared());
    this.full = element(
      "div", {}, this.toolbar, this.trouble, this.sweep.element,
      element("div", { className: "scrolled" }, this.grid)
    );
    this.empty = emptyState();
    this.element = element("main", {}, element("h1", {}, "Runs"), this.full, this.empty);
    this.timer = setInterval(() => this.#loadMetrics(), METRICS_EVERY);
  }

  update() {
    const { store, view } = this.app;
    const all = [...store.runs.values()];
    this.full.hidden = !all.length;
    this.empty.hidden = all.length > 0 || !store.hasLoaded;
    const filter = filterOf(view.q, all, store.settings);
    setText(this.trouble, filter.error);
    if (this.search !== document.activeElement) this.search.value = view.q;
    this.found = sorted(all.filter(filter.matches), view.sort, store.settings);
    const keys = view.columns.length ? view.columns : usualColumns(all, store.settings);
    this.columns = keys.map((key) => columnOf(key, store.settings)).filter(Boolean);
    this.#showHead();
    this.#showBody();
    this.groups.show(groupChoices(all, store.settings), view.group || "none");
    for (const id of this.chosen) if (!store.runs.has(id)) this.chosen.delete(id);
    this.#showChosen();
    const total = all.length === 1 ? "1 run" : `${all.length} runs`;
    setText(this.count, this.found.length === all.length ? total : `${this.found.length} of ${total}`);
    this.sweep.update();
  }

  redraw() {
    this.update();
    this.sweep.redraw();
  }

  free() {
    clearInterval(this.timer);
    this.sparks.free();
  }

  #buildToolbar() {
    const { app } = this;
    this.search = element("input", {
      id: "run-search", type: "search", placeholder: "Search runs (/): return>450 gamma=0.9..0.99",
      value: app.view.q, "aria-label": "Search runs", "aria-describedby": "filter-trouble",
      oninput: () => app.change({ q: this.search.value }),
    });
    this.trouble = element("p", { id: "filter-trouble", className: "trouble", role: "status" });
    this.groups = groupSelect(app, "group by ");
    const lay = () => app.change({ runs: [...this.chosen].slice(0, MOST_LAID_OVER), zoom: null });
    this.compare = button("Lay over each other", lay, { disabled: true, id: "compare" });
    this.count = element("span", { className: "quiet" });
    const columns = button("Columns …", () => this.#chooseColumns(), { id: "columns" });
    this.toolbar = element(
      "div", { className: "toolbar" },
      this.search, this.groups.element, columns, savedViews(app), this.compare, this.count
    );
  }

  #chooseColumns() {
    const { store, view } = this.app;
    const all = [...store.runs.values()];
    chooseNames({
      title: "Columns", choices: columnChoices(all, store.settings), most: 40,
      chosen: view.columns.length ? view.columns : usualColumns(all, store.settings),
      take: (columns) => this.app.change({ columns }),
      usual: () => this.app.change({ columns: [] }),
    });
  }

  /** The runs that are compared: the chosen ones, or all that are found. */
  #compared() {
    const chosen = this.found.filter((run) => this.chosen.has(run.id));
    return chosen.length > 1 ? chosen : this.found;
  }

  #showChosen() {
    const isTooMany = this.chosen.size > MOST_LAID_OVER;
    this.compare.disabled = this.chosen.size < 2 || isTooMany;
    this.compare.title = isTooMany ? `${MOST_LAID_OVER} runs at most, and ${this.chosen.size} are chosen` : "";
    const found = this.found.filter((run) => this.chosen.has(run.id)).length;
    if (!this.everything) return;
    this.everything.checked = found > 0 && found === this.found.length;
    this.everything.indeterminate = found > 0 && found < this.found.length;
  }

  #choose(runs, isChosen) {
    for (const { id } of runs) {
      if (isChosen) this.chosen.add(id);
      else this.chosen.delete(id);
      const line = this.lines.get(id);
      if (line) line.box.checked = isChosen;
    }
    this.#showChosen();
    this.sweep.update();
  }

  #showHead() {
    const { view } = this.app;
    const key = JSON.stringify([this.columns.map((column) => column.key), view.sort]);
    if (key === this.shownHead) return;
    this.shownHead = key;
    const focused = document.activeElement?.dataset?.sort;
    this.everything = element("input", {
      type: "checkbox", "aria-label": "choose all that are found",
      onchange: () => this.#choose(this.found, this.everything.checked),
    });
    const cells = this.columns.map((column) => {
      if (!column.value) return element("th", { "aria-label": column.label });
      const isUp = view.sort === column.key;
      const isDown = view.sort === `-${column.key}`;
      const press = () => this.app.change({ sort: isDown ? column.key : `-${column.key}` });
      const mark = isUp ? " ▲" : isDown ? " ▼" : "";
      const label = column.label ? { "aria-label": column.label } : {};
      return element(
        "th",
        { scope: "col", "aria-sort": isUp ? "ascending" : isDown ? "descending" : "none", className: column.number ? "number" : "" },
        button(harmless(column.title) + mark, press, { className: "sort", "data-sort": column.key, ...label })
      );
    });
    this.head.replaceChildren(element("th", {}, this.everything), ...cells);
    if (focused) this.head.querySelector(`[data-sort="${CSS.escape(focused)}"]`)?.focus();
  }

  /** Show the rows, below a heading for each group. */
  #showBody() {
    const { store, view } = this.app;
    const by = view.group || "none";
    const groups = by === "none" ? [{ runs: this.found }] : groupsOf(this.found, store.settings, by, this.app.colors());
    const place = new Map(this.found.map((run, index) => [run.id, index]));
    const bodies = groups.map((group) => {
      const runs = [...group.runs].sort((a, b) => place.get(a.id) - place.get(b.id));
      return { key: JSON.stringify([group.label, ...this.#figuresOf(runs)]), group: { ...group, runs } };
    });
    const shown = JSON.stringify([by, this.columns.map((one) => one.key), bodies.map(({ key, group }) => [key, group.runs.map((run) => run.id)])]);
    for (const { group } of bodies) for (const run of group.runs) this.#row(run);
    if (shown === this.shownBody) return;
    this.shownBody = shown;
    const focused = this.grid.contains(document.activeElement) ? document.activeElement : null;
    const made = bodies.map(({ group }) => {
      const rows = group.runs.map((run) => this.lines.get(run.id).element);
      return element("tbody", {}, ...(by === "none" ? [] : [this.#heading(group)]), ...rows);
    });
    this.grid.replaceChildren(this.grid.tHead, ...made);
    if (focused?.isConnected) focused.focus();
  }

  #figuresOf(runs) {
    const returns = runs.map((run) => run.latest[EVALUATION] ?? run.latest[RETURN]).filter(Number.isFinite);
    return [runs.length, median(returns), returns.length ? Math.max(...returns) : undefined];
  }

  #heading({ label, runs }) {
    const [count, middle, best] = this.#figuresOf(runs);
    const box = element("input", {
      type: "checkbox", "aria-label": `choose ${label}`, onchange: () => this.#choose(runs, box.checked),
      checked: runs.every((run) => this.chosen.has(run.id)),
    });
    const figures = count === 1 ? ["1 run"] : []; // else the label has the number
    if (middle !== undefined) figures.push(`median return ${short(middle)}`, `best ${short(best)}`);
    const text = element(
      "th", { scope: "rowgroup", colSpan: this.columns.length },
      label, element("span", { className: "quiet" }, figures.join(", "))
    );
    return element("tr", { className: "group" }, element("td", {}, box), text);
  }

  #row(run) {
    const key = this.columns.map((column) => column.key).join("\n");
    let line = this.lines.get(run.id);
    if (line?.key !== key) {
      line = this.#newRow(run, key);
      this.lines.set(run.id, line);
    }
    for (const column of this.columns) {
      const cell = line.cells.get(column.key);
      if (column.cell) SHOW[column.cell](this, cell, run);
      else setText(cell, column.text(run));
      if (column.isChanged) cell.className = column.isChanged(run) ? "changed" : "quiet";
    }
  }

  #newRow(run, key) {
    const box = element("input", {
      type: "checkbox", checked: this.chosen.has(run.id), "aria-label": `choose ${harmless(titleOf(run))}`,
      onchange: () => this.#choose([run], box.checked),
    });
    const cells = new Map(
      this.columns.map((column) => [
        column.key,
        element("td", { className: column.className ?? column.cell ?? (column.number ? "number" : ""), "data-column": column.key }),
      ])
    );
    const row = element("tr", { "data-run": run.id }, element("td", {}, box), ...cells.values());
    return { key, element: row, box, cells };
  }

  /** Turn the star of a run on or off; what the hive refuses is said below the search. */
  async star(id) {
    try {
      const run = this.app.store.runs.get(id);
      await patchLabels(run, { starred: !run.starred });
      this.app.store.takeRuns({ runs: [{ ...run, starred: !run.starred }], removed: [] });
    } catch (error) {
      setText(this.trouble, error.message);
    }
  }

  #loadMetrics() {
    const isShown = this.columns?.some(({ key }) => key.startsWith("metric:")) || this.app.view.q.includes("/");
    const goesOn = [...this.app.store.runs.values()].some((run) => !isOver(run));
    if (!isShown || !goesOn || document.hidden) return;
    this.app.store.loadLatest().catch((error) => {
      if (error.status === undefined) throw error; // the stream shows a hive that is gone
    });
  }
}

/** How the cells are shown that are more than a text: by kind, with the table, the cell, the run. */
const SHOW = {
  name(_, cell, run) {
    if (!cell.firstChild) cell.append(element("a", {}));
    cell.firstChild.href = `#runs=${run.id}`;
    setText(cell.firstChild, harmless(titleOf(run)));
    cell.title = run.title ? harmless(run.name) : "";
  },
  star(table, cell, run) {
    if (!cell.firstChild) cell.append(button("", () => table.star(run.id), { className: "star" }));
    const star = cell.firstChild;
    setText(star, run.starred ? "★" : "☆");
    star.disabled = !mayLabel(table.app.who);
    star.setAttribute("aria-pressed", String(run.starred === true));
    star.setAttribute("aria-label", `star ${harmless(titleOf(run))}`);
  },
  tags(_, cell, run) {
    const tags = (run.tags ?? []).map(harmless);
    const isSame = cell.childElementCount === tags.length && tags.every((tag, at) => cell.children[at].textContent === tag);
    if (!isSame) cell.replaceChildren(...tags.map((tag) => element("span", { className: "pill" }, tag)));
  },
  status(_, cell, run) {
    if (!cell.firstChild) cell.append(element("span", { className: "pill" }));
    setText(cell.firstChild, run.place ? `${run.status}, number ${run.place}` : run.status);
    cell.firstChild.dataset.status = run.status;
    cell.firstChild.title = run.reason ? harmless(run.reason) : "";
  },
  progress(_, cell, run) {
    if (!cell.firstChild) cell.append(element("progress", { max: 1 }), element("span", {}));
    const [bar, text] = cell.children;
    const progress = progressOf(run);
    setShown(bar, progress.share !== null);
    if (progress.share !== null) bar.value = progress.share;
    setText(text, progress.text);
  },
  spark(table, cell, run) {
    if (cell.dataset.run !== run.id) table.sparks.show(cell, run.id);
  },
};

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
