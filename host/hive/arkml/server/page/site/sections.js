// The charts of a run, by section. Names are those that stable-baselines3 has where it has one.

const RETURNS = [
  {
    title: "Return of training", name: "rollout/ep_rew_mean",
    low: "rollout/ep_rew_p10", high: "rollout/ep_rew_p90",
  },
  {
    title: "Return of evaluations", name: "eval/mean_reward", spread: "eval/std_reward", best: true,
  },
  { title: "Success rate of evaluations", name: "eval/success_rate", format: ".0%", fromZero: true },
  { title: "Episode length", name: "rollout/ep_len_mean" },
  { title: "Episode length of evaluations", name: "eval/mean_ep_length" },
];

const LOSSES = [
  ["Actor loss", "train/actor_loss"],
  ["Critic loss", "train/critic_loss"],
  ["Q, mean and range", "train/q_mean", { low: "train/q_min", high: "train/q_max" }],
  ["TD error", "train/td_error"],
  ["Temperature", "train/ent_coef"],
  ["Loss of the temperature", "train/ent_coef_loss"],
  ["Entropy", "train/entropy"],
  ["Policy gradient loss", "train/policy_gradient_loss"],
  ["Value loss", "train/value_loss"],
  ["Approximate KL", "train/approx_kl"],
  ["Clip fraction", "train/clip_fraction"],
  ["Explained variance", "train/explained_variance"],
  ["Entropy loss", "train/entropy_loss"],
  ["Stale share", "train/stale_share"],
  ["Loss", "train/loss"],
  ["Standard deviation of actions", "train/std"],
  ["Gradient norm", "train/gradient_norm"],
  ["Gradient norm of the actor", "train/actor_gradient_norm"],
  ["Gradient norm of the critic", "train/critic_gradient_norm"],
  ["Learning rate", "train/learning_rate"],
];

const PACE = [
  ["Updates a second", "pace/updates_per_second"],
  ["Samples per insert, wanted", "pace/samples_per_insert_wanted"],
  ["Samples per insert, reached", "pace/samples_per_insert_reached"],
  ["Updates for each row, wanted", "hive/updates_per_row_wanted"],
  ["Updates for each row, reached", "hive/updates_per_row"],
  ["Milliseconds of an update", "hive/update_ms"],
  ["Rows a second", "time/fps"],
  ["Replay buffer, filled", "replay/fill", { format: ".0%", fromZero: true }],
  ["Share of demonstrations", "replay/demonstration_share", { format: ".0%", fromZero: true }],
  ["Updates", "train/n_updates"],
];

const SESSIONS = [
  ["Age of the policy, in versions", "hive/policy_age_versions"],
  ["Age of the policy, in seconds", "hive/policy_age_seconds"],
  ["Share of stale rows", "hive/stale_share", { format: ".0%", fromZero: true }],
  ["Rows dropped", "hive/dropped"],
  ["Rows lost", "hive/lost"],
  ["Stale rows", "hive/stale_rows"],
  ["Excess rows", "hive/excess_rows"],
];

const SYSTEM = [
  ["Processors of the learner", "system/cpu_share", { fromZero: true }],
  ["Memory of the learner", "system/memory_bytes", { unit: "B", fromZero: true }],
  ["Disk space of the run", "system/disk_bytes", { unit: "B", fromZero: true }],
];

const FIXED = [
  { id: "returns", title: "Returns", charts: RETURNS, always: 1 },
  { id: "losses", title: "Learning", charts: LOSSES.map(spec) },
  { id: "pace", title: "Pace", charts: PACE.map(spec) },
  { id: "sessions", title: "Sessions", charts: SESSIONS.map(spec) },
];

const BY_PREFIX = [
  { id: "actions", title: "Actions", prefix: "actions/" },
  { id: "features", title: "Features", prefix: "features/" },
];

const RESOURCES = { id: "resources", title: "Resources", charts: SYSTEM.map(spec) };

const OWN = /^(rollout|eval|train|hive|time|replay|pace|actions|features|hist|system)\//;

function spec([title, name, more = {}]) {
  return { title, name, ...more };
}

/**
 * Return the sections with the charts of these metrics: [{id, title, charts}].
 *
 * Every name is in one of them: alone, or as the band around another one. `q` leaves out charts whose title and name do not have it.
 */
export function sectionsOf(names, q = "") {
  const left = new Set([...names].filter((name) => !name.startsWith("hist/")));
  const taken = ({ id, title, charts, always = 0 }) => ({
    id,
    title,
    charts: charts.filter((chart, index) => {
      const has = left.has(chart.name);
      for (const name of [chart.name, chart.low, chart.high, chart.spread]) left.delete(name);
      return has || index < always;
    }),
  });
  const sections = FIXED.map(taken);
  const resources = taken(RESOURCES);
  for (const { id, title, prefix } of BY_PREFIX) {
    const own = [...left].filter((name) => name.startsWith(prefix)).sort();
    own.forEach((name) => left.delete(name));
    sections.push({ id, title, charts: own.map((name) => ({ title: name.slice(prefix.length).replaceAll("_", " "), name })) });
  }
  const rest = [...left].sort();
  const guest = rest.filter((name) => !OWN.test(name));
  const others = rest.filter((name) => OWN.test(name));
  sections.push({ id: "guest", title: "Metrics of the guest", charts: guest.map(titled) });
  sections.push({ id: "others", title: "Other metrics", charts: others.map(titled) });
  sections.push(resources);
  const wanted = q.trim().toLowerCase();
  for (const section of sections) {
    section.charts = section.charts.filter(({ title, name }) => `${title} ${name}`.toLowerCase().includes(wanted));
  }
  return sections;
}

function titled(name) {
  return { title: name, name };
}
