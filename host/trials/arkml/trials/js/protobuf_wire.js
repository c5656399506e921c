// The bytes of proto3 messages: how numbers, texts and lengths are read and written.

export const DEEPEST = 100; // messages within messages, as in other implementations
const TWO_TO_32 = 4294967296;

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();

/** The bytes of a message, or of a part of one, as they are read. */
export class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
    this.end = bytes.length;
    this.depth = 0;
    this.low = 0; // the last varint, as two halves without sign
    this.high = 0;
  }

  /** Read a varint into `low` and `high`. */
  varint() {
    let low = 0;
    let high = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      if (this.at >= this.end) throw new RangeError("the message ends within a number");
      const byte = this.bytes[this.at++];
      const bits = byte & 0x7f;
      if (shift < 32) low |= bits << shift;
      if (shift > 28) high |= bits << (shift - 32);
      else if (shift === 28) high |= bits >>> 4;
      if (byte < 0x80) {
        this.low = low >>> 0;
        this.high = high >>> 0;
        return;
      }
    }
    throw new RangeError("a number of the message has more than 10 bytes");
  }

  /** Skip `count` bytes, and return the position before them. */
  take(count) {
    const start = this.at;
    if (count > this.end - start) throw new RangeError("the message ends within a field");
    this.at += count;
    return start;
  }

  /** Read a length, and return the position after as many bytes. */
  limit() {
    this.varint();
    const length = this.high * TWO_TO_32 + this.low;
    if (length > this.end - this.at) throw new RangeError("the message ends within a field");
    return this.at + length;
  }

  /** Skip the value of a field that is not known. */
  skip(wire, number) {
    if (wire === 0) this.varint();
    else if (wire === 1) this.take(8);
    else if (wire === 2) this.at = this.limit();
    else if (wire === 5) this.take(4);
    else if (wire === 3) this.skipGroup(number);
    else throw new RangeError(`a field of the message has the unknown wire type ${wire}`);
  }

  skipGroup(number) {
    this.deeper();
    for (;;) {
      const [inner, wire] = this.tag();
      if (wire === 4) {
        if (inner !== number) throw new RangeError("a group of the message ends as another one");
        break;
      }
      this.skip(wire, inner);
    }
    this.depth -= 1;
  }

  /** Read the number and the wire type of the next field. */
  tag() {
    this.varint();
    const number = this.low >>> 3;
    if (number === 0 || this.high !== 0) throw new RangeError("a field has an illegal number");
    return [number, this.low & 7];
  }

  deeper() {
    this.depth += 1;
    if (this.depth > DEEPEST) throw new RangeError(`messages are nested deeper than ${DEEPEST}`);
  }
}

/** The bytes of a message that is being encoded; `finish` returns them. */
export class Writer {
  constructor() {
    this.bytes = new Uint8Array(128);
    this.view = new DataView(this.bytes.buffer);
    this.at = 0;
    this.depth = 0;
  }

  /** Make room for `count` bytes, and return their position. */
  room(count) {
    const start = this.at;
    this.at += count;
    if (this.at > this.bytes.length) {
      const larger = new Uint8Array(Math.max(this.at, 2 * this.bytes.length));
      larger.set(this.bytes);
      this.bytes = larger;
      this.view = new DataView(larger.buffer);
    }
    return start;
  }

  /** Write a varint that is given as two halves without sign. */
  varint(low, high = 0) {
    let at = this.room(1); // before `bytes`, which it may replace
    while (high !== 0 || low > 0x7f) {
      this.bytes[at] = (low & 0x7f) | 0x80;
      low = ((low >>> 7) | (high << 25)) >>> 0;
      high >>>= 7;
      at = this.room(1);
    }
    this.bytes[at] = low;
  }

  /** Write what `write` writes, after its length. */
  delimited(write) {
    const start = this.room(1);
    write();
    const length = this.at - start - 1;
    let more = 0; // bytes of the length beyond the first one
    for (let rest = length; rest > 0x7f; rest = Math.floor(rest / 128)) more += 1;
    const from = start + 1;
    this.room(more);
    this.bytes.copyWithin(from + more, from, from + length);
    const end = this.at;
    this.at = start;
    this.varint(length);
    this.at = end;
  }

  finish() {
    return this.bytes.slice(0, this.at);
  }
}

function exact(low, high, isSigned) {
  const number = (isSigned ? high | 0 : high) * TWO_TO_32 + low;
  if (Number.isSafeInteger(number)) return number;
  const whole = (BigInt(high) << 32n) | BigInt(low);
  return isSigned ? BigInt.asIntN(64, whole) : whole;
}

export function shown(value) {
  return typeof value === "string" ? JSON.stringify(value) : String(value);
}

function integer(value, least, most) {
  if (typeof value === "bigint" && value >= least && value <= most) return Number(value);
  if (!Number.isInteger(value) || value < least || value > most) {
    throw new TypeError(`expected an integer from ${least} to ${most}, got ${shown(value)}`);
  }
  return value;
}

/** Return an integer of 64 bits as a BigInt. */
function wide(value, least, most) {
  const isExact = typeof value === "bigint" || Number.isSafeInteger(value);
  const whole = isExact ? BigInt(value) : null;
  if (whole === null || whole < least || whole > most) {
    throw new TypeError(
      `expected an exact integer from ${least} to ${most}, got ${shown(value)}`,
    );
  }
  return whole;
}

const INT32 = [-2147483648, 2147483647];
const UINT32 = [0, 4294967295];
const INT64 = [-(1n << 63n), (1n << 63n) - 1n];
const UINT64 = [0n, (1n << 64n) - 1n];

function writeWide(writer, whole) {
  const bits = BigInt.asUintN(64, whole);
  writer.varint(Number(bits & 0xffffffffn), Number(bits >> 32n));
}

