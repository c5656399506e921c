// Encoding and decoding of proto3 messages. Numbers of 64 bits are numbers where these are exact,
// and BigInt beyond; both may be encoded.

/** The base class of all messages. */
export class MessageBase {}

/** A message that was encoded. */
export interface Encoded {
  /** Return the bytes. */
  finish(): Uint8Array;
}

/** The class of a message `T`, which is made of an object `I` with its fields. */
export interface MessageType<T, I = any> {
  create(properties?: I | null): T;
  encode(object: I): Encoded;
  decode(bytes: Uint8Array): T;
  getTypeUrl(): string;
}

/** The messages of a class, and what they may be made of. */
export type Held<C> = C extends MessageType<infer T, any> ? T : never;
export type Given<C> = C extends MessageType<any, infer I> ? I : never;
