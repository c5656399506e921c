// The JavaScript SDK of trials: controllers and actors, in browsers and in node.

import { cogmentAPI } from "./common_pb.js";
import { TrialError } from "./grpc_web.js";
import { MessageBase, type Given } from "./protobuf.js";
import { ActorSession, EventType, RecvEvent, Session, type CogSettings } from "./session.js";

export import TrialState = cogmentAPI.TrialState;
export { ActorSession, EventType, MessageBase, RecvEvent, Session, TrialError };
export type { ActorClass, CogSettings, Receivers } from "./session.js";
export type { MessageType } from "./protobuf.js";

/** What is known of a trial. All but id and state come from `getTrialInfo` only. */
export class TrialInfo {
  constructor(trialId: string, state: TrialState);
  trialId: string;
  state: TrialState;
  envName: string | undefined;
  tickId: number | bigint | undefined;
  duration: number | bigint | undefined;
}

/** An actor of a trial. */
export class ActorInfo {
  constructor(name: string, actorClass: string);
  name: string;
  actorClass: string;
}

/** Connects a user to servers of trials. */
export class Context<S extends CogSettings = CogSettings> {
  constructor(userId: string, cogSettings: S);
  /** Return a controller of the trials of a server, whose endpoint is http://host:port. */
  getController(endpoint: string): Controller<S>;
  /** Have `impl` run actors of that name, and of that class; without a class, of any. */
  registerActor<Name extends keyof S["actorClasses"] & string>(
    impl: (session: ActorSession<S["actorClasses"][Name]>) => Promise<void>,
    actorName: string,
    actorClass?: Name | readonly Name[],
  ): void;
  /** Join a trial as an actor, and run its implementation to the end. */
  joinTrial(trialId: string, endpoint: string, actorName: string): Promise<void>;
}

/** Starts, ends and watches the trials of a server. */
export class Controller<S extends CogSettings = CogSettings> {
  constructor(endpoint: string, userId: string, cogSettings: S);
  /** Start a trial, and return its id: an empty one if the requested id is taken. */
  startTrial(
    trialConfig?: Given<NonNullable<S["trial"]>["config"]>,
    trialIdRequested?: string,
  ): Promise<string>;
  /** Request the end of trials: at the next tick or, if it is hard, at once. */
  terminateTrial(trialIds: string | readonly string[], hard?: boolean): Promise<void>;
  /** Return what is known of trials, without ids of all. */
  getTrialInfo(trialIds?: string | readonly string[]): Promise<TrialInfo[]>;
  /** Iterate over the present states of all trials, and then over changes, without end. */
  watchTrials(
    trialStateFilters?: TrialState | readonly TrialState[],
  ): AsyncGenerator<TrialInfo, void, boolean | undefined>;
  /** Return the actors of a trial. */
  getActors(trialId: string): Promise<ActorInfo[]>;
  /** Return the versions of the components of the server, by name. */
  getRemoteVersions(): Promise<{ [name: string]: string }>;
}
