// The page of a published guest: people watch it, take an agent over and hand it back.

import { Controls } from "./controls.js";
import { byId, element, setShown, setText, short } from "./dom.js";
import { Finish } from "./finish.js";
import { Inputs } from "./inputs.js";
import { KernelPolicy } from "./kernel.js";
import { Plane } from "./plane.js";
import { fileOf } from "./published_files.js";
import { Play } from "./published_play.js";
import { Roster } from "./roster.js";
import { requireRuntime, RuntimeModel, RuntimePolicy } from "./runtime_policy.js";
import { ScoreBoard } from "./scores.js";
import { Sound } from "./sound.js";
import { Steering } from "./steering.js";
import { ValuePanel } from "./values.js";

const MOST_LATE = 4; // frames that are made up for at once
const LISTED_ACTORS = 32; // actors in the table
const LOG_LINES = 60; // of the log
const PANEL_PERIOD = 100; // milliseconds between two changes of table and values

/** The page: what it draws, and what its buttons do. */
class PublishedPage {
  #site;
  #parts;
  #play = null;
  #advanced = null; // the play whose frames run: they may wait for the policy's runtime
  #inputs = new Inputs(() => {});
  #controls = new Controls(byId("controls"), this.#inputs);
  #plane = new Plane(byId("plane"));
  #steering = new Steering(byId("plane"), this.#inputs, () => this.#steered());
  #sound = new Sound(byId("sound"));
  #finish = new Finish(byId("plane-box"), byId("score-box"));
  #scores;
  #roster;
  #values = new ValuePanel(byId("values"), byId("absent"));
  #looked = "";
  #mine = "";
  #controlled = null; // the class whose controls are shown
  #listed = -1; // actors in the table
  #isPaused = false;
  #origin = null; // the time of the frame 0, as the clock of the page goes
  #painted = 0; // when table and values were last changed
  #work = 0; // milliseconds of a frame, about
  #begun = 0; // plays

