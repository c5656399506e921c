// People in trials whose environment is a guest: they take actors over, and watch.

import { serverStream, SocketCall, TrialError, unary } from "./grpc_web.js";
import * as guestApi from "./guest_pb.js";
import * as playersApi from "./players_pb.js";
import { ActorSession, introduced } from "./session.js";

const { Action, Metadata, Observation, SideChannel } = guestApi.arkmlTrials;
const { DescribeRequest, Description, LookRequest, View } = playersApi.arkmlTrials;

/** The code of the TrialError for an actor that has another player. */
export const ACTOR_TAKEN = 6;

/** The messages of guests, and the kinds of players of actors. */
export const { EpisodeEnd } = guestApi.arkmlTrials;
export const { PlayerKind } = playersApi.arkmlTrials;

/** The part of a person in one trial. */
export class PlayerSession extends ActorSession {
  /** Hand the actor back to its stand-in: what was sent still arrives, and the session is over. */
  handBack() {
    this._hangUp();
  }

  /** Return true if the session ended since the connection was lost. */
  isConnectionLost() {
    return this._isLost;
  }
}

/** Return what the trials of a server play, and its live trials: a Description. */
export async function describe(endpoint) {
  const request = DescribeRequest.encode({}).finish();
  return Description.decode(await unary(endpoint, method("Describe"), request));
}

/**
 * Iterate over the ticks of a trial until it ends.
 *
 * Yields {tickId, state, players, rewards, observations, actions, reason}, each list by actor in
 * the order of the trial. A loop that is slow misses ticks. Ends quietly where `signal` is aborted.
 */
export async function* look(endpoint, trialId, { signal } = {}) {
  const request = LookRequest.encode({}).finish();
  const metadata = { "trial-id": [trialId] };
  try {
    for await (const bytes of serverStream(endpoint, method("Look"), request, metadata, signal)) {
      yield decoded(View.decode(bytes));
    }
  } catch (error) {
    if (!signal?.aborted) throw error;
  }
}

/**
 * Play for an actor of a trial that runs, by `onSession`, until that returns or the trial ends.
 *
 * `onSession` is an async function of a PlayerSession; once it returns the stand-in acts again.
 * `userId` is the name of the person, which others see. `settings` are those that
 * `arkml trials generate` writes, by default the types of guests. Throws a TrialError with the
 * server's reason if it does not let the person in, whose code is ACTOR_TAKEN where another one
 * plays.
 */
export async function takeOver(endpoint, trialId, actorName, { userId, settings, onSession }) {
  if (typeof onSession !== "function") throw new TypeError("a person plays by an async function");
  const metadata = { "trial-id": [trialId], "user-id": [encodedUserId(userId)] };
  const call = new SocketCall(endpoint, method("TakeOver"), metadata);
  try {
    const init = await introduced(call, trialId, actorName);
    const types = settings ?? guestSettings(init.actorClass);
    const session = new PlayerSession(call, trialId, init, types);
    await session._run(async () => {
      await onSession(session);
      session.handBack();
    });
  } finally {
    call.close();
  }
}

function method(name) {
  return `arkmlTrials.PlayersSP/${name}`;
}

/** Return the settings of a trial of a guest, all of whose actors have the same types. */
function guestSettings(actorClass) {
  const known = [Metadata, SideChannel].map((type) => [type.getTypeUrl(), type]);
  const types = { actionSpace: Action, observationSpace: Observation };
  return {
    messageUrlMap: Object.fromEntries(known),
    actorClasses: Object.fromEntries([[actorClass, types]]),
  };
}

/** Return a name as headers carry it: what is not plain ASCII is percent-encoded. */
function encodedUserId(userId) {
  if (typeof userId !== "string") throw new TypeError("userId is the name of a person");
  if (userId === "") throw new TrialError("a person who takes an actor over needs a name");
  return userId.toWellFormed().replace(/[^ -$&-+\--~]/gu, encodeURIComponent);
}

function decoded({ tickId, state, observations, players, rewards, actions, reason }) {
  const contents = (observations?.observations ?? []).map((bytes) => Observation.decode(bytes));
  return {
    tickId,
    state,
    players,
    rewards,
    observations: (observations?.actorsMap ?? []).map((index) => contents[index]),
    actions: actions.map((bytes) => Action.decode(bytes)),
    reason,
  };
}
