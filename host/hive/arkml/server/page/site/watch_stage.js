// A version that plays now: its agents in the plane, their rewards, observations, actions, values.

import { readEvents } from "./api.js";
import { button, element, setShown, setText } from "./dom.js";
import { harmless, whole } from "./format.js";
import { Plane } from "./shared/plane.js";
import { ReplayScenes } from "./shared/replay_scene.js";
import { AgentTable } from "./shared/replay_view.js";
import { ValuePanel } from "./shared/values.js";

const TABLE_EVERY = 200; // milliseconds between two drawings of the table
const MOST_AGENTS = 4_096; // that have appeared, after which colors begin anew

/** Return a value of JSON whose texts are harmless: a guest has written some of them. */
function harmlessIn(value) {
  if (typeof value === "string") return harmless(value);
  if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map(harmlessIn);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, harmlessIn(one)]));
}

function panelOf(title) {
  const note = element("p", { className: "quiet" }, "none in this frame");
  const values = element("div", { className: "values" });
  const head = element("h3", {}, title);
  const root = element("section", { className: "card" }, head, note, values);
  return { head, root, shown: new ValuePanel(values, note) };
}

/** One watched version of a run, "best", "latest" or a number, from a seed. */
export class WatchStage {
  #run;
  #wanted;
  #stopping = new AbortController();
  #scenes = null;
  #scene = null;
  #looked = "";
  #drawing = false;
  #tabled = -Infinity;

  constructor(run, wanted) {
    this.#run = run;
    this.#wanted = wanted;
    this.title = element("h3", {}, `Version ${wanted.version}`);
    this.state = element("span", { className: "quiet" }, "starting …");
    this.trouble = element("p", { className: "trouble", role: "alert" });
    this.calls = element("ol", { className: "calls" });
    this.again = button("Watch again", () => this.start());
    this.canvas = element("canvas", { className: "plane" });
    this.canvas.addEventListener("click", ({ offsetX, offsetY }) => {
      const name = this.plane.at(offsetX, offsetY);
      if (name) this.#look(name);
    });
    this.plane = new Plane(this.canvas);
    this.planeBox = element("section", { className: "card plane-box", "aria-label": "Agents in the plane" }, this.canvas);
    this.agents = new AgentTable((name) => this.#look(name === this.#looked ? "" : name));
    this.note = element("p", { className: "quiet" });
    this.table = element("section", { className: "card" }, this.agents.root, this.note);
    this.observed = panelOf("Observation");
    this.acted = panelOf("Action");
    this.parts = [this.planeBox, this.table, this.observed.root, this.acted.root];
    const head = element("header", {}, this.title, this.state, this.again);
    this.element = element("article", { className: "stage replay" }, head, this.trouble, this.calls, ...this.parts);
    this.start();
  }

  /** Begin, or begin again after the end. */
  start() {
    this.#stopping.abort();
    this.#stopping = new AbortController();
    setShown(this.again, false);
    setText(this.trouble, "");
    this.calls.replaceChildren();
    for (const part of this.parts) setShown(part, false);
    setText(this.state, "starting …");
    void this.#follow(this.#stopping.signal);
  }

  /** Stop, and let go of the hive's player. */
  free() {
    this.#stopping.abort();
  }

  /** Draw again, as after a change of colors. */
  redraw() {
    this.#tabled = -Infinity;
    if (this.#scene) this.#drawSoon();
  }

  async #follow(signal) {
    const take = (kind, data) => !signal.aborted && this.#take(kind, data);
    try {
      await readEvents(`v1/runs/${this.#run.id}/watch`, this.#wanted, take, signal);
      if (!signal.aborted && this.again.hidden) this.#end({ reason: "the stream has ended", calls: [] });
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === undefined) throw error;
      this.#end({ reason: error.message, calls: [] });
    }
  }

  #take(kind, data) {
    if (kind === "head") this.#begin(harmlessIn(data));
    else if (kind === "frame") this.#show(data);
    else if (kind === "kept") this.#lose();
    else if (kind === "ended") this.#end(harmlessIn(data));
  }

  #begin({ version, behaviors, notes }) {
    this.version = version;
    this.behaviors = behaviors;
    this.#scenes = new ReplayScenes({ behaviors, frames: [] });
    this.plane.clear();
    setText(this.title, `Version ${whole(version)}`);
    this.notes = notes;
    for (const part of this.parts) setShown(part, true);
    setShown(this.planeBox, this.#scenes.hasPlane);
  }

  #show(frame) {
    if (!this.#scenes) return;
    for (const submit of frame.submits) {
      submit.agents = submit.agents.map(harmless);
    }
    if (this.#scenes.agents > MOST_AGENTS) {
      this.#scenes = new ReplayScenes({ behaviors: this.behaviors, frames: [] });
      this.plane.clearTrails();
    }
    this.#scene = this.#scenes.of(frame);
    this.element.dataset.frame = String(frame.frame);
    if (this.#scenes.hasPlane) this.plane.follow(this.#scene);
    this.#drawSoon();
  }

  /** Say that the run does not keep the version any more, which plays on. */
  #lose() {
    this.isLost = true;
    this.#tell();
  }

  #end({ reason, calls }) {
    setText(this.state, "ended");
    setText(this.trouble, harmless(reason));
    this.calls.replaceChildren(...calls.map((call) => element("li", {}, element("code", {}, call))));
    setShown(this.again, true);
  }

  #drawSoon() {
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      this.#draw();
    });
  }

  #draw() {
    const scene = this.#scene;
    if (!this.element.isConnected) return;
    if (this.#scenes.hasPlane) this.plane.draw(scene, "", this.#looked);
    const now = performance.now();
    if (now - this.#tabled < TABLE_EVERY) return;
    this.#tabled = now;
    this.agents.show(scene, this.#looked);
    const actor = scene.actor(this.#looked) ?? scene.actors[0];
    if (actor) {
      setText(this.observed.head, `${actor.name} observes`);
      setText(this.acted.head, `${actor.name} acts`);
      this.observed.shown.show(actor);
      this.acted.shown.show({ actorClass: actor.actorClass.actions, observation: actor.acted });
    }
    this.#tell();
  }

  /** Say what is seen, and what is not. */
  #tell() {
    const scene = this.#scene;
    if (!scene) return;
    setText(this.state, `frame ${whole(scene.frame.frame)}`);
    const rows = scene.frame.submits.reduce((sum, submit) => sum + submit.rows, 0);
    const hasValues = scene.actors.some(({ value }) => value !== null);
    const told = [
      this.isLost ? "The run does not keep this version any more: it can be watched until it is closed." : "",
      rows > scene.actors.length ? `${whole(rows - scene.actors.length)} more rows are not shown.` : "",
      hasValues || rows === 0 ? "" : "This policy gives no values.",
      ...(this.notes ?? []),
    ];
    setText(this.note, told.filter(Boolean).join(" "));
  }

  #look(name) {
    this.#looked = name;
    this.redraw();
  }
}
