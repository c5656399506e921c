// A guest in AssemblyScript that learns: all but its game.
//
// A game extends Agent, and calls `play` with its Game. This file starts the run, pushes the rows of
// all agents, submits, applies the answers and begins new episodes. Until the run has begun, the
// game stands still. Without a hive it is played with a policy that answers zeros, unless the host
// puts another in its place: `arkml run GUEST --policy FILE`.
//
// Random numbers depend on the seed and the agent's id only, so that an episode does not depend on
// the number of agents.

import * as core from "./core_v3";
import { ACTIONS, FEATURES, MODEL } from "./idle_policy";
import * as ml from "./ml_v1";
import * as ml_v3 from "./ml_v3";
import { EpisodeState, ErrorCode, LogLevel, PollSimple, SnapshotFormat } from "./types";

// Id of the API that this guest needs; the host reads it before it starts the guest.
export const ARK_API_ML: usize = memory.data<u64>([ml_v3.ID]);

const SCORES: i32 = 100; // episodes in a mean, and from one report in the log to the next
const MAX_AGENTS: u32 = 65_536; // rows of a submit
const LONGEST_RUN: u64 = 24 * 60 * 60; // seconds

const enum Mode {
  WAITING,
  TRAINING,
  PLAYING,
}

/** What all agents share. */
export class Game {
  constructor(
    /** Of the run. */
    public name: string,
    /** Width of a row. */
    public features: i32,
    /** Width of an answer. */
    public actions: i32,
    public agents: i32,
    /** Steps after which an episode is interrupted. */
    public episode: i32,
    /** JSON; the object under "arkml" is for the hive. */
    public configuration: string = "{}",
  ) {}
}

/** One agent in its episode. */
export abstract class Agent {
  id: u64 = 0;
  state: EpisodeState = EpisodeState.INITIAL;
  steps: i32 = 0;
  reward: f32 = 0;
  total: f64 = 0;
  private random: u64 = 0;

  /** Begin an episode. */
  abstract place(): void;
  /** Write the features of a row. */
  abstract observe(features: StaticArray<f32>): void;
  /** Move by the answer to the row, and set `reward`. Returns true at the end of the episode. */
  abstract move(actions: StaticArray<f32>): bool;

  /** Return a random number, uniform in [-1, 1). */
  randomNumber(): f64 {
    this.random += 0x9e3779b97f4a7c15;
    let z = this.random;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return <f64>((z ^ (z >> 31)) >> 11) * (1.0 / 4503599627370496.0) - 1.0;
  }

  begin(id: u64, seed: u64): void {
    this.id = id;
    this.random = (seed << 32) ^ (id * 0xd1342543de82ef95);
    this.place();
  }

  get isOver(): bool {
    return this.state == EpisodeState.TERMINAL || this.state == EpisodeState.INTERRUPTED;
  }
}

/** Return an action, clamped to [-1, 1]. */
export function within(action: f32): f64 {
  return action > -1 ? (action < 1 ? <f64>action : 1) : -1;
}

/** Write a line to the log of the host. */
export function log(level: LogLevel, text: string): void {
  const bytes = String.UTF8.encode(text);
  core.log(level, changetype<usize>(bytes), bytes.byteLength);
}

let game: Game = new Game("", 0, 0, 0, 0);
let make: () => Agent = (): Agent => unreachable();
let agents: Agent[] = [];
let features = new StaticArray<f32>(0);
let taken = new StaticArray<f32>(0); // the actions of one agent
let actions = new StaticArray<f32>(0);
let values = new StaticArray<f32>(0);
let current = Mode.WAITING;
let seed: u64 = 0;
let nextId: u64 = 1;
let frameCount: u32 = 0;
let episodeCount: u32 = 0;
let failure: u32 = 0;
const scores = new StaticArray<f64>(SCORES);
const starting = new StaticArray<u64>(1);
const session = new StaticArray<u64>(1);
const poll = new StaticArray<u8>(<i32>PollSimple.SIZE);

/** Name the game and the function that makes an agent of it. */
export function play(wanted: Game, factory: () => Agent): void {
  game = wanted;
  make = factory;
}

function spawn(): Agent {
  const agent = make();
  agent.begin(nextId++, seed);
  return agent;
}

function fail(what: string, code: u32): void {
  failure = code;
  log(LogLevel.ERROR, `${what} answered ${code}: the game stands still`);
}

function writeWidth(model: StaticArray<u8>, places: StaticArray<i32>, width: u32): void {
  store<u32>(changetype<usize>(model) + places[0], width);
  model[places[1]] = <u8>(width | 0x80); // a varint of three bytes: a row has at most 65,536
  model[places[1] + 1] = <u8>((width >> 7) | 0x80);
  model[places[1] + 2] = <u8>((width >> 14) & 0x7f);
}

// Without a run the game is played with zeros, or with the host's policy.
function playWithoutRun(): void {
  writeWidth(MODEL, FEATURES, game.features);
  writeWidth(MODEL, ACTIONS, game.actions);
  const code = ml.start_inference(
    game.features, game.actions, changetype<usize>(MODEL), MODEL.length, SnapshotFormat.ONNX,
    changetype<usize>(session),
  );
  current = Mode.PLAYING;
  if (code != ErrorCode.SUCCESS) fail("start_inference", code);
}

