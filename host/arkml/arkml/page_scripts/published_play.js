// One play of a published guest: an instance with its policy, frame by frame.

import { ArkGuest } from "./ark_guest.js";
import { rest } from "./ark_masks.js";
import { invalid } from "./ark_memory.js";
import { Stage } from "./published_stage.js";

/** The policy of agents that are left alone. */
class Zeros {
  constructor(branches) {
    this.branches = branches;
  }

  act({ ids, masks, actions, values }) {
    const width = actions.length / ids.length;
    ids.forEach((_, row) => rest(actions.subarray(row * width, (row + 1) * width), this.branches, masks, row));
    values.fill(0);
  }

  forget() {}
}

/** `others` has the branches of each behavior that the module declares, "*" of any other one. */
function leftAlone(others, name) {
  const branches = others.get(name) ?? others.get("*") ?? [];
  return { policy: new Zeros(branches), branches };
}

/** A guest that is played from its beginning; `site` is the document of the page. */
export class Play {
  #guest;
  #first = null; // the name of the run that the policy plays

  /**
   * Begin a play.
   *
   * `parts` are {module; load(), which returns the policy anew; game: see ArkGuest; action: see
   * Stage; write(level, text)}.
   */
  static async begin(site, parts) {
    const play = new Play(site, parts);
    const { module, game, write } = parts;
    const policy = await parts.load(); // without what it knows of agents of another play
    play.#guest = await ArkGuest.make(module, site.plan, {
      seed: BigInt(site.seed),
      policies: (...asked) => play.#policyFor(site, policy, ...asked),
      answered: (session) => play.stage.take(session, performance.now(), play.frames),
      write,
      game,
      isSuspending: site.runtime !== null,
    });
    await play.#guest.initialize();
    for (const [name, numbers] of site.calls) await play.#guest.call(name, ...numbers.map(Number));
    return play;
  }

  constructor(site, { action }) {
    this.frames = 0;
    this.stage = new Stage(site.behaviors, action);
  }

  /** Run a frame; no other one is in progress. Throws GuestFailure. */
  async frame() {
    this.frames += 1;
    await this.#guest.frame();
  }

  /** The bytes of the guest's memory. */
  get memory() {
    return this.#guest.memory;
  }

  #policyFor({ behavior, branches, others }, policy, name, numFeatures = policy.numFeatures, numActions = policy.numActions) {
    if (name !== null) {
      this.#first ??= behavior ?? name;
      if (name !== this.#first) return leftAlone(new Map(others), name);
    }
    if (numFeatures !== policy.numFeatures || numActions !== policy.numActions) {
      throw invalid(`the policy takes ${policy.numFeatures} features and gives ${policy.numActions} actions, the session has ${numFeatures} and ${numActions}`);
    }
    return { policy, branches };
  }
}
