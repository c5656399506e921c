// The files of a published folder: fetched, or from a script where a browser fetches none.

import { shake128 } from "./shake.js";

const DIGEST_BYTES = 32;
const PACKED = "files.js"; // the files as base64, for pages that are opened from a disk

/** Load a script of the folder. */
function loaded(name) {
  return new Promise((resume, fail) => {
    const script = document.createElement("script");
    script.src = name;
    script.onload = resume;
    script.onerror = () => fail(new Error(`${name} is missing: copy the whole folder`));
    document.head.append(script);
  });
}

async function packedFile(name) {
  if (!globalThis.arkmlFiles) await loaded(PACKED);
  const text = globalThis.arkmlFiles?.[name];
  if (text === undefined) throw new Error(`${name} is missing in ${PACKED}: publish the folder again`);
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

async function fetchedFile(name) {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`${name} is missing (${response.status}): copy the whole folder`);
  return new Uint8Array(await response.arrayBuffer());
}

/** Return the bytes of a file, {name, digest}; throw an Error if they are not those published. */
export async function fileOf({ name, digest }) {
  const bytes = await (location.protocol === "file:" ? packedFile(name) : fetchedFile(name));
  const found = [...shake128(bytes, DIGEST_BYTES)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  if (found !== digest) {
    throw new Error(`${name} was altered on its way here: its hash is ${found.slice(0, 12)}…, that of the published file ${digest.slice(0, 12)}…`);
  }
  return bytes;
}
