// Answers the questions of a test, lists of [name, ...values], a list of JSON a line.

import { createInterface } from "node:readline";

/** Import a module of the page, which lies in the folder that this program was given. */
export const module = (name) => import(new URL(`${name}.js`, process.argv[2]));

/** Print a list of answers for each list of questions, until the input ends. */
export async function answerAll(answers) {
  for await (const line of createInterface({ input: process.stdin })) {
    const found = [];
    for (const [name, ...values] of JSON.parse(line)) found.push(await answers[name](...values));
    console.log(JSON.stringify(found));
  }
}
