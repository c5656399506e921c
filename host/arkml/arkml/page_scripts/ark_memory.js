// The memory of a guest, with checks, and refusals that the guest sees as codes.

/** A call of a guest that is refused; `code` is the name of an ErrorCode. */
export class Refusal extends Error {
  constructor(code, text) {
    super(text);
    this.code = code;
  }
}

/** Return the refusal of arguments. */
export function invalid(text) {
  return new Refusal("INVALID_ARGUMENTS", text);
}

/** Return the refusal of a handle. */
export function notFound(text) {
  return new Refusal("NOT_FOUND", text);
}

/** Return the refusal of what is not there. */
export function unavailable(text) {
  return new Refusal("UNAVAILABLE", text);
}

/**
 * Reads and writes a guest's memory. Addresses and sizes are unsigned; no bytes may lie anywhere.
 *
 * `limits` has the bytes of a text (`text`) and of one call (`bytes`). All methods throw a Refusal
 * for what is not in the memory, or over a limit.
 */
export class GuestMemory {
  #memory;
  #limits;
  #bytes = new Uint8Array(0);
  #view = new DataView(new ArrayBuffer(0));

  constructor(memory, limits) {
    this.#memory = memory;
    this.#limits = limits;
  }

  /** The bytes of the memory as it is now; a call of the guest may move it. */
  get bytes() {
    if (this.#bytes.buffer !== this.#memory.buffer) {
      this.#bytes = new Uint8Array(this.#memory.buffer);
      this.#view = new DataView(this.#memory.buffer);
    }
    return this.#bytes;
  }

  /** A view of the memory as it is now. */
  get view() {
    return this.bytes && this.#view;
  }

  /** Check that bytes lie in the memory. */
  check(pointer, size) {
    if (size > 0 && pointer + size > this.#memory.buffer.byteLength) {
      throw invalid(`${size} bytes at ${pointer} end outside of ${this.#memory.buffer.byteLength} bytes`);
    }
  }

  /** Return a copy of bytes. */
  read(pointer, size) {
    this.check(pointer, size);
    if (size > this.#limits.bytes) throw invalid(`${size} bytes in one call, the limit is ${this.#limits.bytes}`);
    return size > 0 ? this.bytes.slice(pointer, pointer + size) : new Uint8Array(0);
  }

  /** Return a text, which has to be UTF-8. */
  text(pointer, size) {
    this.check(pointer, size);
    if (size > this.#limits.text) throw invalid(`a text of ${size} bytes, the limit is ${this.#limits.text}`);
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.read(pointer, size));
    } catch (error) {
      throw error instanceof Refusal ? error : invalid("a text is not UTF-8");
    }
  }

  /** Write bytes, all or none. */
  write(pointer, data) {
    this.check(pointer, data.length);
    if (data.length > 0) this.bytes.set(data, pointer);
  }

  /** Write a number of 32 bits. */
  writeU32(pointer, value) {
    this.check(pointer, 4);
    this.view.setUint32(pointer, value, true);
  }

  /** Return a text of AssemblyScript, UTF-16 with its size before it; empty for null or nonsense. */
  assemblyScriptText(pointer, most) {
    const end = this.bytes.length;
    if (pointer < 4 || pointer > end) return "";
    const size = this.view.getUint32(pointer - 4, true);
    if (size > 0 && pointer + size > end) return "";
    const kept = this.bytes.subarray(pointer, pointer + Math.min(size, most, this.#limits.text));
    return new TextDecoder("utf-16le", { ignoreBOM: true }).decode(kept);
  }
}
