// Names the behaviors that sessions may be of: stdin {scripts, cases: [{declared, numbers}]}.

import { readFileSync } from "node:fs";

const { scripts, cases } = JSON.parse(readFileSync(0, "utf-8"));
const { fitting } = await import(`${scripts}published_play.js`);
process.stdout.write(JSON.stringify(cases.map(({ declared, numbers }) => fitting(declared, ...numbers))));
