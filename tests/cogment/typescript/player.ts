// A program of a user, which has to be sound as it is, and wrong where it says so.

import * as cogment from "./cogment/cogment.js";
import * as players from "./cogment/players.js";
import { cogSettings } from "./CogSettings.js";
import { grid } from "./grid_pb.js";

const context = new cogment.Context("ann", cogSettings);

context.registerActor(
  async (session) => {
    session.start();
    const shared: number | undefined = session.config?.x;
    for await (const event of session.eventLoop()) {
      const seen = event.observation;
      if (seen === undefined || event.type !== cogment.EventType.ACTIVE) continue;
      const depth: number | bigint | undefined = seen.inner?.depth;
      const word: string | null = seen.word;
      const choice: "word" | "number" | "thing" | "yes" | "blob" | "shade" | undefined = seen.choiceOf;
      const color: grid.world.Color = seen.color;
      const items: { [key: string]: number } = seen.byName;
      session.doAction({ right: 1 });
      session.doAction(grid.world.Move.create({ down: color }));
      session.sendMessage(grid.world.Level.create({ seed: 3 }), ["bob", "watcher.*"]);
      session.addReward(1, 0.5, "*");
      console.log(shared, depth, word, choice, items, event.rewards[0]?.value);
      // @ts-expect-error: a Move has no such field
      session.doAction({ left: 1 });
      // @ts-expect-error: an observation has no such field
      console.log(seen.nothing);
    }
  },
  "ada",
  "player",
);

// @ts-expect-error: the project has no such class
context.registerActor(async () => {}, "bob", "judge");
// @ts-expect-error: the user's id comes first
const reversed = new cogment.Context(cogSettings, "ann");

const controller = context.getController("http://127.0.0.1:9001");
const trial: string = await controller.startTrial({ seed: 4 }, "my-trial");
// @ts-expect-error: a Level has no such field
await controller.startTrial({ sead: 4 });
for await (const info of controller.watchTrials([cogment.TrialState.ENDED])) {
  const state: cogment.TrialState = info.state;
  console.log(info.trialId, cogment.TrialState[state], reversed);
}
await controller.terminateTrial([trial], true);
const [actor] = await controller.getActors(trial);
console.log(actor?.actorClass, (await controller.getRemoteVersions())["grpc"]);
await context.joinTrial(trial, "http://127.0.0.1:9001", "ada");

const bytes: Uint8Array = grid.world.Everything.encode({ int64s: [1n, 2], bools: [true] }).finish();
const inner = new grid.world.Everything.Inner({ kind: grid.world.Everything.Inner.Kind.FLAT });
console.log(grid.world.Everything.decode(bytes).extra?.type_url, inner.loop?.constructor_);

const { trials, learning } = await players.describe("http://127.0.0.1:9001");
await players.takeOver("http://127.0.0.1:9001", trials[0]!.trialId, "ball_0", {
  userId: "Ann",
  onSession: async (session) => {
    session.start();
    for await (const event of session.eventLoop()) {
      if (event.observation?.end === players.EpisodeEnd.TERMINATED) session.handBack();
      session.doAction({ continuous: new Float32Array([1]), choices: [2] });
    }
    console.log(session.isConnectionLost(), learning);
  },
});
for await (const tick of players.look("http://127.0.0.1:9001", trial)) {
  console.log(tick.observations[0]?.values[0], tick.players[0]?.kind === players.PlayerKind.PERSON);
}
