// The page: it begins with its link and the dialog, and then shows one trial after another.

import { Controls } from "./shared/controls.js";
import { byId, setShown, setText, short } from "./shared/dom.js";
import { Finish } from "./shared/finish.js";
import { titleOf } from "./game_text.js";
import { endpointOf, takeLink } from "./link.js";
import { Inputs } from "./shared/inputs.js";
import { Plane } from "./shared/plane.js";
import { isPolicy, isTaken, playerText } from "./player_text.js";
import { Roster } from "./shared/roster.js";
import { ScoreBoard } from "./shared/scores.js";
import { Service } from "./service.js";
import { Sound } from "./shared/sound.js";
import { Steering } from "./shared/steering.js";
import { Visit } from "./visit.js";
import { ValuePanel } from "./shared/values.js";
import { welcomed } from "./welcome.js";

/** The page of one visit: what it draws, and what the buttons do. */
class Page {
  #visit;
  #controls;
  #inputs;
  #plane = new Plane(byId("plane"));
  #steering;
  #scores;
  #sound = new Sound(byId("sound"));
  #finish = new Finish(byId("plane-box"), byId("score-box"));
  #roster;
  #values = new ValuePanel(byId("values"), byId("absent"));
  #looked = "";
  #scene = null;
  #controlled = null; // the class whose controls are shown

