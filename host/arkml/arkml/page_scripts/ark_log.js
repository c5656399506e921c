// The log of a guest: its texts made harmless and short, with the values that it adds to them.

const UNSAFE = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/gu;
const CONTEXTS = 32;
const CONTEXT_BYTES = 256;
const LINE_BYTES = 256; // that count as one line

function escaped(character) {
  const code = character.codePointAt(0);
  const digits = (count) => code.toString(16).padStart(count, "0");
  if (code === 0x1b || (code >= 0x80 && code <= 0x9f)) return `\\x${digits(2)}`;
  if (code < 0x80) return "";
  return code <= 0xffff ? `\\u${digits(4)}` : `\\U${digits(8)}`;
}

/** Return a text without characters that control, hide or reorder. */
export function harmless(text) {
  return text.replace(UNSAFE, escaped);
}

/** Return the end of the first `most` bytes of UTF-8, in whole characters. */
function wholeEnd(bytes, most) {
  if (bytes.length <= most) return bytes.length;
  let end = most;
  while (end > 0 && (bytes[end] & 0xc0) === 0x80) end -= 1;
  return end;
}

/** Return bytes of text as they are shown: harmless, and cut to `most` bytes with a note. */
export function presentable(bytes, most) {
  const end = wholeEnd(bytes, most);
  const kept = new TextEncoder().encode(harmless(new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes.subarray(0, end))));
  const shown = wholeEnd(kept, most);
  const removed = bytes.length - end + kept.length - shown;
  const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(kept.subarray(0, shown));
  return removed > 0 ? `${text}… [${removed} bytes cut]` : text;
}

/** Passes lines on to `write(level, text)`, at most `rate` in a second. */
export class GuestLog {
  #write;
  #limits;
  #contexts = []; // [name, value]
  #left;
  #last = performance.now();
  #dropped = 0;

  constructor(write, limits) {
    this.#write = write;
    this.#limits = limits;
    this.#left = limits.lines;
  }

  /** Log a text, bytes or a string, at a level such as "info". */
  say(level, text) {
    const now = performance.now();
    this.#left = Math.min(this.#limits.lines, this.#left + ((now - this.#last) * this.#limits.lines) / 1_000);
    this.#last = now;
    if (this.#left < 1) {
      this.#dropped += 1;
      return;
    }
    if (this.#dropped > 0) this.#write("warning", `dropped ${this.#dropped} lines: the guest exceeds its log rate`);
    this.#dropped = 0;
    const shown = this.shown(text).replaceAll("\n", "\n    ") + this.context;
    this.#left -= Math.max(1, Math.ceil(shown.length / LINE_BYTES));
    this.#write(level, shown);
  }

  /** Return a text, bytes or a string, as it is shown. */
  shown(text, isOneLine = false) {
    const bytes = typeof text === "string" ? new TextEncoder().encode(text) : text;
    const kept = presentable(bytes, this.#limits.log);
    return isOneLine ? kept.replaceAll("\n", " ") : kept;
  }

  /** The values that each line ends with: empty, or " [name=value …]". */
  get context() {
    const newest = new Map();
    for (const [name, value] of this.#contexts) newest.set(name, value);
    return newest.size > 0 ? ` [${[...newest].map(([name, value]) => `${name}=${value}`).join(" ")}]` : "";
  }

  /** Add a value to all lines; a name shows its newest one. */
  addContext(name, value) {
    if (this.#contexts.length < CONTEXTS) this.#contexts.push([this.#onOneLine(name), this.#onOneLine(value)]);
  }

  /** Remove the newest value of a name. */
  removeContext(name) {
    const place = this.#contexts.findLastIndex(([one]) => one === this.#onOneLine(name));
    if (place >= 0) this.#contexts.splice(place, 1);
  }

  #onOneLine(bytes) {
    return presentable(bytes, CONTEXT_BYTES).replaceAll("\n", " ");
  }
}
