// What answers the calls of one guest: its sessions, futures, log and results.

import { Handles } from "./ark_handles.js";
import { invalid, notFound, unavailable } from "./ark_memory.js";
import { RunPolicy } from "./ark_run_policy.js";
import { Session } from "./ark_sessions.js";
import { timeText } from "./ark_times.js";
import { after } from "./later.js";

const LAST_PORT = 0xffff;
const CONTAINER = [67, 82, 86, 79, 0, 0, 0, 1]; // "CRVO", and the number of ONNX
const LEVELS = ["error", "warning", "info", "debug", "trace"];

/** A result that a guest takes later; here it is there at once. */
class Future {
  constructor(type, value) {
    this.type = type;
    this.value = value;
  }
}

/**
 * The services of a guest.
 *
 * `policies(name, numFeatures, numActions)` returns {policy, branches} of a session, or throws a
 * Refusal. `trains` is true where the policy answers the trainings that the guest starts; else they
 * are Unavailable, as without a hive. `answered(session)` may replace actions before they are given.
 */
export class ArkServices {
  #world;
  #log;
  #limits;
  #policies;
  #trains;
  #answered;
  #env;
  #handles;
  #key = 0n;
  #pending = null;
  #warned = new Set();
  #refused = new Set();

  constructor({ world, log, limits, policies, trains, answered, env }) {
    this.#world = world;
    this.#log = log;
    this.#limits = limits;
    this.#policies = policies;
    this.#trains = trains;
    this.#answered = answered;
    this.#env = env;
    this.#handles = new Handles(limits.handles);
    this.input = new Uint8Array(0);
    this.returned = null;
    this.panic = null;
    this.refusal = ""; // the last refused call, in words
  }

  /** Begin a call of an export, and clear what the last one left. */
  begin() {
    this.#pending = this.returned = this.panic = null;
  }

  /** Return the handler of a function, which takes an object of its parameters. */
  handler(module, name) {
    if (module === "env") return (args) => this.#env[name](...Object.values(args));
    if (module === "ark-ml-inference-v0" && name !== "onnx_to_cervo") return () => this.#noBrains(name);
    return this.#generic(name) ?? ((args) => this[name](args));
  }