function number32(value) {
  if (typeof value !== "number") throw new TypeError(`expected a number, got ${shown(value)}`);
  return value;
}

/** The scalar types: their wire type, their value where it is not set, and both directions. */
export const SCALARS = {
  double: {
    wire: 1,
    zero: 0,
    read: (reader) => reader.view.getFloat64(reader.take(8), true),
    write: (writer, value) => {
      const at = writer.room(8);
      writer.view.setFloat64(at, number32(value), true);
    },
  },
  float: {
    wire: 5,
    zero: 0,
    read: (reader) => reader.view.getFloat32(reader.take(4), true),
    write: (writer, value) => {
      const at = writer.room(4);
      writer.view.setFloat32(at, number32(value), true);
    },
  },
  int32: {
    wire: 0,
    zero: 0,
    read: (reader) => (reader.varint(), reader.low | 0),
    write: (writer, value) => {
      const whole = integer(value, ...INT32);
      writer.varint(whole >>> 0, whole < 0 ? 0xffffffff : 0);
    },
  },
  uint32: {
    wire: 0,
    zero: 0,
    read: (reader) => (reader.varint(), reader.low),
    write: (writer, value) => writer.varint(integer(value, ...UINT32)),
  },
  sint32: {
    wire: 0,
    zero: 0,
    read: (reader) => (reader.varint(), (reader.low >>> 1) ^ -(reader.low & 1)),
    write: (writer, value) => {
      const whole = integer(value, ...INT32);
      writer.varint(((whole << 1) ^ (whole >> 31)) >>> 0);
    },
  },
  fixed32: {
    wire: 5,
    zero: 0,
    read: (reader) => reader.view.getUint32(reader.take(4), true),
    write: (writer, value) => {
      const at = writer.room(4);
      writer.view.setUint32(at, integer(value, ...UINT32), true);
    },
  },
  sfixed32: {
    wire: 5,
    zero: 0,
    read: (reader) => reader.view.getInt32(reader.take(4), true),
    write: (writer, value) => {
      const at = writer.room(4);
      writer.view.setInt32(at, integer(value, ...INT32), true);
    },
  },
  int64: {
    wire: 0,
    zero: 0,
    read: (reader) => (reader.varint(), exact(reader.low, reader.high, true)),
    write: (writer, value) => writeWide(writer, wide(value, ...INT64)),
  },
  uint64: {
    wire: 0,
    zero: 0,
    read: (reader) => (reader.varint(), exact(reader.low, reader.high, false)),
    write: (writer, value) => writeWide(writer, wide(value, ...UINT64)),
  },
  sint64: {
    wire: 0,
    zero: 0,
    read: (reader) => {
      reader.varint();
      const mask = -(reader.low & 1);
      const low = (((reader.low >>> 1) | (reader.high << 31)) ^ mask) >>> 0;
      return exact(low, ((reader.high >>> 1) ^ mask) >>> 0, true);
    },
    write: (writer, value) => {
      const whole = wide(value, ...INT64);
      writeWide(writer, (whole << 1n) ^ (whole >> 63n));
    },
  },
  fixed64: {
    wire: 1,
    zero: 0,
    read: (reader) => {
      const at = reader.take(8);
      return exact(reader.view.getUint32(at, true), reader.view.getUint32(at + 4, true), false);
    },
    write: (writer, value) => {
      const whole = wide(value, ...UINT64);
      const at = writer.room(8);
      writer.view.setBigUint64(at, whole, true);
    },
  },
  sfixed64: {
    wire: 1,
    zero: 0,
    read: (reader) => {
      const at = reader.take(8);
      return exact(reader.view.getUint32(at, true), reader.view.getUint32(at + 4, true), true);
    },
    write: (writer, value) => {
      const whole = wide(value, ...INT64);
      const at = writer.room(8);
      writer.view.setBigInt64(at, whole, true);
    },
  },
  bool: {
    wire: 0,
    zero: false,
    read: (reader) => (reader.varint(), (reader.low | reader.high) !== 0),
    write: (writer, value) => {
      if (typeof value !== "boolean") {
        throw new TypeError(`expected true or false, got ${shown(value)}`);
      }
      writer.varint(value ? 1 : 0);
    },
  },
  string: {
    wire: 2,
    zero: "",
    read: (reader) => {
      const end = reader.limit();
      const text = utf8.decode(reader.bytes.subarray(reader.at, end));
      reader.at = end;
      return text;
    },
    write: (writer, value) => {
      if (typeof value !== "string") throw new TypeError(`expected a string, got ${shown(value)}`);
      const bytes = encoder.encode(value);
      writer.varint(bytes.length);
      const at = writer.room(bytes.length);
      writer.bytes.set(bytes, at);
    },
  },
  bytes: {
    wire: 2,
    zero: new Uint8Array(0),
    read: (reader) => {
      const end = reader.limit();
      const bytes = reader.bytes.slice(reader.at, end);
      reader.at = end;
      return bytes;
    },
    write: (writer, value) => {
      if (!(value instanceof Uint8Array)) {
        throw new TypeError(`expected a Uint8Array, got ${shown(value)}`);
      }
      writer.varint(value.length);
      const at = writer.room(value.length);
      writer.bytes.set(value, at);
    },
  },
};
SCALARS.enum = SCALARS.int32;

/** The keys of maps, which are strings in objects, by their type. */
export const KEYS = {
  string: (key) => key,
  bool: (key) => key === "true",
  int32: Number,
  uint32: Number,
  sint32: Number,
  fixed32: Number,
  sfixed32: Number,
  int64: BigInt,
  uint64: BigInt,
  sint64: BigInt,
  fixed64: BigInt,
  sfixed64: BigInt,
};
