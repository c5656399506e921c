// Answers questions about scripts of replays that need no browser: stdin {folder, questions}.

import { readFileSync } from "node:fs";

const given = JSON.parse(readFileSync(0, "utf-8"));
const { ReplayScenes, dumpOf, indexOf, rewardsOf } = await import(
  new URL("replay_scene.js", given.folder)
);

/** Return a number as JSON has it, and a text for any other. */
function plain(value) {
  return typeof value === "number" && !Number.isFinite(value) ? String(value) : value;
}

const answers = {
  scenes: (document, indices) => {
    const scenes = new ReplayScenes(document);
    return indices.map((index) => {
      const { actors, isFresh } = scenes.at(index);
      const shown = actors.map(({ name, index: color, observation, acted, reward, value }) => ({
        name, color, values: observation.values.map(plain), actions: acted.values, reward, value,
      }));
      return { isFresh, actors: shown };
    });
  },
  classes: (document) => {
    const [{ actorClass }] = new ReplayScenes(document).at(0).actors;
    const bounds = ({ name, shape, low, high }) => [name, shape, low.map(plain), high.map(plain)];
    return [actorClass.observations.map(bounds), actorClass.actions.observations.map(bounds)];
  },
  texts: (document) => {
    const [{ actorClass }] = new ReplayScenes(document).at(0).actors;
    return actorClass.actions.observations.map(({ texts }) => texts ?? null);
  },
  plane: (document) => new ReplayScenes(document).hasPlane,
  rewards: (document, name) => rewardsOf(new ReplayScenes(document), document.frames.length, name),
  index: (numbers, wanted) => indexOf(numbers.map((frame) => ({ frame })), wanted),
  dump: (memory) => dumpOf(memory),
};

const results = given.questions.map(([name, ...values]) => answers[name](...values));
process.stdout.write(JSON.stringify(results));
