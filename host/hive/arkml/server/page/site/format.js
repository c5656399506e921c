// Numbers, times and texts as people read them.

const PREFIXES = ["", "k", "M", "G", "T"];

/** Return a number in few characters. */
export function short(value) {
  if (value === null || value === undefined) return "";
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e15)) return value.toExponential(2);
  if (size < 10_000) return String(Number(value.toPrecision(4)));
  const power = Math.min(PREFIXES.length - 1, Math.floor(Math.log10(size) / 3));
  return `${Number((value / 1000 ** power).toPrecision(4))}${PREFIXES[power]}`;
}

/** Return a whole number with its digits in groups. */
export function whole(value) {
  return Math.round(value).toLocaleString("en-US");
}

/** Return a number of bytes. */
export function bytes(value) {
  if (value < 1024) return `${value} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length, Math.floor(Math.log2(value) / 10));
  return `${Number((value / 1024 ** power).toPrecision(3))} ${units[power - 1]}`;
}

/** Return a share of one as a percentage. */
export function percent(value) {
  return `${Number((100 * value).toPrecision(3))} %`;
}

/** Return a length of time in seconds. */
export function duration(seconds) {
  if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Return a time in nanoseconds since the Unix epoch as a Date. */
export function dateOf(nanoseconds) {
  return new Date(nanoseconds / 1e6);
}

/** Return a time in nanoseconds since the Unix epoch, in this place's time. */
export function moment(nanoseconds) {
  if (!nanoseconds) return "";
  const two = (number) => String(number).padStart(2, "0");
  const at = dateOf(nanoseconds);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** Return a part of a row in words: its name, its kind and its shape. */
function partText({ name, kind, shape, categories, choices }) {
  const word = kind === "vector" ? "" : `${kind} `;
  const of = categories ? ` of ${categories} categories` : "";
  return `${name} ${word}[${shape.join(", ")}]${of}${choices ? choicesText(choices) : ""}`;
}

function choicesText({ are, branch, first }) {
  return ` with ${are} to choose${branch ? ` in branch ${branch}` : ""}${first ? `, from ${first} on` : ""}`;
}

/** Return a setting as text. */
export function setting(value) {
  if (typeof value === "string") return value;
  if (Array.isArray(value) && value[0]?.shape) return value.map(partText).join(", ");
  // Guests give 32-bit floats: 0.1 is 0.10000000149 of the 64 bits that JSON has.
  return JSON.stringify(value, (_, one) => (typeof one === "number" ? Number(one.toPrecision(7)) : one));
}

// Controls, and marks that hide or reorder text: a name of others could pass for another one.
const UNSAFE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Return a text of others with its controls, and marks that reorder text, made visible. */
export function harmless(text) {
  return String(text).replace(
    UNSAFE,
    (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`
  );
}
