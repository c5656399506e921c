// The functions that a guest imports, made of a table of the ABI and of handlers.

import { invalid, Refusal } from "./ark_memory.js";
import { after, ending } from "./later.js";

const MOST_ROWS = 0xff; // of an answer in bytes
const MOST_ACTIONS = 0xffff >> 2;

/** Return a function that reads a parameter, by what the table says of it. */
function readerOf({ kind, at, length, size, members, fields }, memory) {
  const long = (args) => BigInt.asUintN(64, args[at]);
  const readers = {
    u32: (args) => args[at] >>> 0,
    u64: long,
    i64: (args) => args[at],
    float: (args) => args[at],
    enum: (args) => {
      const name = members[args[at] >>> 0];
      if (name == null) throw invalid(`${args[at] >>> 0} is not a number of an enum`);
      return name;
    },
    text: (args) => memory.text(args[at] >>> 0, args[length] >>> 0),
    shown: (args) => {
      memory.check(args[at] >>> 0, args[length] >>> 0);
      return memory.bytes.subarray(args[at] >>> 0, (args[at] >>> 0) + (args[length] >>> 0));
    },
    bytes: (args) => memory.read(args[at] >>> 0, (args[length] >>> 0) * size),
    record: (args) => {
      memory.check(args[at] >>> 0, size);
      const view = memory.view;
      return Object.fromEntries(fields.map(([name, offset]) => [name, view.getUint32((args[at] >>> 0) + offset, true)]));
    },
    room: (args) => {
      const [pointer, wanted] = [args[at] >>> 0, (length === null ? 1 : args[length] >>> 0) * size];
      return (data) => {
        if (data.length !== wanted) throw invalid(`a buffer of ${wanted} bytes for ${data.length} bytes`);
        memory.write(pointer, data);
      };
    },
  };
  return readers[kind];
}

/** Return the bytes of a result, as its type in the table says. */
function bytesOf({ kind, size, fields }, value) {
  const data = new Uint8Array(size);
  const view = new DataView(data.buffer);
  const put = (type, at, one) => {
    if (type === "u64" || type === "i64") view.setBigUint64(at, BigInt.asUintN(64, one), true);
    else if (type === "u32") view.setUint32(at, one, true);
    else data[at] = Number(one);
  };
  if (kind === "record") for (const [name, at, type] of fields) put(type, at, value[name] ?? 0);
  else put(kind, 0, value);
  return data;
}

/**
 * The imports of one guest: `table` is that of its functions, `services` answer them.
 *
 * With `isSuspending` answers may be promises, for which the guest is suspended.
 */
export class ArkImports {
  #memory;
  #services;
  #codes;

