// Sessions: what an actor receives of its trial, and what it sends.

import type { cogmentAPI } from "./common_pb.js";
import type { google } from "./google/protobuf/any_pb.js";
import type { Given, Held, MessageType } from "./protobuf.js";

/** An actor class of a project, as `CogSettings.js` has it. */
export interface ActorClass {
  name?: string;
  actionSpace: MessageType<any>;
  observationSpace: MessageType<any>;
  config?: MessageType<any>;
}

/** The types of a project, as `CogSettings.js` has them. */
export interface CogSettings {
  messageUrlMap?: { [url: string]: MessageType<any> };
  actorClasses: { [name: string]: ActorClass };
  trial?: { config?: MessageType<any> };
  environment?: { config?: MessageType<any> };
}

/** The types of events. */
export enum EventType {
  NONE = 0,
  ACTIVE = 1,
  ENDING = 2,
  FINAL = 3,
}

/** A received event: any combination of data, and always a type. */
export class RecvEvent<Observation = any> {
  constructor(type: EventType);
  type: EventType;
  observation: Observation | undefined;
  actions: unknown[];
  rewards: cogmentAPI.Reward[];
  /** Messages of known types, and Any where a type is not known. */
  messages: any[];
}

/** The names of receivers, in a list or as one. */
export type Receivers = string | readonly string[];

/** The part of one participant in one trial. */
export class Session<Observation = any, Config = any> {
  protected constructor();
  readonly name: string;
  readonly implName: string;
  readonly className: string;
  readonly envName: string;
  readonly config: Config | undefined;
  /** Return the id of the trial. */
  getTrialId(): string;
  /** Return the present tick, -1 before the first one. */
  getTickId(): number | bigint;
  /** Return true once the trial has ended for this participant, or the connection is lost. */
  isTrialOver(): boolean;
  /** Tell the trial that nothing more will be sent. */
  sendingDone(): void;
  /** Send a message to actors, "*" and "class.*" among them, or to the environment. */
  sendMessage(payload: object, to: Receivers): void;
  /** Give a reward to actors, "*" and "class.*" among them, for a tick: -1 is the present one. */
  addReward(
    value: number,
    confidence: number,
    to: Receivers,
    tickId?: number | bigint,
    userData?: object | google.protobuf.IAny,
  ): void;
  /** Iterate over the events of the session, until it is sent false. */
  eventLoop(): AsyncGenerator<RecvEvent<Observation>, void, boolean | undefined>;
}

/** The part of one actor in one trial. */
export class ActorSession<C extends ActorClass = any> extends Session<
  Held<C["observationSpace"]>,
  Held<C["config"]>
> {
  /** Begin; to be called before anything else of the session. */
  start(autoDoneSending?: boolean): void;
  /** Act on the last observation. Without an action, the environment gets a default one. */
  doAction(action?: Given<C["actionSpace"]> | null): void;
}
