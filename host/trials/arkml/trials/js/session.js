// Sessions: what an actor receives of its trial, and what it sends.

import * as actorApi from "./actor_pb.js";
import * as commonApi from "./common_pb.js";
import { TrialError, Unread } from "./grpc_web.js";
import { enumeration } from "./protobuf.js";

const { CommunicationState } = commonApi.cogmentAPI;
const { ActorRunTrialInput, ActorRunTrialOutput } = actorApi.cogmentAPI;

/** The types of events. */
export const EventType = enumeration({ NONE: 0, ACTIVE: 1, ENDING: 2, FINAL: 3 });

const NANOSECONDS = 1_000_000n; // of a millisecond
const AUTO = -1; // the present tick

function now() {
  return BigInt(Date.now()) * NANOSECONDS;
}

/** Return a list, which callers may give as one value, or not at all. */
export function listed(value) {
  if (value === undefined || value === null || value === "") return [];
  return Array.isArray(value) ? value : [value];
}

/** A received event: any combination of data, and always a type. */
export class RecvEvent {
  constructor(type) {
    this.type = type;
    this.observation = undefined;
    this.actions = [];
    this.rewards = [];
    this.messages = [];
  }
}

function send(call, state, data = {}) {
  call.send(ActorRunTrialOutput.encode({ state, ...data }).finish());
}

/** Join a trial, and return the data that introduces the actor. */
export async function introduced(call, trialId, actorName) {
  send(call, CommunicationState.NORMAL, { initOutput: { actorName } });
  for (;;) {
    const bytes = await call.receive();
    if (bytes === null) throw new TrialError(`Trial [${trialId}] - the connection was lost`, 14);
    const input = ActorRunTrialInput.decode(bytes);
    if (input.state === CommunicationState.HEARTBEAT) {
      send(call, CommunicationState.HEARTBEAT);
    } else if (input.state === CommunicationState.END) {
      await call.receive(); // throws the same reason with its code, if there is one
      throw new TrialError(input.details || `Trial [${trialId}] - Ended before start`);
    } else if (input.initInput !== null) {
      return input.initInput;
    } else {
      throw new TrialError(`Trial [${trialId}] - Received unexpected init data [${input.data}]`);
    }
  }
}

/** The part of one participant in one trial. */
export class Session {
  #call;
  #trialId;
  #cogSettings;
  #events = new Unread();
  #hasEnded = false; // no events follow those in the queue
  #arriving = 0; // bytes of the message that is being taken in
  #waiting = null; // what resumes the loop of events
  #tickId = -1;
  #deliveredTick = AUTO;
  #isStarted = false;
  #isAutomatic = true;
  #isEnding = false; // LAST was received
  #isDone = false; // LAST_ACK was sent
  #isLastObserved = false; // the observation after LAST was received
  #isOver = false; // END was received, the connection is lost, or this side has ended it
  #isLost = false;
  #isExhausted = false; // the last event was delivered
  #failure = null;

  constructor(call, trialId, init, cogSettings) {
    this.#call = call;
    this.#trialId = trialId;
    this.#cogSettings = cogSettings;
    this.name = init.actorName;
    this.implName = init.implName;
    this.className = init.actorClass;
    this.envName = init.envName;
    this.config = undefined;
  }

  /** Return the id of the trial. */
  getTrialId() {
    return this.#trialId;
  }

  /** Return the present tick, -1 before the first one. */
  getTickId() {
    return this.#tickId;
  }

  /** Return true once the trial has ended for this participant, or the connection is lost. */
  isTrialOver() {
    return this.#isOver;
  }

