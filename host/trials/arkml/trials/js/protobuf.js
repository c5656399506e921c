// Encoding and decoding of proto3 messages by tables of their fields, for modules that
// `arkml trials generate` writes. Numbers of 64 bits are numbers where these are exact, and
// BigInt beyond; both may be encoded.

import { DEEPEST, KEYS, Reader, SCALARS, shown, Writer } from "./protobuf_wire.js";

const FIELDS = Symbol("fields");

/** The base class of all messages. */
export class MessageBase {
  constructor(properties) {
    for (const field of this.constructor[FIELDS]) {
      if (field.label === "repeated") this[field.name] = [];
      else if (field.label === "map") this[field.name] = Object.create(null);
    }
    for (const [name, value] of Object.entries(properties ?? {})) {
      if (value !== undefined && value !== null) this[name] = value;
    }
  }
}

/** Return the class of a message; `fields` adds its fields. */
export function message(fullName) {
  const Message = class extends MessageBase {
    /** Return a message with the fields of an object. */
    static create(properties) {
      return new Message(properties);
    }

    /** Encode a message, or an object with its fields; `finish()` of the result has the bytes. */
    static encode(object, writer = new Writer()) {
      writeMessage(Message, object, writer);
      return writer;
    }

    /** Return the message that is encoded in a Uint8Array. */
    static decode(bytes) {
      if (!(bytes instanceof Uint8Array)) {
        throw new TypeError(`expected a Uint8Array, got ${shown(bytes)}`);
      }
      return readMessage(new Message(), new Reader(bytes));
    }

    /** Return the type as `google.protobuf.Any` names it. */
    static getTypeUrl() {
      return `type.googleapis.com/${fullName}`;
    }
  };
  Object.defineProperty(Message, "name", { value: fullName.split(".").at(-1) });
  Message[FIELDS] = [];
  return Message;
}

/**
 * Give a message its fields. Each row is [number, name, type, label, extra]: the type is a
 * scalar's name or a message's class. The labels are "" (always there), "present" (may be
 * missing), "oneof" with its name, "repeated", "unpacked" and "map" with the type of its keys.
 */
export function fields(Message, rows) {
  const byNumber = new Map();
  for (const [number, name, type, label = "", extra] of rows) {
    const field = {
      number,
      name,
      label: label === "unpacked" ? "repeated" : label,
      isPacked: label === "repeated" && typeof type === "string" && SCALARS[type].wire !== 2,
      codec: typeof type === "string" ? SCALARS[type] : embedded(type),
      keyType: label === "map" ? extra : null,
      group: label === "oneof" ? extra : null,
      others: [],
      path: `${Message.getTypeUrl().split("/")[1]}.${name}`,
    };
    Message[FIELDS].push(field);
    byNumber.set(number, field);
    if (label === "") Message.prototype[name] = field.codec.zero;
    else if (label === "present" || label === "oneof") Message.prototype[name] = null;
  }
  Message[FIELDS].byNumber = byNumber;
  const groups = new Set(Message[FIELDS].map((field) => field.group).filter(Boolean));
  for (const group of groups) addGroup(Message, group);
}

/** Return an enumeration: numbers by names, and names by numbers. */
export function enumeration(values) {
  const names = {};
  for (const [name, number] of Object.entries(values)) names[number] ??= name;
  return Object.freeze(Object.assign(Object.create(Object.freeze(names)), values));
}

function addGroup(Message, group) {
  const members = Message[FIELDS].filter((field) => field.group === group);
  for (const field of members) field.others = members.filter((other) => other !== field);
  Object.defineProperty(Message.prototype, group, {
    get() {
      return members.find((field) => this[field.name] !== null)?.name;
    },
  });
}

function embedded(Message) {
  return {
    wire: 2,
    zero: null,
    read: (reader, present = null) => {
      const outer = reader.end;
      reader.end = reader.limit();
      reader.deeper();
      const value = readMessage(present ?? new Message(), reader);
      reader.depth -= 1;
      reader.end = outer;
      return value;
    },
    write: (writer, value) => {
      writer.depth += 1;
      if (writer.depth > DEEPEST) {
        throw new RangeError(`messages are nested deeper than ${DEEPEST}`);
      }
      writer.delimited(() => writeMessage(Message, value, writer));
      writer.depth -= 1;
    },
    blank: () => new Message(),
  };
}

