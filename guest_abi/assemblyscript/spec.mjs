// A transform of asc: puts spec.json, which declares the meaning of rows, into the module, where the
// host looks for it. Use: asc npc.ts --transform spec.mjs
import { readFileSync } from "node:fs";

export function afterCompile(module) {
  module.addCustomSection("arkml.spec", readFileSync("spec.json"));
}
