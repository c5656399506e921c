// The policy of a training that a guest starts: irregular rows are answered as if nobody played them.

import { rest } from "./ark_masks.js";
import { isEnd } from "./ark_sessions.js";
import { after } from "./later.js";

const FIRST_STATE = 3; // of the first row of an agent
const MOST_ENDED = 65_536; // agents that are remembered after their episodes

/** Acts by a policy, as an evaluation does; `branches` are the choices of the last actions. */
export class RunPolicy {
  #policy;
  #branches;
  #agents = new Map(); // by key and id: {steps, ended}
  #ended = 0;

  constructor(policy, branches) {
    this.#policy = policy;
    this.#branches = branches;
  }

  act(batch) {
    const { ids, key, features, rewards, states, masks, actions, values } = batch;
    const count = ids.length;
    const widths = [features.length / count, actions.length / count];
    const irregular = [];
    for (let row = 0; row < count; row += 1) {
      const agent = this.#agent(key, ids[row]);
      const isFinite = features.subarray(row * widths[0], (row + 1) * widths[0]).every(Number.isFinite);
      const isInitial = states[row] === FIRST_STATE;
      if (agent.ended || (agent.steps === 0) !== isInitial || !isFinite || !Number.isFinite(rewards[row])) irregular.push(row);
      agent.steps += 1;
      if (!agent.ended && isEnd(states[row])) {
        agent.ended = true;
        this.#ended += 1;
      }
    }
    return after(this.#policy.act(batch), () => {
      for (const row of irregular) {
        rest(actions.subarray(row * widths[1], (row + 1) * widths[1]), this.#branches, masks, row);
        values[row] = 0;
      }
      if (this.#ended > MOST_ENDED) this.#dropEnded();
    });
  }

  forget(key) {
    for (const name of this.#agents.keys()) if (name.startsWith(`${key}:`)) this.#agents.delete(name);
    this.#policy.forget(key);
  }

  #agent(key, id) {
    const name = `${key}:${id}`;
    let agent = this.#agents.get(name);
    if (!agent) this.#agents.set(name, (agent = { steps: 0, ended: false }));
    return agent;
  }

  #dropEnded() {
    for (const [name, { ended }] of this.#agents) if (ended) this.#agents.delete(name);
    this.#ended = 0;
  }
}
