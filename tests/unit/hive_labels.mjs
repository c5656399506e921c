// Answers questions about what the hive's page says of labels, origins and progress.

import { answerAll, module } from "./questions.mjs";

const { titleOf, mayLabel, withTags } = await module("labels");
const { originRows } = await module("origin_panel");
const { strangerSentence } = await module("api");
const { progressOf } = await module("progress");

const answers = {
  title: (run) => titleOf(run),
  may: (who) => mayLabel(who),
  tags: (tags, text) => withTags(tags, text),
  origin: (details, run) => originRows(details, run),
  stranger: (status, isPage) => strangerSentence(status, isPage),
  progress: (run, now) => progressOf(run, now),
};
await answerAll(answers);
