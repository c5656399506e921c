// Plays and watches with players.js as a test wants it: {players, endpoint, scenario, ...}.
// Prints one JSON object; writes a line to stderr where a test waits for one.

import { readFileSync } from "node:fs";

const given = JSON.parse(readFileSync(0, "utf8"));
const players = await import(given.players);
const { EventType, TrialError } = await import(given.cogment);
const { arkmlTrials: guest } = await import(given.guest);
const { endpoint, trialId, actorName = "ball_0", userId = "Jörg, 100%" } = given;

const warnings = [];
console.warn = (text) => warnings.push(text);

async function errorOf(action) {
  try {
    await action();
  } catch (error) {
    const isTrialError = error instanceof TrialError;
    return { message: error.message, code: error.code ?? null, isTrialError };
  }
  return null;
}

/** Act in every tick until `isEnough` of the events so far; return what was seen. */
async function played(isEnough, options = {}) {
  const seen = { observations: [], types: [], rewards: [] };
  const onSession = async (session) => {
    seen.session = session;
    session.start();
    for await (const event of session.eventLoop()) {
      seen.rewards.push(...event.rewards.map(({ value }) => value));
      if (event.rewards.length > 0) continue;
      seen.types.push(EventType[event.type]);
      if (event.observation) seen.observations.push([...event.observation.values]);
      if (event.observation && event.type === EventType.ACTIVE) {
        process.stderr.write("observed\n");
        if (isEnough(seen)) return;
        session.doAction({ continuous: [0.25] });
      }
    }
  };
  await players.takeOver(endpoint, trialId, actorName, { userId, onSession, ...options });
  return seen;
}

function shown({ session, ...seen }) {
  const { name, className, envName } = session;
  const isLost = session.isConnectionLost();
  return { ...seen, name, className, envName, isLost, isOver: session.isTrialOver() };
}

const scenarios = {
  async returns() {
    return { ...shown(await played(({ observations }) => observations.length === 3)), warnings };
  },

  async handsBack() {
    const seen = await played(({ observations, session }) => {
      if (observations.length === 3) session.handBack();
      return false;
    });
    seen.session.doAction({ continuous: [1] });
    return { ...shown(seen), warnings };
  },

  async toTheEnd() {
    return { ...shown(await played(() => false)), warnings };
  },

  async hasTypes() {
    const types = { observationSpace: guest.Observation, actionSpace: guest.Action };
    const settings = { actorClasses: { ball: types } };
    const other = { actorClasses: { cube: types } };
    const seen = await played(({ observations }) => observations.length === 1, { settings });
    const refused = await errorOf(() => played(() => true, { settings: other }));
    return { observations: seen.observations, refused };
  },

  async fails() {
    return errorOf(() => played(() => { throw new Error("a bug"); }));
  },

  async refused() {
    const onSession = async () => {};
    const over = (actor, options) => () => players.takeOver(endpoint, trialId, actor, options);
    return {
      taken: await errorOf(over("ball_1", { userId, onSession })),
      unknown: await errorOf(over("ball_9", { userId, onSession })),
      nameless: await errorOf(over("ball_0", { userId: "", onSession })),
      noText: await errorOf(over("ball_0", { userId: 5, onSession })),
      long: await errorOf(over("ball_0", { userId: "x".repeat(65), onSession })),
      noFunction: await errorOf(over("ball_0", { userId })),
      noServer: await errorOf(() =>
        players.takeOver("http://127.0.0.1:1", trialId, "a", { userId, onSession }),
      ),
      noTrial: await errorOf(async () => {
        for await (const _ of players.look(endpoint, "none")) _;
      }),
      code: players.ACTOR_TAKEN,
    };
  },

  async describes() {
    return players.describe(endpoint);
  },

  async looks() {
    const views = [];
    for await (const view of players.look(endpoint, trialId)) {
      views.push(view);
      process.stderr.write("seen\n");
    }
    const kinds = views.at(-1).players.map(({ kind }) => players.PlayerKind[kind]);
    return { views, kinds };
  },

  async stopsLooking() {
    const stop = new AbortController();
    let count = 0;
    for await (const view of players.look(endpoint, trialId, { signal: stop.signal })) {
      count += view.tickId === 0 ? 1 : 0;
      setTimeout(() => stop.abort(), 0); // the loop waits for a tick that does not come
    }
    const before = [];
    for await (const view of players.look(endpoint, trialId, { signal: stop.signal })) {
      before.push(view);
    }
    return { count, before };
  },
};

const result = await scenarios[given.scenario]();
process.stdout.write(JSON.stringify(result));
process.exit(0);
