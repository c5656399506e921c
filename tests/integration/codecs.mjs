// Decodes and encodes messages that a test gives it as JSON: {module, type, decode, encode}.

import { readFileSync } from "node:fs";

const { module, path, decode = [], encode = [] } = JSON.parse(readFileSync(0, "utf8"));
const exports = await import(module);
const type = path.reduce((object, name) => object[name], exports);

/** Values that JSON does not have, as objects of one entry. */
function dumped(value) {
  if (typeof value === "bigint") return { big: String(value) };
  if (typeof value === "number" && !Number.isFinite(value)) return { float: String(value) };
  if (Object.is(value, -0)) return { float: "-0" };
  if (value instanceof Uint8Array) return { hex: Buffer.from(value).toString("hex") };
  if (Array.isArray(value)) return value.map(dumped);
  if (typeof value !== "object") return value;
  return { fields: Object.fromEntries(Object.entries(value).map(([k, v]) => [k, dumped(v)])) };
}

function loaded(value) {
  if (Array.isArray(value)) return value.map(loaded);
  if (value === null || typeof value !== "object") return value;
  if ("big" in value) return BigInt(value.big);
  if ("float" in value) return Number(value.float);
  if ("hex" in value) return new Uint8Array(Buffer.from(value.hex, "hex"));
  return Object.fromEntries(Object.entries(value.fields).map(([k, v]) => [k, loaded(v)]));
}

function attempt(action, value) {
  try {
    return action(value);
  } catch (error) {
    return { error: error.message };
  }
}

const result = {
  decoded: decode.map((hex) =>
    attempt((text) => dumped(type.decode(new Uint8Array(Buffer.from(text, "hex")))), hex),
  ),
  encoded: encode.map((value) =>
    attempt((object) => Buffer.from(type.encode(object).finish()).toString("hex"), loaded(value)),
  ),
};
process.stdout.write(JSON.stringify(result));
