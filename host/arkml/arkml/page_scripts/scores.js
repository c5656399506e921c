// What counts in a game: my score, my best of today, and beside them how the policy does.

import { element, setShown, setText, short } from "./dom.js";

const STANDS_OUT = 1.5; // a gain, beside the mean of those before it
const MEMORY = 0.95; // of that mean, from one change to the next
const FLASH = 700; // milliseconds

/** Return a score in few characters: a count has no decimals. */
function figure(value) {
  return Number.isInteger(value) && Math.abs(value) < 100_000 ? String(value) : short(value);
}

/** Return a score with its name and its unit: "catches: 12", "time: 8.31 s". */
export function scoreText({ name, unit }, value) {
  return `${name}: ${figure(value)}${unit ? ` ${unit}` : ""}`;
}

/** Return true if a score is better than another one, which may be null. */
export function isBetter(score, value, other) {
  if (!Number.isFinite(value)) return false;
  return other === null || (score.less ? value < other : value > other);
}

/** My best score of today in one game, which the browser keeps where it may. */
export class BestToday {
  #key;
  #known = null; // {day, value}

  constructor(key) {
    this.#key = `arkml.best:${key}`;
    try {
      this.#known = JSON.parse(localStorage.getItem(this.#key));
    } catch { // a browser that keeps nothing, or what another page has left there
    }
  }

  /** The best score, null before there is one today. */
  get value() {
    const { day, value } = this.#known ?? {};
    return day === new Date().toDateString() && Number.isFinite(value) ? value : null;
  }

  /** Take in the score of an episode; return true if it is better than others of today. */
  take(score, value) {
    const before = this.value;
    if (!isBetter(score, value, before)) return false;
    this.#known = { day: new Date().toDateString(), value };
    try {
      localStorage.setItem(this.#key, JSON.stringify(this.#known));
    } catch { // it is known until the page is closed
    }
    return before !== null;
  }
}

/** The scores of the episodes that the policy has played from their beginning to their end. */
export class Tally {
  constructor() {
    this.count = 0;
    this.sum = 0;
    this.best = null;
  }

  take(score, value) {
    if (!Number.isFinite(value)) return;
    this.count += 1;
    this.sum += value;
    if (isBetter(score, value, this.best)) this.best = value;
  }

  get text() {
    if (this.count === 0) return "–";
    return `mean ${figure(this.sum / this.count)}, best ${figure(this.best)} of ${this.count}`;
  }
}

/** Follows the episodes of one actor: who has played the present one, and what it has gained. */
class Follower {
  #ended = null; // the newest episode that has ended
  #player = "";
  #return = 0;
  #usual = 0; // the mean gain of late

  /** `isNew` is true if the present episode began just now; else it is not known who began it. */
  constructor(actor, isNew) {
    this.actor = actor;
    this.#ended = actor.ended.at(-1);
    this.#player = isNew ? "" : "several";
  }

  /**
   * Take in the present state; `player` is who plays now, "me", "policy" or another one.
   *
   * Returns {end, player, isGain}: the episode that has ended since, or null, with who has played
   * all of it, "several" if that changed; and whether a gain stands out.
   */
  follow(player) {
    const { actor } = this;
    if (!actor.isOver) this.#takeIn(player); // nobody plays an agent whose episode has ended
    const last = actor.ended.at(-1);
    const end = last === this.#ended ? null : last;
    const gained = (end ? end.return : actor.return) - this.#return;
    const isGain = gained > 0 && gained > STANDS_OUT * this.#usual;
    if (gained !== 0) this.#usual = MEMORY * this.#usual + (1 - MEMORY) * Math.abs(gained);
    this.#return = actor.isOver ? 0 : actor.return;
    const played = this.#player;
    if (end) {
      this.#ended = last;
      this.#player = actor.isOver ? "" : player;
    }
    return { end, player: played, isGain };
  }

  #takeIn(player) {
    this.#player ||= player;
    if (this.#player !== player) this.#player = "several";
  }
}

/** Shows scores in an element. `evaluated` is a text on the evaluation of the policy, or empty. */
export class ScoreBoard {
  #root;
  #best;
  #key;
  #evaluated;
  #fields = {};
  #news = element("p", { className: "unseen", role: "status", "aria-live": "polite" });
  #title = element("h2", {});
  #followers = new Map(); // by actor
  #tally = new Tally();
  #game = null;
  #last = null; // my last score