function start(): void {
  const hive = String.UTF8.encode("localhost"), name = String.UTF8.encode(game.name);
  const configuration = String.UTF8.encode(game.configuration);
  const named = changetype<usize>(name);
  const code = ml_v3.start_training(
    changetype<usize>(hive), hive.byteLength, 12356, named, name.byteLength, named, name.byteLength,
    game.features, game.actions, 0, changetype<usize>(configuration), configuration.byteLength,
    0, 0, LONGEST_RUN, changetype<usize>(starting),
  );
  if (code == ErrorCode.UNAVAILABLE || code == ErrorCode.API_NOT_AVAILABLE) {
    log(LogLevel.INFO, `start_training answered ${code}: playing`);
    playWithoutRun();
  } else if (code != ErrorCode.SUCCESS) {
    fail("start_training", code);
  }
}

// Check whether the run has started; if its start failed, play without it.
function awaitTraining(): void {
  let code = ml.poll_future_training_handle(starting[0], changetype<usize>(poll));
  if (code == ErrorCode.SUCCESS) {
    if (!poll[0]) return;
    code = ml.take_future_training_handle(starting[0], changetype<usize>(session));
  }
  if (code == ErrorCode.SUCCESS) {
    current = Mode.TRAINING;
  } else {
    log(LogLevel.WARN, `the run answered ${code}: playing`);
    playWithoutRun();
  }
}

function push(agent: Agent): ErrorCode {
  agent.observe(features);
  const row = changetype<usize>(features), width = game.features;
  return current == Mode.TRAINING
    ? ml.push_training_observation(
      session[0], agent.id, agent.state, agent.reward, row, width, 0, 0, 1,
    )
    : ml.push_inference_observation(
      session[0], agent.id, agent.state, agent.reward, row, width, 1,
    );
}

function answer(): bool {
  for (let i = 0; i < agents.length; i++) {
    const code = push(agents[i]);
    if (code != ErrorCode.SUCCESS) {
      fail("pushing an observation", code);
      return false;
    }
  }
  const room = changetype<usize>(actions), valued = changetype<usize>(values);
  const code = current == Mode.TRAINING
    ? ml.submit_training_observations(session[0], room, actions.length, valued, values.length)
    : ml.submit_inference_observations(session[0], room, actions.length, valued, values.length);
  if (code != ErrorCode.SUCCESS) fail("submitting observations", code);
  return code == ErrorCode.SUCCESS;
}

function step(agent: Agent, place: i32): void {
  const width = game.actions;
  for (let i = 0; i < width; i++) taken[i] = actions[place * width + i];
  const hasEnded = agent.move(taken);
  agent.total += <f64>agent.reward;
  agent.steps++;
  agent.state = hasEnded
    ? EpisodeState.TERMINAL
    : agent.steps >= game.episode ? EpisodeState.INTERRUPTED : EpisodeState.RUNNING;
}

export function arkml_seed(given: u64): void {
  seed = given & 0xffffffff;
}

/** Start over with `count` agents. May be called at any time, also before `ark_initialize`. */
export function configure(count: u32, wantedSeed: u32): u32 {
  if (count == 0 || count > MAX_AGENTS) return ErrorCode.INVALID_ARGUMENTS;
  seed = wantedSeed;
  frameCount = episodeCount = 0;
  features = new StaticArray<f32>(game.features);
  taken = new StaticArray<f32>(game.actions);
  actions = new StaticArray<f32>(count * game.actions);
  values = new StaticArray<f32>(count);
  agents = [];
  for (let i: u32 = 0; i < count; i++) agents.push(spawn());
  return ErrorCode.SUCCESS;
}

export function ark_initialize(): void {
  if (agents.length == 0) configure(game.agents, <u32>seed);
  start();
}

export function ark_applet_update(): void {
  if (failure == 0 && current == Mode.WAITING) awaitTraining();
  if (failure != 0 || current == Mode.WAITING) return;
  if (!answer()) return;
  const before = episodeCount / SCORES;
  frameCount++;
  for (let i = 0; i < agents.length; i++) {
    const agent = agents[i];
    if (agent.isOver) {
      scores[episodeCount++ % SCORES] = agent.total;
      agents[i] = spawn();
    } else {
      step(agent, i);
    }
  }
  if (before != episodeCount / SCORES) {
    const mean = Math.round(100 * mean_return()) / 100;
    log(LogLevel.INFO, `frame ${frameCount}: ${episodeCount} episodes, mean return ${mean}`);
  }
}

/** Return the mean return of the last hundred episodes. */
export function mean_return(): f32 {
  const count = min<i32>(episodeCount, SCORES);
  let sum: f64 = 0;
  for (let i = 0; i < count; i++) sum += scores[i];
  return count == 0 ? 0 : <f32>(sum / count);
}

/** Return 0, or the code of the import that failed. */
export function status(): u32 {
  return failure;
}

/** Return 0 while the run starts, 1 while it trains, 2 without a run. */
export function mode(): u32 {
  return current;
}

export function frames(): u32 {
  return frameCount;
}

export function episodes(): u32 {
  return episodeCount;
}
