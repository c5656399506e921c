// The present state of a trial as the page shows it: observations, players, returns, times.

const WINDOW = 2_000; // milliseconds over which ticks are counted
const KEPT = 8; // episodes whose returns are shown
const CUT_OFF = 2; // the end of an episode that was interrupted
const LATENCIES = 100; // the newest ones, of which the middle is shown

/** One actor: its newest observation, its player and its returns. */
class SceneActor {
  constructor(name, actorClass, index) {
    this.name = name;
    this.actorClass = actorClass;
    this.index = index;
    this.observation = null;
    this.observedTick = -1;
    this.player = null;
    this.action = null;
    this.episode = 0;
    this.return = 0; // of the present episode, so far
    this.isOver = false; // the present episode has ended
    this.ended = []; // {episode, return, score, isCut} of the last episodes, the newest last
  }

  /** Show an observation unless a newer one is shown. */
  observe(tick, observation) {
    if (tick <= this.observedTick) return;
    this.observation = observation;
    this.observedTick = tick;
  }

  /** What counts in the present episode so far. */
  get score() {
    return this.#scoreIn(this.observation?.values);
  }

  #scoreIn(values) {
    const score = this.actorClass.game?.score;
    return score?.observed ? (values?.[score.feature] ?? NaN) : this.return;
  }

  /** Add the reward that came with an observation to the return of its episode. */
  reward(value, observation) {
    const { episode, end, finalEnd, values, finalValues } = observation;
    if (episode !== this.episode && !finalEnd) this.#begin(episode);
    this.return += value;
    if (end || finalEnd) this.#end(finalEnd ? finalValues : values, finalEnd || end);
    if (finalEnd) this.#begin(episode);
  }

  #begin(episode) {
    this.episode = episode;
    this.return = 0;
    this.isOver = false;
  }

  #end(values, how) {
    if (this.isOver) return;
    this.isOver = true;
    const [score, isCut] = [this.#scoreIn(values), how === CUT_OFF];
    this.ended.push({ episode: this.episode, return: this.return, score, isCut });
    if (this.ended.length > KEPT) this.ended.shift();
  }
}

/** The present state of one trial; times are those of performance.now(). */
export class Scene {
  #byName;
  #ticks = []; // [time, tick] of views
  #latencies = [];

  constructor(trialId, actors) {
    this.trialId = trialId;
    this.actors = actors.map(
      ({ name, actorClass }, index) => new SceneActor(name, actorClass, index),
    );
    this.#byName = new Map(this.actors.map((actor) => [actor.name, actor]));
    this.tick = -1;
    this.missed = 0; // ticks that this page was too slow for
    this.arrived = null; // the time of the newest observation
  }

  /** Add an actor, and return it. */
  add({ name, actorClass }) {
    const actor = new SceneActor(name, actorClass, this.actors.length);
    this.actors.push(actor);
    this.#byName.set(name, actor);
    return actor;
  }

  /** Return an actor by its name, undefined if there is none. */
  actor(name) {
    return this.#byName.get(name);
  }

  /** Take in a tick of the trial, whose observations and actions are decoded and by actor. */
  view(now, { tickId: tick, observations, players, rewards, actions }) {
    const isNew = tick > this.tick;
    if (isNew && this.tick >= 0) this.missed += tick - this.tick - 1;
    this.#begin(now, tick);
    for (const actor of this.actors) {
      const observation = observations[actor.index];
      actor.player = players[actor.index] ?? actor.player;
      actor.action = actions[actor.index] ?? actor.action;
      if (!observation) continue;
      if (isNew) actor.reward(rewards[actor.index] ?? 0, observation);
      actor.observe(tick, observation);
    }
  }

  /** Take in what some actors observe in a tick: [actor, observation, reward] of each. */
  answered(now, tick, observed) {
    this.#begin(now, tick);
    for (const [actor, observation, reward] of observed) {
      actor.reward(reward, observation);
      actor.observe(tick, observation);
    }
  }

  #begin(now, tick) {
    this.tick = tick;
    this.arrived = now;
    this.#ticks.push([now, tick]);
    while (this.#ticks.length > 2 && now - this.#ticks[0][0] > WINDOW) this.#ticks.shift();
  }

  /** Take in an observation of my own actor, which arrives before the view of its tick. */
  observe(now, name, tick, observation) {
    this.actor(name)?.observe(tick, observation);
    this.arrived = now;
  }

  /** Take in the milliseconds from an action to the observation after it. */
  addLatency(milliseconds) {
    this.#latencies.push(milliseconds);
    if (this.#latencies.length > LATENCIES) this.#latencies.shift();
  }

  /** The middle of the newest latencies in milliseconds, null without one. */
  get latency() {
    const sorted = [...this.#latencies].sort((one, other) => one - other);
    return sorted.length > 0 ? sorted[Math.floor(sorted.length / 2)] : null;
  }

  /** Ticks a second in the last seconds, null before there are two. */
  get rate() {
    const [first, last] = [this.#ticks[0], this.#ticks.at(-1)];
    if (this.#ticks.length < 2 || last[0] <= first[0]) return null;
    return ((last[1] - first[1]) * 1_000) / (last[0] - first[0]);
  }
}
