// Answers questions about what the hive's page says of labels, origins and progress.

import { readFileSync } from "node:fs";

const given = JSON.parse(readFileSync(0, "utf-8"));
const module = (name) => import(new URL(`${name}.js`, given.folder));
const { titleOf, mayLabel, withTags } = await module("labels");
const { originRows } = await module("origin_panel");
const { strangerSentence } = await module("api");
const { progressOf } = await module("progress");

const asked = {
  title: (run) => titleOf(run),
  may: (who) => mayLabel(who),
  tags: (tags, text) => withTags(tags, text),
  origin: (details, run) => originRows(details, run),
  stranger: (status, isPage) => strangerSentence(status, isPage),
  progress: (run, now) => progressOf(run, now),
};
process.stdout.write(JSON.stringify(given.questions.map(([kind, ...values]) => asked[kind](...values))));
