// WASI of guests in a page: a clock, random numbers and a console; no files.

const SUCCESS = 0;
const BADF = 8;
const FAULT = 21;
const INVAL = 28;
const SPIPE = 70;
const PIECE = 1 << 20; // bytes of one draw of random numbers
const MOST_ITEMS = 1_024; // subscriptions, and buffers of a call
const MOST_BYTES = 1 << 20; // of one write
const LAST_TIME = (1n << 63n) - 1n;

/** Return the functions of `wasi_snapshot_preview1`; `print(fd, bytes)` takes what is written. */
export function wasiFunctions({ memory, world, print, exit }) {
  const guarded = (work) => (...args) => {
    try {
      return work(...args.map((each) => (typeof each === "number" ? each >>> 0 : each)));
    } catch (error) {
      if (error?.code === "INVALID_ARGUMENTS") return FAULT;
      throw error;
    }
  };
  const none = (counts, sizes) => {
    memory.writeU32(counts, 0);
    memory.writeU32(sizes, 0);
    return SUCCESS;
  };
  const write64 = (pointer, value) => {
    memory.check(pointer, 8);
    memory.view.setBigUint64(pointer, value, true);
    return SUCCESS;
  };
  const buffers = (list, count) => {
    memory.check(list, 8 * count);
    const { view } = memory;
    const found = [...Array(count).keys()].map((at) => [view.getUint32(list + 8 * at, true), view.getUint32(list + 8 * at + 4, true)]);
    for (const [start, size] of found) memory.check(start, size);
    let left = MOST_BYTES;
    return found.map(([start, size]) => {
      const kept = Math.min(size, left);
      left -= kept;
      return [start, kept];
    });
  };
  const isStream = (fd) => fd <= 2;
  const calls = {
    args_sizes_get: none,
    args_get: () => SUCCESS,
    environ_sizes_get: none,
    environ_get: () => SUCCESS,
    clock_res_get: (clock, to) => (clock > 1 ? BADF : write64(to, 1n)),
    clock_time_get: (clock, _, to) => (clock > 1 ? BADF : write64(to, world.now > LAST_TIME ? LAST_TIME : world.now)),
    random_get: (to, size) => {
      memory.check(to, size);
      for (let at = 0; at === 0 || at < size; at += PIECE) {
        memory.write(to + at, world.random(Math.min(PIECE, size - at)));
      }
      return SUCCESS;
    },
    sched_yield: () => SUCCESS,
    proc_exit: (status) => exit(status),
    fd_write: (fd, list, count, to) => {
      if (fd !== 1 && fd !== 2) return BADF;
      if (count > MOST_ITEMS) return FAULT;
      const parts = buffers(list, count).map(([start, size]) => memory.read(start, size));
      const data = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
      parts.reduce((at, part) => (data.set(part, at), at + part.length), 0);
      memory.writeU32(to, data.length);
      print(fd, data);
      return SUCCESS;
    },
    fd_read: (fd, list, count, to) => {
      if (fd !== 0) return BADF;
      if (count > MOST_ITEMS) return FAULT;
      buffers(list, count);
      memory.writeU32(to, 0); // the end of an empty input
      return SUCCESS;
    },
    fd_fdstat_get: (fd, to) => {
      if (!isStream(fd)) return BADF;
      const stat = new Uint8Array(24);
      stat[0] = 0; // of an unknown type, as a stream of the host
      new DataView(stat.buffer).setBigUint64(8, fd === 0 ? 2n : 64n, true); // rights to read, to write
      memory.write(to, stat);
      return SUCCESS;
    },
    fd_seek: (fd) => (isStream(fd) ? SPIPE : BADF),
    fd_tell: (fd) => (isStream(fd) ? SPIPE : BADF),
    fd_close: (fd) => (isStream(fd) ? SUCCESS : BADF),
    poll_oneoff: (subscriptions, events, count, to) => poll({ memory, world }, subscriptions, events, count, to),
  };
  return new Proxy(calls, {
    get: (known, name) => guarded(known[name] ?? (() => BADF)), // descriptors of files: there are none
  });
}

/** Wait until one of the subscriptions has an event, which is at once: a clock jumps. */
function poll({ memory, world }, subscriptions, events, count, to) {
  if (count === 0 || count > MOST_ITEMS) return INVAL;
  memory.check(subscriptions, 48 * count);
  memory.check(events, 32 * count);
  memory.check(to, 4);
  const { view } = memory;
  const wanted = [];
  for (let at = subscriptions; at < subscriptions + 48 * count; at += 48) {
    const tag = view.getUint8(at + 8);
    const clock = view.getUint32(at + 16, true);
    if (tag > 2 || (tag === 0 && clock > 1)) return INVAL;
    const timeout = view.getBigUint64(at + 24, true);
    const isAbsolute = (view.getUint16(at + 40, true) & 1) !== 0;
    const rest = isAbsolute ? timeout - world.now : timeout;
    const due = tag === 0 ? world.now + (rest > 0n ? rest : 0n) : world.now;
    wanted.push({ user: view.getBigUint64(at, true), tag, due });
  }
  const isReady = wanted.some(({ tag }) => tag !== 0); // streams never wait: the input is at its end
  if (!isReady) world.wait(wanted.reduce((least, { due }) => (due < least ? due : least), wanted[0].due));
  const happened = wanted.filter(({ tag, due }) => tag !== 0 || due <= world.now);
  happened.forEach(({ user, tag }, index) => {
    const at = events + 32 * index;
    memory.bytes.fill(0, at, at + 32);
    view.setBigUint64(at, user, true);
    view.setUint8(at + 10, tag);
    view.setBigUint64(at + 16, 1n, true);
  });
  view.setUint32(to, happened.length, true);
  return SUCCESS;
}
