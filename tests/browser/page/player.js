// Joins a trial of a guest as all of its actors, with the published SDK, and acts as /given says.

import { cogSettings } from "./project/CogSettings.js";
import { arkmlTrials } from "./project/guest_pb.js";

const given = await (await fetch("/given")).json();
const { Context, EventType } = window;

/** Act in the first ticks as it is given, and end the trial after those. */
async function play(session, controller, trial, actions, seen) {
  session.start();
  for await (const event of session.eventLoop()) {
    seen.types.push(EventType[event.type]);
    if (!event.observation) continue;
    const tick = session.getTickId();
    seen.values.push([tick, event.observation.values[0]]);
    if (event.type !== EventType.ACTIVE) continue;
    session.doAction(arkmlTrials.Action.create({ continuous: [actions[tick] ?? 0] }));
    if (tick === actions.length) controller.terminateTrial([trial]);
  }
}

async function result() {
  const seen = {};
  const context = new Context(cogSettings, "js");
  const controller = context.getController(given.endpoint);
  const trial = await controller.startTrial();
  for (const [name, actions] of Object.entries(given.actions)) {
    seen[name] = { types: [], values: [] };
    const impl = (session) => play(session, controller, trial, actions, seen[name]);
    context.registerActor(impl, name, "red");
  }
  const names = Object.keys(given.actions);
  await Promise.all(names.map((name) => context.joinTrial(trial, given.endpoint, name)));
  return { trial, seen };
}

const body = JSON.stringify(await result().catch((error) => ({ error: String(error.stack) })));
await fetch("/result", { method: "POST", body });
