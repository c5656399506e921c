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

/** `declared` are the behaviors that the module declares, "*" any other one. */
function leftAlone(declared, name) {
  const { branches } = declared.find((one) => one.name === name) ?? declared.find((one) => one.name === "*") ?? { branches: [] };
  return { policy: new Zeros(branches), branches };
}

/** Return the names of the behaviors that an inference session may be of, as hosts find them. */
export function fitting(declared, numFeatures, numActions) {
  const isAny = (number) => number === undefined || number === null;
  const count = ({ continuous, branches }) => branches.length + (continuous ?? Math.max(0, numActions - branches.length));
  const fit = declared.filter((one) => isAny(numActions) || count(one) === numActions);
  if (isAny(numFeatures)) return namesOf(fit);
  const seen = fit.filter(({ features }) => features === null || features === numFeatures);
  const full = seen.filter(({ continuous, branches }) => isAny(numActions) || [0, numActions].includes(branches.length + (continuous ?? 0)));
  return namesOf(full.length > 0 ? full : seen);
}

const namesOf = (behaviors) => behaviors.map(({ name }) => name).filter((name) => name !== "*");

/** A guest that is played from its beginning; `site` is the document of the page. */
export class Play {
  #guest;
  #first = null; // the name of the run that the first policy plays

  /**
   * Begin a play.
   *
   * `parts` are {module; load(one), which returns a policy of the site anew; game: see ArkGuest;
   * action: see Stage; write(level, text)}.
   */
  static async begin(site, parts) {
    const play = new Play(site, parts);
    const { module, game, write } = parts;
    const loaded = site.policies.map(async (one) => ({ ...one, policy: await parts.load(one) }));
    const policies = await Promise.all(loaded); // without what they know of agents of another play
    play.#guest = await ArkGuest.make(module, site.plan, {
      seed: BigInt(site.seed),
      policies: (...asked) => play.#policyFor(site.declared, policies, ...asked),
      answered: (session) => play.stage.take(session, performance.now(), play.frames),
      write,
      game,
      isSuspending: site.policies.some(({ runtime }) => runtime !== null),
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

  #policyFor(declared, policies, name, ...asked) {
    const chosen = name === null ? this.#ofSession(declared, policies, ...asked) : this.#ofRun(policies, name);
    if (chosen === null) return leftAlone(declared, name);
    const { policy, branches } = chosen;
    const [numFeatures = policy.numFeatures, numActions = policy.numActions] = asked;
    if (numFeatures !== policy.numFeatures || numActions !== policy.numActions) {
      throw invalid(`the policy takes ${policy.numFeatures} features and gives ${policy.numActions} actions, the session has ${numFeatures} and ${numActions}`);
    }
    return { policy, branches };
  }

  /** Return the policy of a run that the guest starts, or null. */
  #ofRun([first, ...others], name) {
    const other = others.find(({ behavior }) => behavior === name);
    if (other) return other;
    this.#first ??= first.behavior ?? name;
    return name === this.#first ? first : null;
  }

  /** Return the policy of an inference session, which has no name; throw a Refusal if several may be meant. */
  #ofSession(declared, [first, ...others], numFeatures, numActions) {
    const names = others.length > 0 ? fitting(declared, numFeatures, numActions) : [];
    const named = others.filter(({ behavior }) => names.includes(behavior));
    const files = new Set(named.map(({ digest }) => digest));
    if (files.size > 1 || (files.size === 1 && named.length < names.length)) {
      throw invalid(`a session of ${numFeatures} features and ${numActions} actions may be of ${names.join(" and ")}, which have different policies`);
    }
    return named[0] ?? first;
  }
}