  /** Tell the trial that nothing more will be sent. */
  sendingDone() {
    if (this.#isAutomatic) {
      throw new TrialError("Cannot manually end sending as it is set to automatic");
    }
    if (!this.#isEnding) {
      throw new TrialError("Cannot stop sending before trial is ready to end");
    }
    if (this.#isOver) this.#warn("end sending ignored because the trial has already ended.");
    else this.#acknowledge();
  }

  /** Send a message to actors, "*" and "class.*" among them, or to the environment. */
  sendMessage(payload, to) {
    const packed = this.#packed(payload);
    for (const receiverName of listed(to)) {
      this._post({ message: { tickId: AUTO, receiverName, payload: packed } });
    }
  }

  /** Give a reward to actors, "*" and "class.*" among them, for a tick: -1 is the present one. */
  addReward(value, confidence, to, tickId = AUTO, userData = undefined) {
    const source = { value, confidence };
    if (userData !== undefined) source.userData = this.#packed(userData);
    for (const receiverName of listed(to)) {
      this._post({ reward: { tickId, receiverName, value, sources: [source] } });
    }
  }

  /**
   * Iterate over the events of the session.
   *
   * Ends after the FINAL event, without one if the trial is cut off or the connection is lost,
   * and when it is sent false.
   */
  async *eventLoop() {
    if (!this.#isStarted) {
      this.#warn("Cannot retrieve events until the session is started.");
      return;
    }
    while (!this.#isExhausted) {
      const event = await this.#nextEvent();
      if (event === null) {
        this.#isExhausted = true;
        return;
      }
      this.#isExhausted = event.type === EventType.FINAL;
      const isContinued = yield event;
      if (isContinued === false) return;
    }
  }

  _start(autoDoneSending) {
    if (this.#isStarted) throw new TrialError(`Cannot start [${this.name}] more than once.`);
    if (this.#isOver) {
      throw new TrialError(`Cannot start [${this.name}] because the trial has ended.`);
    }
    this.#isStarted = true;
    this.#isAutomatic = autoDoneSending;
    if (this.#isAutomatic && this.#isLastObserved) this.#acknowledge();
  }

  get _deliveredTick() {
    return this.#deliveredTick;
  }

  get _isLost() {
    return this.#isLost;
  }

  /** End the stream after what was sent, without a word to the trial. */
  _hangUp() {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#end();
    this.#call.close();
  }

  /** Run the implementation to its end. Throws what it throws, and what went wrong meanwhile. */
  async _run(impl) {
    const reading = this.#read();
    let reason = "the implementation of the actor returned";
    try {
      await impl(this);
    } catch (error) {
      reason = `the implementation of the actor failed: ${error}`;
      throw error;
    } finally {
      this.#leave(reason);
    }
    await reading;
    if (this.#failure !== null) throw this.#failure;
  }

  /** Leave the trial, which gets the reason if it still runs. */
  #leave(reason) {
    if (!this.#isOver && !this.#isDone) {
      this.#warn(`it leaves: ${reason}`);
      send(this.#call, CommunicationState.END, { details: reason });
    }
    this.#call.close();
  }

  _post(data) {
    if (!this.#isStarted) this.#warn("Cannot send until session is started.");
    else if (this.#isDone) this.#warn("Cannot send after acknowledging ending");
    else if (!this.#isOver) send(this.#call, CommunicationState.NORMAL, data);
  }

  /** Take in all messages, to the end of the call. */
  async #read() {
    try {
      for (;;) {
        const bytes = await this.#call.receive();
        if (bytes === null) break;
        this.#arriving = bytes.length;
        this.#take(ActorRunTrialInput.decode(bytes));
      }
      this.#isLost = this.#call.isLost && !this.#isOver;
      if (this.#isLost) this.#warn("the connection was lost");
    } catch (error) {
      this.#failure = error;
      this.#call.close();
    }
    this.#isOver = true;
    this.#end();
  }

  #take(input) {
    if (input.state === CommunicationState.NORMAL) {
      this.#takeData(input);
    } else if (input.state === CommunicationState.HEARTBEAT) {
      send(this.#call, CommunicationState.HEARTBEAT);
    } else if (input.state === CommunicationState.LAST) {
      this.#isEnding = true;
    } else if (input.state === CommunicationState.END) {
      if (this.#isEnding) this.#put(new RecvEvent(EventType.FINAL));
      else this.#warn(`the trial was cut off: ${input.details ?? ""}`);
      this.#isOver = true;
      this.#end();
    } else {
      throw new TrialError(`Trial [${this.#trialId}] - received the state ${input.state}`);
    }
  }

  #takeData({ data, observation, reward, message, details }) {
    const event = new RecvEvent(this.#isEnding ? EventType.ENDING : EventType.ACTIVE);
    if (data === "observation") {
      this.#tickId = observation.tickId;
      event.observation = this._observation(observation.content);
      this.#isLastObserved = this.#isEnding;
      if (this.#isEnding && this.#isAutomatic && this.#isStarted) this.#acknowledge();
      this.#put(event, observation.tickId);
    } else if (data === "reward") {
      event.rewards = [reward];
      this.#put(event);
    } else if (data === "message") {
      event.messages = [this.#unpacked(message.payload)];
      this.#put(event);
    } else {
      this.#warn(`received unexpected ${data ?? "data"} ${details ?? ""}`);
    }
  }

  #acknowledge() {
    if (this.#isDone) return;
    this.#isDone = true;
    send(this.#call, CommunicationState.LAST_ACK);
  }

  #put(event, tickId = undefined) {
    if (this.#hasEnded) return;
    this.#events.push({ event, tickId }, this.#arriving);
    this.#resume();
  }

  #end() {
    this.#hasEnded = true;
    this.#resume();
  }

  #resume() {
    const resume = this.#waiting;
    this.#waiting = null;
    resume?.();
  }

  async #nextEvent() {
    while (this.#events.length === 0 && !this.#hasEnded) {
      await new Promise((resume) => {
        this.#waiting = resume;
      });
    }
    if (this.#events.length === 0) return null;
    const { event, tickId } = this.#events.shift();
    if (tickId !== undefined) this.#deliveredTick = tickId;
    return event;
  }

  /** Return a message as an Any, which it may be already. */
  #packed(payload) {
    const type = payload?.constructor;
    if (typeof type?.getTypeUrl === "function" && typeof type.encode === "function") {
      if (typeof payload.type_url === "string") return payload;
      return { type_url: type.getTypeUrl(), value: type.encode(payload).finish() };
    }
    if (typeof payload?.type_url === "string") return payload;
    throw new TypeError("a message to send is one of a generated class, as Type.create({...})");
  }

  /** Return the message in an Any, or the Any where its type is not known. */
  #unpacked(payload) {
    const name = payload?.type_url?.split("/").at(-1);
    const url = `type.googleapis.com/${name}`;
    const known = this.#cogSettings.messageUrlMap ?? {};
    if (!Object.hasOwn(known, url)) return payload;
    try {
      return known[url].decode(payload.value);
    } catch {
      return payload;
    }
  }

  #warn(text) {
    console.warn(`Trial [${this.#trialId}] - Session for [${this.name}]: ${text}`);
  }
}

/** The part of one actor in one trial. */
export class ActorSession extends Session {
  #actorClass;

  constructor(call, trialId, init, cogSettings) {
    super(call, trialId, init, cogSettings);
    const classes = cogSettings.actorClasses ?? {};
    if (!Object.hasOwn(classes, init.actorClass)) {
      throw new TrialError(
        `Trial [${trialId}] - Unknown class [${init.actorClass}] for client actor [${this.name}]`,
      );
    }
    this.#actorClass = classes[init.actorClass];
    if (init.config === null) return;
    if (!this.#actorClass.config) {
      throw new TrialError(
        `Trial [${trialId}] - Client actor [${this.name}] received config data of unknown type` +
          " (was it defined in cogment.yaml?)",
      );
    }
    this.config = this.#actorClass.config.decode(init.config.content);
  }

  /** Begin; to be called before anything else of the session. */
  start(autoDoneSending = true) {
    this._start(autoDoneSending);
  }

  /** Act on the last observation. Without an action, the environment gets a default one. */
  doAction(action = undefined) {
    const isGiven = action !== undefined && action !== null;
    const content = isGiven ? this.#actorClass.actionSpace.encode(action).finish() : undefined;
    this._post({ action: { tickId: this._deliveredTick, timestamp: now(), content } });
  }

  _observation(content) {
    return this.#actorClass.observationSpace.decode(content);
  }
}