  constructor(root, key, evaluated = "") {
    this.#root = root;
    this.#key = key;
    this.#evaluated = evaluated;
    const list = element("dl", { className: "scores" });
    for (const [field, text] of [["now", "this episode"], ["last", "your last"], ["best", "your best today"], ["policy", "the policy here"], ["evaluated", "the policy, evaluated"]]) {
      const [name, value] = [element("dt", {}, text), element("dd", {}, "–")];
      list.append(element("div", {}, name, value));
      this.#fields[field] = value;
    }
    setText(this.#fields.evaluated, evaluated);
    setShown(this.#fields.evaluated.parentNode, evaluated !== "");
    root.querySelector(".title").prepend(this.#title);
    root.append(list, this.#news);
  }

  /**
   * Take in the state of a scene, and show it.
   *
   * `playerOf(actor)` is "me", "policy" or another one; `shown` is the actor whose score is shown.
   * Returns {end, isWhole, isBest, isGain}: my episode that has ended since, or null; whether I have
   * played all of it, and it counts; whether it is better than others of today; and whether a gain
   * of mine stands out, which is shown.
   */
  show(scene, shown, playerOf) {
    this.#use(shown?.actorClass ?? null);
    const news = { end: null, isWhole: false, isBest: false, isGain: false };
    if (this.#game === null) return news;
    const { score } = this.#game;
    for (const actor of scene.actors) {
      if (actor.actorClass !== shown.actorClass) continue;
      if (!this.#followers.has(actor)) {
        const isNew = actor.observation === null || scene.tick <= 1;
        this.#followers.set(actor, new Follower(actor, isNew));
      }
      const { end, player, isGain } = this.#followers.get(actor).follow(playerOf(actor));
      if (end && player === "policy") this.#tally.take(score, end.score);
      if (playerOf(actor) !== "me") continue;
      news.isGain = isGain;
      const isWhole = player === "me";
      if (end) Object.assign(news, { end, isWhole, isBest: this.#mine(score, end, isWhole) });
    }
    this.#paint(score, shown);
    if (news.isGain) this.#flash();
    return news;
  }

  /** Forget the actors of another scene. */
  clear() {
    this.#followers.clear();
  }

  #use(actorClass) {
    const game = actorClass?.game ?? null;
    setShown(this.#root, game !== null);
    if (game === this.#game) return;
    this.#game = game;
    this.#tally = new Tally();
    this.#last = null;
    this.clear();
    if (game === null) return;
    this.#best = new BestToday(`${this.#key}:${actorClass.name}`);
    setText(this.#title, `Score: ${game.score.name}${game.score.unit ? `, ${game.score.unit}` : ""}`);
    this.#title.title = game.score.less ? "less is better" : "more is better";
  }

  /** Take in my episode, and return true if it is the best; one that I played in part counts not. */
  #mine(score, end, isWhole) {
    if (isWhole) this.#last = end.score;
    const isBest = isWhole && this.#best.take(score, end.score);
    setText(this.#news, `${endText(this.#game, end, isWhole)}${isBest ? ", your best today" : ""}.`);
    return isBest;
  }

  /** Draw the eye to my score; it is only a color, which is no motion. */
  #flash() {
    const light = { backgroundColor: "color-mix(in srgb, var(--accent) 45%, transparent)" };
    this.#fields.now.animate([light, {}], FLASH);
  }

  #paint(score, shown) {
    const text = (value) => (value === null || !Number.isFinite(value) ? "–" : figure(value));
    setText(this.#fields.now, text(shown.observation === null ? null : shown.score));
    setText(this.#fields.last, text(this.#last));
    setText(this.#fields.best, text(this.#best.value));
    setText(this.#fields.policy, this.#tally.text);
  }
}

/** Return how an episode has ended, as "Time is up, catches: 12", and why a part does not count. */
export function endText({ score, goal }, { score: value, isCut }, isWhole) {
  const how = isCut ? "Time is up" : "The episode is over";
  const text = Number.isFinite(value) ? `${how}, ${scoreText(score, value)}` : how;
  if (!isWhole) return `${text}, which does not count, since you took over on the way`;
  return value === 0 && !score.less && goal ? `${text}: the goal says what counts` : text;
}