  constructor(service, description, { user, slot, trialId }) {
    const title = titleOf(description);
    setText(byId("guest"), title);
    document.title = `${title} – play`;
    this.#inputs = new Inputs(() => this.#visit.act());
    this.#steering = new Steering(byId("plane"), this.#inputs, () => this.#steered());
    this.#scores = new ScoreBoard(byId("score-box"), description.guest);
    this.#controls = new Controls(byId("controls"), this.#inputs);
    this.#roster = new Roster(byId("actors"), {
      look: (name) => this.#look(name),
      take: (name) => {
        byId("plane-box").scrollIntoView({ block: "nearest" }); // below which a phone has the table
        this.#visit.take(name);
      },
      who: (actor) => playerText(actor.player),
      isTaken: (actor) => isTaken(actor.player),
    });
    this.#visit = new Visit(service, description, user, {
      opened: (scene) => this.#open(scene),
      seated: () => this.#seat(),
      noticed: (notice) => this.#notice(notice),
      action: (allowed) => this.#controls.action(allowed),
      settled: (time) => this.#inputs.settle(time),
    });
    this.#listen();
    this.#visit.begin(trialId, slot);
    requestAnimationFrame(() => this.#draw());
  }

  #listen() {
    byId("leave").addEventListener("click", () => this.#visit.leave());
    byId("praise").addEventListener("click", () => this.#visit.reward(1, this.#looked));
    byId("blame").addEventListener("click", () => this.#visit.reward(-1, this.#looked));
    byId("plane").addEventListener("click", ({ offsetX, offsetY, pointerType }) => {
      const isSteering = this.#visit.mine !== "" && pointerType === "touch";
      const name = isSteering ? "" : this.#plane.at(offsetX, offsetY);
      if (name) this.#look(name);
    });
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) return;
      this.#inputs.releaseAll();
      this.#visit.leave("you left this tab");
    });
    window.addEventListener("pagehide", () => this.#visit.close());
  }

  #open(scene) {
    this.#scene = scene;
    this.#plane.clear();
    this.#scores.clear();
    this.#finish.clear();
    this.#roster.use(scene);
    setShown(byId("plane-box"), Plane.fits(scene));
    if (!scene.actor(this.#looked)) this.#look(scene.actors[0]?.name ?? "");
  }

  /** Show my part: that of an actor, or of someone who watches. */
  #seat() {
    const { mine } = this.#visit;
    setText(byId("part"), mine ? `you play ${mine}` : "you watch");
    setShown(byId("control-box"), mine !== "");
    setShown(byId("reward-box"), mine !== "");
    byId("plane").classList.toggle("steers", mine !== "");
    this.#inputs.isEnabled = mine !== "";
    if (mine === "") this.#finish.clear();
    const actorClass = this.#scene?.actor(mine)?.actorClass;
    if (!actorClass) return;
    if (actorClass !== this.#controlled) this.#controls.use(actorClass.mapping);
    this.#controlled = actorClass;
    this.#look(mine);
  }

  /** Return what a finger on the plane steers, null while I play no actor. */
  #steered() {
    const actor = this.#scene?.actor(this.#visit.mine);
    if (!actor) return null;
    return { mapping: actor.actorClass.mapping, place: this.#plane.placeOf(actor.name) };
  }

  /** Show what counts, and a break when my episode has ended. */
  #count(scene, now) {
    const { mine } = this.#visit;
    const shown = scene.actor(mine) ?? scene.actor(this.#looked) ?? scene.actors[0];
    setText(byId("goal"), shown?.actorClass.game?.goal ?? "");
    const news = this.#scores.show(scene, shown, ({ name, player }) =>
      name === mine ? "me" : isPolicy(player) ? "policy" : (player?.name ?? ""),
    );
    if (news.end) {
      this.#finish.begin(now, shown.actorClass.game, news);
      this.#sound.end(news.isBest);
    } else if (news.isGain) this.#sound.tick();
    this.#finish.show(now);
  }

  /** Explain the words beside players once they have come up. */
  #explain(scene) {
    const isAny = (is) => scene.actors.some(({ player }) => player?.[is]);
    if (isAny("isHeld")) setShown(byId("held"), true);
    if (isAny("isAway")) setShown(byId("away"), true);
  }

  #look(name) {
    this.#looked = name;
    setText(byId("looked-title"), `${name} observes`);
    setShown(byId("looked-box"), name !== "");
  }

  #notice({ text, isTrouble = false, action = "", act = () => {} }) {
    setText(byId("notice-text"), text);
    byId("notice").classList.toggle("is-trouble", isTrouble);
    const button = byId("notice-action");
    setShown(button, action !== "");
    setText(button, action);
    button.onclick = act;
  }

  #draw() {
    requestAnimationFrame(() => this.#draw());
    this.#inputs.poll();
    this.#steering.update();
    const scene = this.#scene;
    if (scene === null) return;
    const { mine } = this.#visit;
    const now = performance.now();
    setText(byId("tick"), scene.tick < 0 ? "–" : String(scene.tick));
    setText(byId("rate"), scene.rate === null ? "–" : scene.rate.toFixed(1));
    setText(byId("latency"), scene.latency === null ? "–" : `${scene.latency.toFixed(0)} ms`);
    const age = scene.arrived === null ? null : now - scene.arrived;
    setText(byId("age"), age === null ? "–" : age < 1_000 ? `${age.toFixed(0)} ms` : `${(age / 1_000).toFixed(1)} s`);
    if (Plane.fits(scene)) this.#plane.draw(scene, mine, this.#looked);
    this.#count(scene, now);
    this.#explain(scene);
    this.#roster.show({ mine, looked: this.#looked });
    if (mine) this.#controls.show(scene.actor(mine)?.observation?.allowed ?? []);
    const looked = scene.actor(this.#looked);
    if (!looked) return;
    this.#values.show(looked);
    const ended = looked.ended.map(({ episode, return: value }) => `${episode}: ${short(value)}`);
    const about = scene.missed > 0 ? ", without the ticks that this page missed" : "";
    setText(byId("returns"), ended.length > 0 ? `Returns by episode${about}: ${ended.join(" · ")}` : "");
  }
}

const link = takeLink();
window.addEventListener("hashchange", () => window.location.reload());
const service = new Service(endpointOf(window.location.origin, link.token));
const { description, chosen } = await welcomed(service, link);
new Page(service, description, chosen);
