// People in trials whose environment is a guest: they take actors over, and watch.

import { cogmentAPI } from "./common_pb.js";
import { arkmlTrials as guest } from "./guest_pb.js";
import { arkmlTrials as players } from "./players_pb.js";
import { ActorSession, type ActorClass, type CogSettings } from "./session.js";

/** The code of the TrialError for an actor that has another player. */
export const ACTOR_TAKEN: 6;

/** The messages of guests, and the kinds of players of actors. */
export import EpisodeEnd = guest.EpisodeEnd;
export import PlayerKind = players.PlayerKind;

/** The actor class of all actors in a trial of a guest. */
export interface GuestClass extends ActorClass {
  actionSpace: typeof guest.Action;
  observationSpace: typeof guest.Observation;
}

/** The part of a person in one trial. */
export class PlayerSession<C extends ActorClass = GuestClass> extends ActorSession<C> {
  /** Hand the actor back to its stand-in: what was sent still arrives, and the session is over. */
  handBack(): void;
  /** Return true if the session ended since the connection was lost. */
  isConnectionLost(): boolean;
}

/** A tick of a trial; each list is by actor, in the order of the trial. */
export interface Tick {
  tickId: number | bigint;
  state: cogmentAPI.TrialState;
  players: players.Player[];
  rewards: number[];
  observations: guest.Observation[];
  actions: guest.Action[];
  reason: string;
}

/** Return what the trials of a server play, and its live trials. */
export function describe(endpoint: string): Promise<players.Description>;

/** Iterate over the ticks of a trial until it ends, or `signal` is aborted. */
export function look(
  endpoint: string,
  trialId: string,
  options?: { signal?: AbortSignal },
): AsyncGenerator<Tick, void, undefined>;

/** Play for an actor of a trial that runs, by `onSession`, until that returns or the trial ends. */
export function takeOver<C extends ActorClass = GuestClass>(
  endpoint: string,
  trialId: string,
  actorName: string,
  options: {
    userId: string;
    settings?: CogSettings;
    onSession: (session: PlayerSession<C>) => Promise<void>;
  },
): Promise<void>;
