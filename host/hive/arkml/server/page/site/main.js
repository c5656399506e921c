// The page of a hive: its state, its views, and what connects them.

import { fragmentOf, takeToken, viewIn } from "./address.js";
import { palette, setUpTheme } from "./colors.js";
import { byId, setShown, setText } from "./dom.js";
import { askForToken, logIn, logOut, whoAmI } from "./login.js";
import { RunView } from "./run_view.js";
import { RunsTable } from "./runs_table.js";
import { Store } from "./store.js";
import { Stream } from "./stream.js";

const STATES = {
  live: "live",
  polling: "no stream: asking every 3 s",
  lost: "the hive does not answer: these are its last figures. Trying again …",
  ended:
    "the hive has ended: these are its last figures. arkml hive serve --data OUT/hive shows them later.",
  connecting: "connecting …",
};
const FIRST = "first"; // stands for the first run of a hive in a link that was made before it
const UPDATE_EVERY = 250; // milliseconds between two updates of what is shown

class App {
  constructor() {
    this.view = viewIn(location.hash);
    this.who = null;
    this.shown = null;
    this.kind = "";
    this.cachedColors = null;
    this.updating = null;
    this.updated = -Infinity;
    this.wantDetails = () => {};
    this.store = new Store(() => this.update());
    this.stream = new Stream({
      load: () => this.store.load(this.view.runs),
      open: () => this.store.loadNew(this.view.runs),
      poll: () => this.store.poll(this.view.runs),
      runs: (event) => this.store.takeRuns(event),
      metrics: (event) => this.store.takeMetrics(event),
      happened: (event) => {
        this.store.takeHappened(event);
        this.wantDetails();
      },
      usage: (event) => this.store.takeUsage(event),
      changed: (state, reason) => this.#showState(state, reason),
      refused: () => location.reload(), // the session has ended: the form is shown
    });
    this.store.ready = () => this.stream.ready();
    this.store.runsShown = () => this.view.runs.length;
  }

  /** Begin, after a login where one is needed. */
  async start() {
    setUpTheme(byId("theme"), () => {
      this.cachedColors = null;
      this.shown?.redraw();
    });
    this.#setUpKeys();
    window.addEventListener("hashchange", () => this.#go(viewIn(location.hash)));
    await this.#enter();
    const { name, role, needs_token: needsToken } = this.who;
    setText(byId("who"), needsToken ? `${name} (${role})` : "");
    setShown(byId("logout"), needsToken);
    byId("logout").onclick = async () => {
      await logOut();
      location.reload();
    };
    this.#show();
    this.stream.watch(this.view.runs);
    this.stream.start();
  }

  colors() {
    return (this.cachedColors ??= palette());
  }

  /** Change the view, and with it the address. */
  change(part) {
    const before = this.view;
    Object.assign(this.view, part);
    const isElsewhere = part.runs !== undefined;
    const address = fragmentOf(this.view) || location.pathname + location.search;
    if (isElsewhere) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
    this.#follow(isElsewhere, before);
  }

  /** Bring what is shown up to date, soon. */
  update() {
    const due = Math.max(0, this.updated + UPDATE_EVERY - performance.now());
    this.updating ??= setTimeout(() => {
      this.updating = null;
      this.#openFirst();
      this.updated = performance.now();
      this.shown?.update();
    }, due);
  }

  /** Open the first run of the hive where the address asks for it, as soon as that is there. */
  #openFirst() {
    if (this.view.runs.join() !== FIRST) return;
    const [first] = [...this.store.runs.values()].sort((a, b) => a.started_at - b.started_at);
    if (!first) return;
    this.view.runs = [first.id];
    history.replaceState(null, "", fragmentOf(this.view));
    this.#follow(true);
  }

  async #enter() {
    const token = takeToken();
    if (token) {
      try {
        await logIn(token);
      } catch {
        // a link that was opened before: the session that it began may still be there
      }
    }
    let reason = token ? "this link was used before, or is too old" : "";
    for (;;) {
      try {
        this.who = await whoAmI();
      } catch (error) {
        this.#showState("lost", error.message);
        await new Promise((resolve) => setTimeout(resolve, 3_000));
        continue;
      }
      this.#showState("connecting", "");
      if (this.who) return;
      await askForToken(reason);
      reason = "";
    }
  }

  #go(view) {
    const isElsewhere = view.runs.join() !== this.view.runs.join();
    Object.assign(this.view, view);
    this.#follow(isElsewhere);
  }

  #follow(isElsewhere) {
    this.store.setAxis(this.view.x);
    if (isElsewhere) {
      this.stream.watch(this.view.runs);
      this.#show();
      if (this.store.hasLoaded) this.stream.need();
    } else {
      this.update();
      this.shown?.redraw();
    }
  }

  #show() {
    const kind = this.view.runs.length ? "run" : "table";
    this.shown?.free();
    this.shown = kind === "run" ? new RunView(this) : new RunsTable(this);
    this.store.setAxis(this.view.x);
    byId("content").replaceChildren(this.shown.element);
    this.shown.update();
    if (kind !== this.kind) scrollTo(0, 0);
    this.kind = kind;
  }

  #showState(state, reason) {
    const notice = byId("state");
    notice.dataset.state = state;
    const isHttp = reason && reason !== "the hive does not answer";
    if (state === "refused") setText(notice, reason);
    else setText(notice, state === "lost" && isHttp ? `${reason}. Trying again …` : STATES[state]);
  }

  #setUpKeys() {
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const isTyping = event.target.matches?.("input, select, textarea");
      if (event.key === "Escape" && isTyping) event.target.blur();
      if (isTyping || document.querySelector("dialog[open]")) return;
      const press = {
        "/": () => (byId("metric-search") ?? byId("run-search"))?.focus(),
        Escape: () => this.view.runs.length && this.change({ runs: [], metric: "" }),
        l: () => byId("log")?.click(),
        b: () => this.view.runs.length > 1 && this.change({ group: this.view.group === "none" ? "" : "none" }),
        g: () => byId("group")?.focus(),
        z: () => byId("unzoom")?.click(),
        x: () => byId("axis")?.focus(),
        d: () => byId("theme").click(),
        "?": () => byId("keys").showModal(),
      }[event.key];
      if (!press) return;
      event.preventDefault();
      press();
    });
    byId("help").onclick = () => byId("keys").showModal();
  }
}

new App().start();
