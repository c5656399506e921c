// Figures of a run's sessions over time, as far as a page has seen them.

const MOST = 900;
const SHORTEST = 1_000; // milliseconds between two samples: rates of less are noise

/** Return the name of a session in charts and tables. */
export function sessionName({ index, role }) {
  return `session ${index} (${role})`;
}

/** The last samples of the sessions of one run. */
export class SessionSamples {
  constructor() {
    this.all = []; // {at, sessions}, `at` in milliseconds since the Unix epoch
  }

  /** Take in the sessions of a run as the hive has them now; a sample that is close is replaced. */
  take(sessions, at = Date.now()) {
    if (at - this.all.at(-1)?.at < SHORTEST) this.all.pop();
    this.all.push({ at, sessions: new Map(sessions.map((one) => [one.index, one])) });
    if (this.all.length > MOST) this.all.shift();
  }

  /** Return how many rows a second of a session were counted as `key` between the last two samples. */
  rate(index, key) {
    return this.all.length > 1 ? this.#rateAt(this.all.length - 1, index, key) : null;
  }

  /** Return lines {name, x, y} by session. `x` are milliseconds, `y` is null where it is unknown. */
  lines(figure) {
    const known = new Map();
    for (const { sessions } of this.all) for (const [index, one] of sessions) known.set(index, one);
    const value = {
      accepted: (place, index) => this.#at(place, index)?.rows_per_second ?? null,
      refused: (place, index) => this.#rateAt(place, index, "refused"),
      dropped: (place, index) => this.#rateAt(place, index, "dropped"),
      age: (place, index) => this.#at(place, index)?.policy_seconds ?? null,
      lag: (place, index) => this.#at(place, index)?.lag ?? null,
    }[figure];
    return [...known].sort(([a], [b]) => a - b).map(([index, one]) => ({
      name: sessionName(one),
      x: this.all.map(({ at }) => at),
      y: this.all.map((_, place) => value(place, index)),
    }));
  }

  #at(place, index) {
    return this.all[place]?.sessions.get(index);
  }

  #rateAt(place, index, key) {
    const [before, now] = [this.#at(place - 1, index), this.#at(place, index)];
    const seconds = (this.all[place].at - this.all[place - 1]?.at) / 1_000;
    if (!before || !now || !(seconds > 0)) return null;
    return Math.max(0, ((now[key] ?? 0) - (before[key] ?? 0)) / seconds);
  }
}

/** Return the charts of a run's sessions. `samples()` are its SessionSamples, if there are any. */
export function sessionSpecs(samples) {
  const lines = (figure) => (colors) =>
    (samples()?.lines(figure) ?? []).map(({ name, x, y }, index) => {
      const color = colors.runs[index % colors.runs.length];
      return {
        mode: x.length === 1 ? "markers" : "lines", x, y, name, line: { color, width: 1.6 }, marker: { color },
      };
    });
  return [
    ["Rows a second, accepted", "accepted"],
    ["Rows a second, refused", "refused"],
    ["Rows a second, dropped", "dropped"],
    ["Age of the policy by session, in seconds", "age"],
    ["Lag by session, in versions", "lag"],
  ].map(([title, figure]) => ({
    title, name: `sessions/${figure}`, lines: lines(figure), fromZero: true,
  }));
}