  constructor(site, parts) {
    this.#site = site;
    this.#parts = {
      ...parts,
      action: (allowed) => this.#controls.action(allowed),
      write: (level, text) => this.#log(level, text),
    };
    this.#roster = new Roster(byId("actors"), {
      look: (name) => this.#look(name),
      take: (name) => this.#take(name),
      who: (actor) => (actor.name === this.#mine ? "person: you" : `policy: ${titleOf(site.policies, actor)}`),
      isTaken: () => false,
    });
    this.#scores = new ScoreBoard(byId("score-box"), site.guest.digest, site.evaluated);
    byId("leave").addEventListener("click", () => this.#leave());
    byId("pause").addEventListener("click", () => this.#pause(!this.#isPaused));
    byId("restart").addEventListener("click", () => void this.begin());
    byId("plane").addEventListener("click", ({ offsetX, offsetY, pointerType }) => {
      const name = this.#mine && pointerType === "touch" ? "" : this.#plane.at(offsetX, offsetY);
      if (name) this.#look(name);
    });
    document.addEventListener("visibilitychange", () => {
      this.#origin = null;
      if (document.hidden) this.#inputs.releaseAll();
    });
    requestAnimationFrame((now) => this.#tick(now));
  }

  /** Begin a play. */
  async begin() {
    const begun = ++this.#begun;
    this.#play = null;
    byId("log").replaceChildren();
    this.#plane.clear();
    this.#scores.clear();
    this.#finish.clear();
    try {
      const play = await Play.begin(this.#site, this.#parts);
      if (begun !== this.#begun) return;
      this.#play = play;
      this.#origin = null;
      this.#listed = -1;
      play.stage.mine = this.#mine;
      if (this.#mine) this.#notice(`You play ${this.#mine}.`);
      else this.#notice("You watch. Take over an agent to play it.");
    } catch (error) {
      this.#failed(error);
    }
  }

  async #tick(now) {
    requestAnimationFrame((next) => this.#tick(next));
    if (this.#play === null) return;
    if (this.#finish.show(now)) this.#origin = null;
    else if (!this.#isPaused && this.#advanced !== this.#play) await this.#advance(now);
    this.#draw(now);
  }

  /** Run the frames that are due by a time. */
  async #advance(now) {
    const length = this.#site.plan.frameNanoseconds / 1e6;
    const play = this.#play;
    this.#origin ??= now - play.frames * length;
    let due = Math.floor((now - this.#origin) / length + 0.5) - play.frames;
    if (due > MOST_LATE) {
      this.#origin = now - play.frames * length;
      due = 1;
    }
    const started = performance.now();
    this.#steering.update();
    this.#advanced = play;
    for (let frame = 0; frame < due && this.#play === play; frame += 1) {
      await this.#frame(play);
      if (this.#count(now)) break;
    }
    if (this.#advanced === play) this.#advanced = null;
    if (due > 0) this.#work += 0.05 * ((performance.now() - started) / due - this.#work);
    this.#inputs.settle(started);
  }

  /** Take in the scores after a frame; return true if a break begins, since my episode has ended. */
  #count(now) {
    const { scene } = this.#play?.stage ?? {};
    if (!scene) return false;
    const shown = scene.actor(this.#mine) ?? scene.actor(this.#looked) ?? scene.actors[0];
    const news = this.#scores.show(scene, shown, (actor) => (actor.name === this.#mine ? "me" : "policy"));
    if (news.end) {
      this.#finish.begin(now, shown.actorClass.game, news);
      this.#sound.end(news.isBest);
    } else if (news.isGain) this.#sound.tick();
    return news.end !== null;
  }

  /** Return what a finger on the plane steers, null while I play no agent. */
  #steered() {
    const actor = this.#play?.stage.scene.actor(this.#mine);
    if (!actor) return null;
    return { mapping: actor.actorClass.mapping, place: this.#plane.placeOf(this.#mine) };
  }

  async #frame(play) {
    try {
      await play.frame();
    } catch (error) {
      if (this.#play !== play) return;
      this.#play = null;
      this.#failed(error);
    }
  }

  #draw(now) {
    const play = this.#play;
    if (play === null) return;
    const { scene } = play.stage;
    const hasPlane = Plane.fits(scene);
    setShown(byId("plane-box"), hasPlane);
    if (hasPlane) this.#plane.draw(scene, this.#mine, this.#looked);
    if (now - this.#painted < PANEL_PERIOD) return;
    this.#painted = now;
    this.#paint(play, scene);
  }

  /** Show what need not change with each frame. */
  #paint(play, scene) {
    const listed = scene.actors.slice(0, LISTED_ACTORS);
    if (listed.length !== this.#listed) {
      this.#listed = listed.length;
      this.#roster.use({ actors: listed });
    }
    const more = scene.actors.length - listed.length;
    setShown(byId("more"), more > 0);
    setText(byId("more"), `and ${more} more`);
    if (!scene.actor(this.#looked)) this.#look(scene.actors[0]?.name ?? "");
    const shown = scene.actor(this.#mine) ?? scene.actor(this.#looked);
    setText(byId("goal"), shown?.actorClass.game?.goal ?? "");
    setText(byId("tick"), String(play.frames));
    setText(byId("rate"), scene.rate === null ? "–" : scene.rate.toFixed(0));
    setText(byId("work"), `${this.#work.toFixed(1)} ms`);
    this.#roster.show({ mine: this.#mine, looked: this.#looked });
    const mine = scene.actor(this.#mine);
    if (mine) {
      this.#control(mine.actorClass);
      this.#controls.show(mine.observation?.allowed ?? []);
    }
    const looked = scene.actor(this.#looked);
    if (!looked) return;
    this.#values.show(looked);
    const ended = looked.ended.map(({ episode, return: value }) => `${episode}: ${short(value)}`);
    setText(byId("returns"), ended.length > 0 ? `Returns by episode: ${ended.join(" · ")}` : "");
  }

  #take(name) {
    const actor = this.#play?.stage.scene.actor(name);
    if (!actor) return;
    this.#mine = this.#play.stage.mine = name;
    this.#control(actor.actorClass);
    this.#seat();
    this.#look(name);
    this.#notice(`You play ${name}.`);
    byId("plane-box").scrollIntoView({ block: "nearest" }); // below which a phone has the table
    if (this.#isPaused) this.#pause(false);
  }

  #leave() {
    const name = this.#mine;
    this.#mine = "";
    if (this.#play) this.#play.stage.mine = "";
    this.#seat();
    this.#notice(`You handed ${name} back. You watch now.`, `Take over ${name} again`, () => this.#take(name));
  }

  #control(actorClass) {
    if (actorClass !== this.#controlled) this.#controls.use(actorClass.mapping);
    this.#controlled = actorClass;
  }

  /** Show my part: that of an agent, or of someone who watches. */
  #seat() {
    const isPlaying = this.#mine !== "";
    setText(byId("part"), isPlaying ? `you play ${this.#mine}` : "you watch");
    setShown(byId("control-box"), isPlaying);
    byId("plane").classList.toggle("steers", isPlaying);
    this.#finish.clear();
    this.#inputs.isEnabled = isPlaying;
    if (!isPlaying) this.#inputs.releaseAll();
    this.#painted = 0;
  }

  #look(name) {
    this.#looked = name;
    setText(byId("looked-title"), `${name} observes`);
    setShown(byId("looked-box"), name !== "");
    this.#painted = 0;
  }

  #pause(isPaused) {
    this.#isPaused = isPaused;
    this.#origin = null;
    setText(byId("pause"), isPaused ? "Go on" : "Pause");
    byId("pause").setAttribute("aria-pressed", String(isPaused));
  }

  #failed(error) {
    const places = error.places ?? [];
    const where = places.length > 0 ? `, in ${places.slice(0, 4).join(", called by ")}` : "";
    this.#log("error", `${error.message}${where}`);
    this.#notice(`The guest has failed: ${error.message}${where}.`, "Start again", () => void this.begin(), true);
  }

  #log(level, text) {
    const list = byId("log");
    list.append(element("li", { className: level }, text));
    while (list.children.length > LOG_LINES) list.firstChild.remove();
    setShown(byId("log-box"), true);
  }

  #notice(text, action = "", act = () => {}, isTrouble = false) {
    setText(byId("notice-text"), text);
    byId("notice").classList.toggle("is-trouble", isTrouble);
    const button = byId("notice-action");
    setShown(button, action !== "");
    setText(button, action);
    button.onclick = act;
  }
}

/** Return the title of the policy that plays an actor. */
function titleOf([first, ...others], { actorClass }) {
  return (others.find(({ behavior }) => behavior === actorClass.name) ?? first).title;
}

/** Load the files of a policy; return a function that makes the policy anew. */
async function loaderOf({ runtime, ...file }, options) {
  const weights = await fileOf(file);
  if (!runtime) return () => KernelPolicy.load(weights, options);
  const model = await RuntimeModel.load(await fileOf(runtime.model), runtime.rows);
  return () => RuntimePolicy.load(weights, model, options);
}

/** Load the files, and show the page; what fails is told in it. */
async function openPage() {
  const site = JSON.parse(byId("site").textContent);
  try {
    if (site.policies.some(({ runtime }) => runtime)) requireRuntime();
    const options = { seed: BigInt(site.seed), deterministic: site.deterministic };
    const wasm = await fileOf(site.guest);
    const loaders = new Map();
    for (const one of site.policies) loaders.set(one, await loaderOf(one, options));
    const load = (one) => loaders.get(one)();
    const module = await WebAssembly.compile(wasm);
    const game = site.imports ? (await import(`./${site.imports}`)).default : () => ({});
    await new PublishedPage(site, { module, load, game }).begin();
  } catch (error) {
    setText(byId("notice-text"), `The guest cannot be shown: ${error.message}.`);
    byId("notice").classList.add("is-trouble");
  }
}

void openPage();
