// The server of the page, as a visit uses it: the calls of people at one endpoint.

import { TrialError, TrialState } from "./js/cogment.js";
import * as players from "./js/players.js";

const LIVE = [TrialState.PENDING, TrialState.RUNNING];
const UNAVAILABLE = 14; // gRPC's status of a call that did not arrive, or was cut off

/** Return whether a call that failed may succeed when it is made again. */
export function isPassing(error) {
  return error instanceof TrialError && (error.code ?? UNAVAILABLE) === UNAVAILABLE;
}

/** Return whether an actor was refused because another player has it. */
export function isTakenError(error) {
  return error.code === players.ACTOR_TAKEN;
}

/** The calls of people at an endpoint; see players.js. */
export class Service {
  #endpoint;

  constructor(endpoint) {
    this.#endpoint = endpoint;
  }

  /** Return what the trials of the server play, with the trials that have not ended. */
  async describe() {
    const description = await players.describe(this.#endpoint);
    description.trials = description.trials.filter(({ state }) => LIVE.includes(state));
    return description;
  }

  /** Iterate over the ticks of a trial. */
  look(trialId, signal) {
    return players.look(this.#endpoint, trialId, { signal });
  }

  /** Have `onSession` play an actor. */
  takeOver({ trialId, actor, user }, onSession) {
    return players.takeOver(this.#endpoint, trialId, actor, { userId: user, onSession });
  }
}
