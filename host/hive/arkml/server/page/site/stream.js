// The events of the hive: one stream, closed while the tab is hidden, and polling in its place.

import { pathOf } from "./api.js";

const QUIET = 5_000; // milliseconds without an event, after which the page asks by itself
const POLL_EVERY = 3_000;
const REOPEN_EVERY = 3_000;
const KINDS = ["open", "reset", "runs", "metrics", "happened", "usage", "ended"];

/**
 * A stream of events, with the state of the connection: "live", "polling", "lost", "ended", or
 * "refused", after which nothing is asked any more.
 *
 * `handlers` has a function for each kind of event; `load` loads everything anew, `poll` asks for
 * what an event would have said, `open` for what a view of other runs needs, and they reject if the
 * hive does not answer; `changed` is called with each new state.
 */
export class Stream {
  constructor(handlers, { page = document, Source = EventSource, now = () => performance.now() } = {}) {
    this.state = "connecting";
    this.handlers = handlers;
    this.runs = [];
    this.last = "";
    this.page = page;
    this.Source = Source;
    this.now = now;
    this.heard = now();
    this.asked = -Infinity;
    this.opened = -Infinity;
    this.isLoaded = false;
    this.isAsking = false;
    this.needsOpen = false;
    this.source = null;
    this.waiting = [];
  }

  /** Begin. */
  start() {
    this.page.addEventListener("visibilitychange", () => this.#turn());
    setInterval(() => this.check(), 1_000);
    this.#turn();
  }

  /** Have the metrics of these runs in the stream. */
  watch(runs) {
    if (runs.join() === this.runs.join()) return;
    this.runs = [...runs];
    if (this.source) this.open();
  }

  /** Ask for what a view of other runs needs, again and again until the hive answers. */
  need() {
    this.needsOpen = true;
    return this.#ask("open");
  }

  /** Wait until the stream is open, or polling takes its place. */
  ready() {
    const { readyState } = this.source ?? {};
    if (readyState === 1 || (this.state !== "connecting" && readyState !== 0)) return Promise.resolve();
    return new Promise((resolve) => this.waiting.push(resolve));
  }

  open() {
    this.source?.close();
    this.opened = this.now();
    const fields = { runs: this.runs.join(",") };
    if (this.last) fields.last_event_id = this.last;
    const source = (this.source = new this.Source(pathOf("v1/events", fields)));
    for (const kind of KINDS) {
      source.addEventListener(kind, (event) => {
        const isOfBrowser = event.data === undefined; // it has an "open" of its own, before the hive's
        if (source === this.source && !isOfBrowser) this.#take(kind, event);
      });
    }
  }

  close() {
    this.source?.close();
    this.source = null;
  }

  /** Look once a second if the stream is alive, and ask the hive where it is not. */
  check() {
    if (this.page.hidden || this.state === "refused") return;
    const now = this.now();
    const isDue = now - this.asked >= POLL_EVERY && !this.isAsking;
    if (now - this.heard < QUIET) {
      if (this.needsOpen && isDue) this.#ask("open");
      return;
    }
    const isClosed = !this.source || this.source.readyState === 2;
    if (isClosed && now - this.opened >= REOPEN_EVERY) this.open();
    if (isDue) this.#ask(!this.isLoaded ? "load" : this.needsOpen ? "open" : "poll");
  }

  #turn() {
    if (this.page.hidden) {
      this.close();
    } else if (this.state !== "refused") {
      this.heard = this.now();
      this.open();
    }
  }

  #take(kind, event) {
    this.heard = this.now();
    if (event.lastEventId) this.last = event.lastEventId;
    if (kind === "ended") {
      this.close();
      this.last = "";
      this.isLoaded = false; // a hive that comes back is asked for everything
      this.heard = -Infinity;
      this.#set("ended");
      return;
    }
    if (kind === "reset" || (kind === "open" && !this.isLoaded)) this.#ask("load");
    else if (kind !== "open") this.handlers[kind]?.(JSON.parse(event.data));
    if (this.isLoaded && !this.needsOpen) this.#set("live");
    if (kind === "open") this.#release();
  }

  async #ask(what) {
    this.isAsking = true;
    this.asked = this.now();
    try {
      await this.handlers[what]();
      this.isLoaded ||= what === "load";
      if (what !== "poll") this.needsOpen = false;
      if (this.isLoaded) this.#set(this.now() - this.heard < QUIET ? "live" : "polling");
    } catch (error) {
      this.needsOpen ||= what === "open";
      if (error.status === 401) this.handlers.refused?.();
      else if (error.status === 403) {
        this.close();
        this.#set("refused", error.message);
      } else if (error.status !== undefined) {
        if (error.status === 0) this.isLoaded = this.isLoaded && this.source?.readyState === 1;
        this.#set(this.state === "ended" ? "ended" : "lost", error.message);
      } else throw error;
    } finally {
      this.isAsking = false;
      this.#release();
    }
  }

  #release() {
    for (const resolve of this.waiting.splice(0)) resolve();
  }

  #set(state, reason = "") {
    if (state === this.state) return;
    this.state = state;
    this.handlers.changed?.(state, reason);
  }
}
