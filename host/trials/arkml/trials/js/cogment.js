// The JavaScript SDK of trials: controllers and actors, in browsers and in node.

import * as commonApi from "./common_pb.js";
import { serverStream, SocketCall, TrialError, unary } from "./grpc_web.js";
import * as lifecycleApi from "./lifecycle_pb.js";
import { MessageBase } from "./protobuf.js";
import { ActorSession, EventType, introduced, listed, RecvEvent, Session } from "./session.js";

const { TrialState, VersionInfo, VersionRequest } = commonApi.cogmentAPI;
const {
  TerminateTrialRequest,
  TrialInfoReply,
  TrialInfoRequest,
  TrialListEntry,
  TrialListRequest,
  TrialStartReply,
  TrialStartRequest,
} = lifecycleApi.cogmentAPI;

export { ActorSession, EventType, MessageBase, RecvEvent, Session, TrialError, TrialState };

/** What is known of a trial. All but id and state come from `getTrialInfo` only. */
export class TrialInfo {
  constructor(trialId, state) {
    this.trialId = trialId;
    this.state = state;
    this.envName = undefined;
    this.tickId = undefined;
    this.duration = undefined;
  }
}

/** An actor of a trial. */
export class ActorInfo {
  constructor(name, actorClass) {
    this.name = name;
    this.actorClass = actorClass;
  }
}

/** Connects a user to servers of trials. */
export class Context {
  #userId;
  #cogSettings;
  #actors = new Map();

  constructor(userId, cogSettings) {
    if (typeof userId !== "string") {
      throw new TypeError("a Context takes the user's id, and then cogSettings");
    }
    this.#userId = userId;
    this.#cogSettings = cogSettings;
  }

  /** Return a controller of the trials of a server, whose endpoint is http://host:port. */
  getController(endpoint) {
    return new Controller(endpoint, this.#userId, this.#cogSettings);
  }

  /** Have `impl` run actors of that name, and of that class; without a class, of any. */
  registerActor(impl, actorName, actorClass) {
    if (typeof impl !== "function") throw new TypeError("an actor is run by an async function");
    if (this.#actors.has(actorName)) {
      throw new TrialError(`The actor implementation name must be unique: [${actorName}]`);
    }
    this.#actors.set(actorName, { impl, classes: listed(actorClass) });
  }

  /**
   * Join a trial as an actor, and run its implementation to the end.
   *
   * Throws a TrialError with the server's reason if it does not let the actor join.
   */
  async joinTrial(trialId, endpoint, actorName) {
    if (this.#actors.size === 0) throw new TrialError("no actor is registered to join with");
    const metadata = { "trial-id": [trialId] };
    const call = new SocketCall(endpoint, "cogmentAPI.ClientActorSP/RunTrial", metadata);
    try {
      const init = await introduced(call, trialId, actorName);
      const impl = this.#implementation(init, trialId);
      const session = new ActorSession(call, trialId, init, this.#cogSettings);
      await session._run(impl);
    } finally {
      call.close();
    }
  }

  /** Return what runs an actor: the implementation of its name, or any that fits its class. */
  #implementation(init, trialId) {
    const fits = (actor) => actor.classes.length === 0 || actor.classes.includes(init.actorClass);
    const about = `Trial [${trialId}] - actor [${init.actorName}] class [${init.actorClass}]`;
    for (const name of [init.actorName, init.implName]) {
      const named = this.#actors.get(name);
      if (named !== undefined && fits(named)) return named.impl;
      if (named !== undefined) {
        throw new TrialError(`${about} is not compatible with actor implementation [${name}]`);
      }
    }
    const fitting = [...this.#actors.values()].find(fits);
    if (fitting === undefined) {
      throw new TrialError(`${about} is not compatible with any registered actor`);
    }
    return fitting.impl;
  }
}

/** Starts, ends and watches the trials of a server. */
export class Controller {
  #endpoint;
  #userId;
  #cogSettings;

  constructor(endpoint, userId, cogSettings) {
    this.#endpoint = endpoint;
    this.#userId = userId;
    this.#cogSettings = cogSettings;
  }

  /** Start a trial, and return its id: an empty one if the requested id is taken. */
  async startTrial(trialConfig = undefined, trialIdRequested = undefined) {
    const request = { userId: this.#userId, trialIdRequested };
    if (trialConfig !== undefined) {
      const type = this.#cogSettings.trial?.config;
      if (!type) throw new TrialError("the spec file has no trial.config_type");
      request.config = { content: type.encode(trialConfig).finish() };
    }
    const reply = await this.#call("StartTrial", TrialStartRequest, request);
    return TrialStartReply.decode(reply).trialId;
  }

  /** Request the end of trials: at the next tick or, if it is hard, at once. */
  async terminateTrial(trialIds, hard = false) {
    const ids = listed(trialIds);
    if (ids.length === 0) throw new TrialError("terminateTrial takes at least one trial id");
    await this.#call("TerminateTrial", TerminateTrialRequest, { hardTermination: hard }, ids);
  }

  /** Return what is known of trials, without ids of all. */
  async getTrialInfo(trialIds = []) {
    const reply = await this.#call("GetTrialInfo", TrialInfoRequest, {}, listed(trialIds));
    return TrialInfoReply.decode(reply).trial.map((trial) =>
      Object.assign(new TrialInfo(trial.trialId, trial.state), {
        envName: trial.envName,
        tickId: trial.tickId,
        duration: trial.trialDuration,
      }),
    );
  }

  /** Iterate over the present states of all trials, and then over changes, without end. */
  async *watchTrials(trialStateFilters = []) {
    const request = TrialListRequest.encode({ filter: listed(trialStateFilters) }).finish();
    const entries = serverStream(this.#endpoint, method("WatchTrials"), request);
    for await (const bytes of entries) {
      const entry = TrialListEntry.decode(bytes);
      const isContinued = yield new TrialInfo(entry.trialId, entry.state);
      if (isContinued === false) return;
    }
  }

  /** Return the actors of a trial. */
  async getActors(trialId) {
    const request = { getActorList: true };
    const reply = await this.#call("GetTrialInfo", TrialInfoRequest, request, [trialId]);
    const [trial] = TrialInfoReply.decode(reply).trial;
    if (trial === undefined) throw new TrialError(`Unknown trial [${trialId}]`);
    return trial.actorsInTrial.map((actor) => new ActorInfo(actor.name, actor.actorClass));
  }

  /** Return the versions of the components of the server, by name. */
  async getRemoteVersions() {
    const { versions } = VersionInfo.decode(await this.#call("Version", VersionRequest, {}));
    return Object.fromEntries(versions.map(({ name, version }) => [name, version]));
  }

  #call(name, type, request, trialIds = []) {
    const metadata = { "trial-id": trialIds };
    return unary(this.#endpoint, method(name), type.encode(request).finish(), metadata);
  }
}

function method(name) {
  return `cogmentAPI.TrialLifecycleSP/${name}`;
}
