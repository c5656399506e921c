// The bytes of proto3 messages, which `protobuf.js` reads and writes; programs need none of it.

export const DEEPEST: number;

/** The bytes of a message, or of a part of one, as they are read. */
export class Reader {
  constructor(bytes: Uint8Array);
  bytes: Uint8Array;
  view: DataView;
  at: number;
  end: number;
  depth: number;
  low: number;
  high: number;
  /** Read a varint into `low` and `high`. */
  varint(): void;
  /** Skip `count` bytes, and return the position before them. */
  take(count: number): number;
  /** Read a length, and return the position after as many bytes. */
  limit(): number;
  /** Skip the value of a field that is not known. */
  skip(wire: number, number: number): void;
  skipGroup(number: number): void;
  /** Read the number and the wire type of the next field. */
  tag(): [number, number];
  deeper(): void;
}

/** The bytes of a message that is being encoded; `finish` returns them. */
export class Writer {
  bytes: Uint8Array;
  view: DataView;
  at: number;
  depth: number;
  /** Make room for `count` bytes, and return their position. */
  room(count: number): number;
  /** Write a varint that is given as two halves without sign. */
  varint(low: number, high?: number): void;
  /** Write what `write` writes, after its length. */
  delimited(write: () => void): void;
  finish(): Uint8Array;
}

export function shown(value: unknown): string;

/** A scalar type: its wire type, its value where it is not set, and both directions. */
export interface Scalar<T, G = T> {
  wire: number;
  zero: T;
  read(reader: Reader): T;
  write(writer: Writer, value: G): void;
}

/** The scalar types by their names in .proto files, and `enum`. */
export const SCALARS: {
  double: Scalar<number>;
  float: Scalar<number>;
  int32: Scalar<number, number | bigint>;
  uint32: Scalar<number, number | bigint>;
  sint32: Scalar<number, number | bigint>;
  fixed32: Scalar<number, number | bigint>;
  sfixed32: Scalar<number, number | bigint>;
  int64: Scalar<number | bigint>;
  uint64: Scalar<number | bigint>;
  sint64: Scalar<number | bigint>;
  fixed64: Scalar<number | bigint>;
  sfixed64: Scalar<number | bigint>;
  enum: Scalar<number, number | bigint>;
  bool: Scalar<boolean>;
  string: Scalar<string>;
  bytes: Scalar<Uint8Array>;
};

/** The keys of maps, which are strings in objects, by their type. */
export const KEYS: {
  string(key: string): string;
  bool(key: string): boolean;
  int32(key: string): number;
  uint32(key: string): number;
  sint32(key: string): number;
  fixed32(key: string): number;
  sfixed32(key: string): number;
  int64(key: string): bigint;
  uint64(key: string): bigint;
  sint64(key: string): bigint;
  fixed64(key: string): bigint;
  sfixed64(key: string): bigint;
};