  /**
   * Note a call that is refused with a code; the first one of a function is logged.
   *
   * What is unavailable in a page is no fault of the guest.
   */
  refused(name, code, reason) {
    this.refusal = `${name} answered ${code}: ${reason}`;
    if (this.#refused.has(`${name} ${code}`)) return;
    this.#refused.add(`${name} ${code}`);
    if (code === "UNAVAILABLE") this.#log.say("debug", `${reason}: ${name} answered ${code}`);
    else this.#log.say("warning", this.refusal);
  }

  /** Keep the bytes that the guest takes next. */
  offer(data) {
    this.#pending = data;
  }

  /** Return an open session of a kind. */
  session(handle, kind) {
    const session = this.#handles.get(handle, Session);
    if (session.kind !== kind) throw notFound(`0x${handle.toString(16)} is of a session of ${session.kind}`);
    return session;
  }

  /** Answer the rows of a session; returns a promise where the policy does. */
  answer(session) {
    if (!session.isFinite) this.#warn("non-finite features are passed on to the policy as they are");
    return after(session.answer(), () => {
      this.#answered(session);
      if (!session.settle()) this.#warn("the policy gave non-finite actions or values: answered as zeros");
    });
  }

  /** Note a panic, and return its text. */
  notePanic(message, file, line, column) {
    const place = this.#log.shown(file, true);
    const text = `${this.#log.shown(message) || "panic without a message"}${place && `, ${place}:${line}:${column}`}`;
    this.panic = text + this.#log.context;
    this.#log.say("error", `panic: ${text}`);
    return this.panic;
  }

  return_slice({ ptr }) {
    this.returned = ptr;
    return 0;
  }

  get_input_slice({ ptr, size, offset }) {
    if (offset + size > this.input.length) throw invalid(`bytes ${offset} to ${offset + size} of an input of ${this.input.length}`);
    ptr(this.input.subarray(offset, offset + size));
    return 0;
  }

  has_extension() {
    return 0;
  }

  register_panic({ err_msg: message, location_file: file, location_line: line, location_column: column }) {
    this.notePanic(message, file, line, column);
  }

  log({ level, str }) {
    this.#log.say(LEVELS[level] ?? "error", str);
  }

  take_host_return_vec({ out }) {
    if (this.#pending === null) throw notFound("there is no pending vector");
    out(this.#pending);
    this.#pending = null;
  }

  add_debug_context({ name_str: name, value_str: value }) {
    this.#log.addContext(name, value);
  }

  remove_debug_context({ name_str: name }) {
    this.#log.removeContext(name);
  }

  time_utc() {
    return this.#world.now;
  }

  format_time_for_display({ ns_since_epoch: time, time_format: format }) {
    return timeText(time, format, this.#world.now);
  }

  /** Pack a model, which is not examined: the published policy answers in the place of all models. */
  onnx_to_cervo({ buffer }) {
    const packed = new Uint8Array(CONTAINER.length + buffer.length);
    packed.set(CONTAINER);
    packed.set(buffer, CONTAINER.length);
    return packed;
  }

  can_connect_to_hive(args) {
    requireAddress(args);
    return this.#bring("bool", () => this.#trains);
  }

  list_experiments(args) {
    requireAddress(args);
    this.#requireHive();
    return this.#bring("vec_experiment_info", () => []);
  }

  set_worker_module_link() {
    throw unavailable("a page has no remote workers");
  }

  connect_to_experiment(args) {
    this.#requireOther(args);
    this.#handles.requireRoom();
    return this.#bring("training_handle", () => {
      throw unavailable("a page joins no experiments");
    });
  }

  start_training(args) {
    const { experiment_name: name, config, configuration = config, protocol } = args;
    requireAddress(args);
    for (const one of [name, args.game_name, args.namespace, args.checkpoint, args.module_id]) this.#requireName(one);
    const settings = settingsOf(configuration);
    this.#requireHive();
    this.#handles.requireRoom();
    const shape = [
      args.num_features ?? protocol?.feature_count ?? settings.feature_count,
      args.num_actions ?? protocol?.action_count ?? settings.action_count,
    ];
    return this.#bring("training_handle", () => {
      if (!shape.every(Number.isInteger)) throw invalid("the configuration has no feature_count and action_count");
      return { name, shape, ...this.#policies(name, ...shape) };
    });
  }

  start_training_from_checkpoint(args) {
    return this.start_training(args);
  }

  start_inference({ num_features: features, num_actions: actions }) {
    this.#handles.requireRoom();
    const { policy, branches } = this.#policies(null, features, actions);
    const shape = [features ?? policy.numFeatures, actions ?? policy.numActions];
    return this.#open("inference", { name: "", shape, branches, policy });
  }

  experiment_action_count({ context }) {
    return this.session(context, "training").numActions;
  }

  experiment_feature_count({ context }) {
    return this.session(context, "training").numFeatures;
  }

  submit_training_augmented_observations({ context }) {
    this.session(context, "training").clear();
  }

  submit_training_demonstration_observations({ context }) {
    this.session(context, "training").clear();
  }

  stop_training({ context }) {
    this.#close(context, "training");
  }

  stop_experiment({ context }) {
    this.#close(context, "training");
  }

  stop_inference({ context }) {
    this.#close(context, "inference");
  }

  drop_future({ handle }) {
    this.#handles.remove(handle, Future);
  }

  take_future_training_handle({ handle, data }) {
    const session = this.#open("training", this.#taken(handle, "training_handle"));
    try {
      data(new Uint8Array(new BigUint64Array([session]).buffer));
    } catch (error) {
      this.#close(session, "training"); // the guest never gets its handle
      throw error;
    }
  }

  take_future_bool({ handle, data }) {
    data(new Uint8Array([Number(this.#taken(handle, "bool"))]));
  }

  take_future_vec_experiment_info({ handle, data }) {
    this.#taken(handle, "vec_experiment_info");
    data(new Uint8Array(0));
  }

  /** Return the handler of functions that are alike: of futures, of runs of others, of a session's run. */
  #generic(name) {
    const polled = /^poll_future_(\w+)$/.exec(name);
    if (polled) return ({ handle }) => ({ ready: this.#found(handle, polled[1]).type === polled[1], len: 0 });
    const taken = /^take_future_(\w+)$/.exec(name);
    if (taken && !(name in this)) return ({ handle }) => this.#taken(handle, taken[1]);
    if (/_from_registry$/.test(name)) return (args) => this.#requireOther(args, true);
    if (/^(download_|experiment_config$|raw_experiment_config$)/.test(name)) {
      return ({ context }) => {
        this.session(context, "training");
        throw unavailable("the session has no run");
      };
    }
    return null;
  }

  /** Log a warning, once. */
  #warn(text) {
    if (this.#warned.has(text)) return;
    this.#warned.add(text);
    this.#log.say("warning", text);
  }

  #found(handle, type) {
    const future = this.#handles.get(handle, Future);
    if (future.type !== type) throw invalid(`a future of ${future.type}, not of ${type}`);
    return future;
  }

  #taken(handle, type) {
    this.#found(handle, type);
    return this.#handles.remove(handle, Future).value;
  }

  /** Return the handle of a future of what `ask` returns. */
  #bring(type, ask) {
    if (this.#handles.count(Future) >= this.#limits.futures) throw unavailable(`${this.#limits.futures} futures are live`);
    const future = new Future(type, null);
    const handle = this.#handles.insert(future);
    try {
      future.value = ask();
    } catch (error) {
      this.#handles.remove(handle, Future); // which the guest never gets: its number is used up
      throw error;
    }
    return handle;
  }

  #open(kind, { name, shape, branches, policy }) {
    this.#handles.requireRoom();
    const acting = kind === "training" ? new RunPolicy(policy, branches) : policy;
    const [numFeatures, numActions] = shape;
    const session = { kind, name, key: this.#key++, numFeatures, numActions, branches, policy: acting, limits: this.#limits };
    return this.#handles.insert(new Session(session));
  }

  #close(handle, kind) {
    this.session(handle, kind);
    this.#handles.remove(handle, Session).close();
  }

  #noBrains(name) {
    if (name !== "create_runtime") throw notFound("a page has no runtimes of ark-ml-inference-v0");
    this.#log.say("warning", "a runtime was not created: a page has none of ark-ml-inference-v0");
    return 0;
  }

  #requireHive() {
    if (!this.#trains) throw unavailable("a page trains nothing, like a host without a hive");
  }

  #requireOther(args, isFound = false) {
    requireAddress(args);
    this.#requireName(args.run_id);
    this.#requireHive();
    if (isFound) throw notFound(`a page has no run ${args.run_id}`);
  }

  #requireName(text = "") {
    const size = new TextEncoder().encode(text).length;
    if (size > this.#limits.name) throw invalid(`a name of ${size} bytes, it may have ${this.#limits.name}`);
  }
}

function requireAddress({ hive_url: url, hive_port: port }) {
  if ([...url].length > 2_048) throw invalid(`the address of a hive has ${url.length} characters`);
  if (port > LAST_PORT) throw invalid(`port ${port} of a hive is above ${LAST_PORT}`);
}

/** Return the settings in the configuration of a run, which has to be JSON. */
function settingsOf(text = "") {
  if (text === "") return {};
  try {
    return JSON.parse(text) ?? {};
  } catch {
    throw invalid("the configuration is not JSON");
  }
}