// Decoding

function readMessage(target, reader) {
  const { byNumber } = target.constructor[FIELDS];
  while (reader.at < reader.end) {
    const [number, wire] = reader.tag();
    const field = byNumber.get(number);
    if (field === undefined) reader.skip(wire, number);
    else if (field.label === "map" && wire === 2) readEntry(target[field.name], field, reader);
    else if (field.label === "map") reader.skip(wire, number);
    else if (wire === field.codec.wire) readValue(target, field, reader);
    else if (wire === 2 && field.label === "repeated") readPacked(target[field.name], field, reader);
    else reader.skip(wire, number);
  }
  return target;
}

function readValue(target, field, reader) {
  if (field.label === "repeated") {
    target[field.name].push(field.codec.read(reader));
    return;
  }
  const value = field.codec.read(reader, target[field.name]); // messages are merged
  for (const other of field.others) delete target[other.name];
  target[field.name] = value;
}

function readPacked(values, field, reader) {
  const outer = reader.end;
  reader.end = reader.limit();
  while (reader.at < reader.end) values.push(field.codec.read(reader));
  reader.end = outer;
}

function readEntry(target, field, reader) {
  const keys = SCALARS[field.keyType];
  const outer = reader.end;
  reader.end = reader.limit();
  let key = keys.zero;
  let value = field.codec.blank?.() ?? field.codec.zero;
  while (reader.at < reader.end) {
    const [number, wire] = reader.tag();
    if (number === 1 && wire === keys.wire) key = keys.read(reader);
    else if (number === 2 && wire === field.codec.wire) value = field.codec.read(reader, value);
    else reader.skip(wire, number);
  }
  reader.end = outer;
  target[String(key)] = value;
}

// Encoding

function writeMessage(Message, object, writer) {
  if (typeof object !== "object" || object === null) {
    throw new TypeError(`expected a message of ${Message.getTypeUrl()}, got ${shown(object)}`);
  }
  for (const field of Message[FIELDS]) {
    const value = object[field.name];
    if (value === undefined || value === null) continue;
    try {
      writeField(field, object, value, writer);
    } catch (error) {
      if (error instanceof FieldError) throw error;
      throw new FieldError(`${field.path}: ${error.message}`, { cause: error });
    }
  }
}

/** The error of a value that its field cannot hold. */
class FieldError extends TypeError {}

function writeField(field, object, value, writer) {
  if (field.label === "map") {
    for (const [key, item] of Object.entries(value)) writeEntry(field, key, item, writer);
  } else if (field.label === "repeated") {
    if (!Array.isArray(value) && !ArrayBuffer.isView(value)) {
      throw new TypeError(`expected an array, got ${shown(value)}`);
    }
    writeRepeated(field, value, writer);
  } else if (field.label !== "" || !isZero(value, field.codec.zero)) {
    for (const other of field.others) {
      if ((object[other.name] ?? null) !== null) {
        throw new TypeError(`${other.name} is set, too, of the oneof ${field.group}`);
      }
    }
    writeTagged(field.number, field.codec, value, writer);
  }
}

function writeRepeated(field, values, writer) {
  if (!field.isPacked) {
    for (const value of values) writeTagged(field.number, field.codec, value, writer);
  } else if (values.length > 0) {
    writeTag(field.number, 2, writer);
    writer.delimited(() => {
      for (const value of values) field.codec.write(writer, value);
    });
  }
}

function writeEntry(field, key, value, writer) {
  writeTag(field.number, 2, writer);
  writer.delimited(() => {
    writeTagged(1, SCALARS[field.keyType], KEYS[field.keyType](key), writer);
    writeTagged(2, field.codec, value, writer);
  });
}

function writeTagged(number, codec, value, writer) {
  writeTag(number, codec.wire, writer);
  codec.write(writer, value);
}

function writeTag(number, wire, writer) {
  writer.varint(((number << 3) | wire) >>> 0);
}

function isZero(value, zero) {
  if (typeof value === "number") return Object.is(value, zero);
  if (typeof value === "bigint") return value === 0n;
  if (value instanceof Uint8Array && zero instanceof Uint8Array) return value.length === 0;
  return value === zero;
}
