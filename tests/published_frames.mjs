// Plays a published site in node: stdin {folder, scripts, frames, every}.

import { readFileSync } from "node:fs";

import { played } from "./published_frames.js";

const { folder, scripts, frames, every } = JSON.parse(readFileSync(0, "utf-8"));
const page = readFileSync(`${folder}/index.html`, "utf-8");
const site = JSON.parse(/<script id="site" type="application\/json">(.*)<\/script>/.exec(page)[1]);
const read = async (name) => readFileSync(`${folder}/${name}`);
process.stdout.write(JSON.stringify(await played({ scripts, site, read, frames, every })));
