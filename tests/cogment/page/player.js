// Plays trials as /given says, with the SDK of the page, and sends what it saw to /result.

import { cogSettings } from "./project/CogSettings.js";
import { tally } from "./project/tally_pb.js";

const given = await (await fetch("/given")).json();
const isOriginal = location.pathname === "/original.html";
const cogment = isOriginal ? window : await import("./project/cogment/cogment.js");
const { Context, EventType, TrialState } = cogment;

/** Act in every tick; send and, if the test says so, end the trial in the third one. */
async function play(session, controller, trial, end, seen) {
  session.start();
  for await (const event of session.eventLoop()) {
    seen.types.push(EventType[event.type]);
    for (const { value, tickId, sources } of event.rewards) {
      seen.rewards.push([Number(tickId), value, sources.map((source) => source.senderName)]);
    }
    for (const message of event.messages) seen.messages.push(message.text);
    if (!event.observation) continue;
    const tick = event.observation.tick ?? 0;
    seen.observations.push([session.getTickId(), tick, event.observation.total ?? 0]);
    if (event.type !== EventType.ACTIVE) continue;
    if (tick === 0) session.sendMessage(tally.Note.create({ text: "from a page" }), ["world"]);
    session.doAction(tally.Action.create({ value: 3 }));
    if (tick === 2 && end !== "environment") controller.terminateTrial([trial], end === "hard");
  }
  seen.isOver = session.isTrialOver();
}

/** Watch a trial, start it, join it and play it to its end. */
async function played(endpoint, id, end) {
  const seen = { types: [], rewards: [], messages: [], observations: [] };
  const context = isOriginal ? new Context(cogSettings, "js") : new Context("js", cogSettings);
  const controller = context.getController(endpoint);
  const impl = (session) => play(session, controller, id, end, seen);
  context.registerActor(impl, "ada", "player");
  const states = [];
  const probe = await controller.startTrial(tally.Config.create({ ticks: 1 }));
  let isOn;
  const on = new Promise((resolve) => {
    isOn = resolve;
  });
  const watched = (async () => {
    for await (const info of controller.watchTrials()) {
      if (info.trialId === probe) isOn();
      if (info.trialId === id) states.push(TrialState[info.state]);
      if (states.includes("ENDED")) return;
    }
  })();
  await on;
  await controller.terminateTrial([probe], true);
  const ticks = end === "environment" ? 4 : 10000;
  const trial = await controller.startTrial(tally.Config.create({ ticks }), id);
  const again = await controller.startTrial(tally.Config.create({ ticks }), id);
  await context.joinTrial(trial, endpoint, "ada");
  await watched;
  const [info] = await controller.getTrialInfo([trial]);
  return { trial, again, states, state: TrialState[info.state], tick: info.tickId, ...seen };
}

async function result() {
  const results = {};
  for (const end of ["environment", "soft", "hard"]) {
    results[end] = await played(given.endpoint, `trial-${end}`, end);
  }
  return results;
}

const body = JSON.stringify(await result().catch((error) => ({ error: String(error.stack) })));
await fetch("/result", { method: "POST", body });