  constructor(table, memory, services, isSuspending) {
    this.#memory = memory;
    this.#services = services;
    this.#codes = table.codes;
    this.modules = {};
    const lanes = { host: this.#host, log: this.#host, push: this.#push, submit: this.#submit, answer: this.#answer };
    for (const row of table.functions) {
      const work = lanes[row.lane].call(this, row);
      const call = (...args) => this.#answered(row, work, args);
      const waits = isSuspending && ["submit", "answer"].includes(row.lane);
      (this.modules[row.module] ??= {})[row.symbol] = waits ? new WebAssembly.Suspending(call) : call;
    }
  }

  /** Do the work of a call; what is refused becomes a code. */
  #answered(row, work, args) {
    const given = (value) => (row.outcome === "value" ? value : this.#codes.SUCCESS);
    try {
      const value = work(args);
      if (value instanceof Promise) return value.then(given, (error) => this.#refused(row, error));
      return given(value);
    } catch (error) {
      return this.#refused(row, error);
    }
  }

  #refused({ module, symbol, isSure }, error) {
    if (!(error instanceof Refusal)) throw error;
    if (isSure) return this.#codes.SUCCESS;
    this.#services.refused(`${module}.${symbol}`, error.code, error.message);
    return this.#codes[error.code];
  }

  #host(row) {
    const { module, handler, params, result, outcome, consumes } = row;
    const readers = params.map((param) => [param.name, readerOf(param, this.#memory)]);
    const handle = this.#services.handler(module, handler);
    const isVector = result?.kind === "vector";
    return (args) => {
      const size = result === null ? 0 : isVector ? 4 : result.size;
      const to = result === null ? 0 : args[args.length - 1] >>> 0;
      if (outcome !== "value" && !consumes) this.#memory.check(to, size);
      const value = handle(Object.fromEntries(readers.map(([name, read]) => [name, read(args)])));
      if (outcome === "value") return value;
      if (result === null) return undefined;
      this.#memory.check(to, size);
      if (isVector) {
        const data = typeof value === "string" ? new TextEncoder().encode(value) : value;
        this.#services.offer(data);
        this.#memory.writeU32(to, data.length);
      } else {
        this.#memory.write(to, bytesOf(result, value));
      }
      return undefined;
    };
  }

  #push(row) {
    const { kind, at, metadata } = row;
    const slice = (args, place) => [args[place] >>> 0, args[place + 1] >>> 0];
    return (args) => {
      const session = this.#services.session(BigInt.asUintN(64, args[0]), kind);
      session.push(this.#memory, {
        id: BigInt.asUintN(64, args[at.id]),
        state: args[at.state] >>> 0,
        reward: args[at.reward],
        features: slice(args, at.features),
        given: at.given === null ? null : slice(args, at.given),
        metadata: metadata && { pointer: args[at.metadata] >>> 0, length: args[at.metadata + 1] >>> 0, layout: metadata },
      });
    };
  }

  #submit({ kind }) {
    return (args) => {
      const session = this.#services.session(BigInt.asUintN(64, args[0]), kind);
      const [actions, actionCount, values, valueCount] = args.slice(1).map((each) => each >>> 0);
      const work = () => {
        const due = session.count * session.numActions;
        if (actionCount !== due) throw invalid(`room for ${actionCount} actions, the pushed rows need ${due}`);
        if (valueCount !== session.count) throw invalid(`room for ${valueCount} values, ${session.count} rows are pushed`);
        this.#memory.check(actions, 4 * actionCount);
        this.#memory.check(values, 4 * valueCount);
        if (session.count === 0) return undefined;
        return after(this.#services.answer(session), () => {
          const bytes = (floats, count) => new Uint8Array(floats.buffer, 0, 4 * count);
          this.#memory.write(actions, bytes(session.actions, actionCount));
          this.#memory.write(values, bytes(session.values, valueCount));
        });
      };
      return ending(work, () => session.clear());
    };
  }

  #answer({ kind }) {
    return (args) => {
      const session = this.#services.session(BigInt.asUintN(64, args[0]), kind);
      const to = args[1] >>> 0;
      const work = () => {
        this.#memory.check(to, 4);
        const { count, numActions } = session;
        if (count > MOST_ROWS) throw invalid(`${count} rows in one submit of ml-v5, the limit is ${MOST_ROWS}`);
        if (numActions > MOST_ACTIONS) throw invalid(`${numActions} actions for a row of ml-v5, the limit is ${MOST_ACTIONS}`);
        return after(count > 0 ? this.#services.answer(session) : undefined, () => {
          const data = answerBytes(session);
          this.#services.offer(data);
          this.#memory.writeU32(to, data.length);
        });
      };
      return ending(work, () => session.clear());
    };
  }
}

/** Return the answer to a submit as bytes: a header, and for each row id, a mark and its actions. */
function answerBytes({ count, numActions, ids, states, actions }) {
  const data = new Uint8Array(4 + count * (9 + 4 * numActions));
  const view = new DataView(data.buffer);
  data[1] = count;
  view.setUint16(2, numActions, true);
  let at = 4;
  for (let row = 0; row < count; row += 1) {
    const hasEnded = states[row] === 1 || states[row] === 2;
    view.setBigUint64(at, ids[row], true);
    data[at + 8] = hasEnded ? 0 : 1;
    at += 9;
    for (let action = 0; !hasEnded && action < numActions; action += 1, at += 4) {
      view.setFloat32(at, actions[row * numActions + action], true);
    }
  }
  return data.slice(0, at);
}
