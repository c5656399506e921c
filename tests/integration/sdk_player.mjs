// Plays trials with cogment.js as a test wants it: {cogment, settings, endpoint, scenario, ...}.
// Prints one JSON object.

import { readFileSync } from "node:fs";

const given = JSON.parse(readFileSync(0, "utf8"));
const cogment = await import(given.cogment);
const { cogSettings } = await import(given.settings);
const { grid } = await import(given.messages);
const { Context, EventType, TrialError, TrialState } = cogment;
const { endpoint, trialId } = given;

const warnings = [];
console.warn = (text) => warnings.push(text);

function context(impl, name = "ada", actorClass = "player") {
  const made = new Context("grace", cogSettings);
  if (impl) made.registerActor(impl, name, actorClass);
  return made;
}

/** Return the error of a promise, or of a function that throws. */
async function errorOf(action) {
  try {
    await action();
  } catch (error) {
    return { name: error.name, message: error.message };
  }
  return null;
}

function shown(event) {
  return {
    type: EventType[event.type],
    observation: event.observation ? event.observation.anInt32 : undefined,
    rewards: event.rewards.map(({ value, tickId, receiverName, sources }) => ({
      value,
      tickId,
      receiverName,
      sources: sources.map((source) => [source.senderName, source.value, source.confidence]),
      data: sources.map((source) => source.userData?.type_url ?? null),
    })),
    messages: event.messages.map((message) => message.right ?? message.type_url),
  };
}

/** Act in every tick by moving one to the right. */
async function play(session, events, { autoDone = true, onEvent = () => {} } = {}) {
  session.start(autoDone);
  for await (const event of session.eventLoop()) {
    events.push(shown(event));
    onEvent(event);
    if (event.observation && event.type === EventType.ACTIVE) {
      session.doAction(grid.world.Move.create({ right: 1 }));
    }
  }
}

/** Collect the states of a trial until it has ended. */
async function statesOf(controller, id) {
  const states = [];
  for await (const info of controller.watchTrials()) {
    if (info.trialId !== id) continue;
    states.push([TrialState[info.state], info.tickId ?? null]);
    if (info.state === TrialState.ENDED) break;
  }
  return states;
}

const scenarios = {
  async whole() {
    const events = [];
    const seen = {};
    const here = context(async (session) => {
      Object.assign(seen, {
        id: session.getTrialId(),
        name: session.name,
        className: session.className,
        envName: session.envName,
        config: [session.config.x, session.config.y],
        tick: session.getTickId(),
        over: session.isTrialOver(),
      });
      let isFirst = true;
      await play(session, events, {
        onEvent() {
          if (!isFirst) return;
          isFirst = false;
          session.sendMessage(grid.world.Move.create({ right: 41 }), [session.envName]);
          session.addReward(4, 0.5, ["*"], -1, grid.world.Level.create({ seed: 1 }));
        },
      });
      Object.assign(seen, { lastTick: session.getTickId(), overAtEnd: session.isTrialOver() });
    });
    const controller = here.getController(endpoint);
    const id = await controller.startTrial(grid.world.Level.create({ seed: 7 }), trialId);
    const again = await controller.startTrial(undefined, trialId);
    const states = statesOf(controller, id);
    await here.joinTrial(id, endpoint, "ada");
    const [info] = await controller.getTrialInfo([id]);
    return {
      id,
      again,
      seen,
      events,
      states: await states,
      info: { ...info, duration: info.duration > 0 },
      isTrialInfo: info instanceof cogment.TrialInfo,
      all: (await controller.getTrialInfo()).map((each) => each.trialId),
      actors: await controller.getActors(id),
      versions: await controller.getRemoteVersions(),
      none: await errorOf(() => controller.getActors("no such trial")),
    };
  },

  async manual() {
    const events = [];
    const errors = {};
    const here = context(async (session) => {
      session.start(false);
      errors.twice = await errorOf(() => session.start());
      errors.early = await errorOf(() => session.sendingDone());
      for await (const event of session.eventLoop()) {
        events.push(shown(event));
        if (event.observation && event.type === EventType.ACTIVE) {
          session.doAction();
        } else if (event.observation) {
          session.sendMessage(grid.world.Move.create({ right: 5 }), "world");
          session.sendingDone();
          session.sendMessage(grid.world.Move.create({ right: 6 }), "world");
        }
      }
    });
    await here.joinTrial(trialId, endpoint, "ada");
    return { events, errors, warnings };
  },

  async automatic() {
    let error;
    const events = [];
    const here = context(async (session) => {
      await play(session, events, {
        async onEvent() {
          error ??= errorOf(() => session.sendingDone());
        },
      });
    });
    await here.joinTrial(trialId, endpoint, "ada");
    return { error: await error };
  },

  async hard() {
    const events = [];
    const here = context((session) =>
      play(session, events, {
        onEvent() {
          if (events.length === 2) here.getController(endpoint).terminateTrial([trialId], true);
        },
      }),
    );
    await here.joinTrial(trialId, endpoint, "ada");
    return { types: events.map((event) => event.type), warnings };
  },

  async soft() {
    const events = [];
    const here = context((session) =>
      play(session, events, {
        onEvent() {
          if (events.length === 2) here.getController(endpoint).terminateTrial([trialId]);
        },
      }),
    );
    await here.joinTrial(trialId, endpoint, "ada");
    return { types: events.filter((event) => event.type !== "ACTIVE").map((event) => event.type) };
  },

  async dropped() {
    const events = [];
    let over;
    const here = context(async (session) => {
      await play(session, events, { onEvent: () => process.stderr.write("event\n") });
      over = session.isTrialOver();
    });
    await here.joinTrial(trialId, endpoint, "ada");
    return { events: events.length > 0, over, warnings };
  },

  async quits() {
    const types = [];
    const here = context(async (session) => {
      session.start();
      const loop = session.eventLoop();
      types.push(EventType[(await loop.next()).value.type]);
      types.push((await loop.next(false)).done);
    });
    await here.joinTrial(trialId, endpoint, "ada");
    return { types, warnings };
  },

  async refused() {
    const here = context(async () => {});
    const controller = here.getController(endpoint);
    return {
      unknownTrial: await errorOf(() => here.joinTrial("no-such-trial", endpoint, "ada")),
      unknownActor: await errorOf(() => here.joinTrial(trialId, endpoint, "bob")),
      wrongClass: await errorOf(() =>
        context(async () => {}, "ada", "watcher").joinTrial(trialId, endpoint, "ada"),
      ),
      noActors: await errorOf(() => context(null).joinTrial(trialId, endpoint, "ada")),
      noServer: await errorOf(() => here.joinTrial(trialId, "http://127.0.0.1:1", "ada")),
      noEndpoint: await errorOf(() => here.joinTrial(trialId, "grpc://localhost:9000", "ada")),
      noCall: await errorOf(() => here.getController("http://127.0.0.1:1").getTrialInfo([])),
      noIds: await errorOf(() => controller.terminateTrial([])),
      comma: await errorOf(() => controller.getTrialInfo(["a,b"])),
      order: await errorOf(() => new Context(cogSettings, "grace")),
      twice: await errorOf(() => here.registerActor(async () => {}, "ada", "player")),
      isTrialError: (await here.joinTrial("x", endpoint, "ada").catch((error) => error))
        instanceof TrialError,
    };
  },
};

const result = await scenarios[given.scenario]();
process.stdout.write(JSON.stringify(result));
process.exit(0); // a call that never ends would keep node alive, but no test waits for it
