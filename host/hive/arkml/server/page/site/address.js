// The view of the page in its address: what is behind the "#". Nothing in it is trusted.

export const AXES = ["rows", "updates", "time", "age"];
export const RETURNS = ["best", "evaluation", "return"];
export const MOST_FILTER = 500;
const MOST_NAME = 200;
const MOST = { columns: 40, hidden: 20, pins: 24, charts: 12, brush: 20 };
export const MOST_METRICS = 5; // of one chart, each with a dash of its own
const GROUP = /^(|seed|none|game|setting:.{1,100})$/s;
const DEFAULTS = { q: "", sort: "-started_at", x: "rows", smooth: 0, log: false, of: "best" };

/** Return the view in a fragment such as "#runs=ID,ID&x=time". */
export function viewIn(fragment) {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  const smooth = Number(fields.get("smooth") ?? 0);
  const zoom = (fields.get("zoom") ?? "").split(",").map(Number);
  const x = fields.get("x");
  const text = (name, most = MOST_NAME) => (fields.get(name) ?? "").slice(0, most);
  const names = (key, name, longest = MOST_NAME) =>
    [...new Set(fields.getAll(name))].filter((one) => one && one.length <= longest).slice(0, MOST[key]);
  const group = fields.get("band") === "0" ? "none" : fields.get("group") ?? "";
  return {
    runs: text("runs", 64 * 65).split(",").filter((id) => /^[\w-]{1,64}$/.test(id)).slice(0, 64),
    q: text("q", MOST_FILTER + 1), // one more than is allowed, so that this is said
    metric: text("metric"),
    sort: (fields.get("sort") ?? DEFAULTS.sort).slice(0, MOST_NAME),
    x: AXES.includes(x) ? x : DEFAULTS.x,
    smooth: smooth >= 0 && smooth < 1 ? smooth : 0,
    log: fields.get("log") === "1",
    group: GROUP.test(group) ? group : "",
    columns: names("columns", "column"),
    hidden: names("hidden", "hide"),
    pins: names("pins", "pin"),
    charts: names("charts", "chart", MOST_METRICS * MOST_NAME).map(metricsIn).filter(Boolean),
    against: text("against"),
    of: RETURNS.includes(fields.get("of")) ? fields.get("of") : DEFAULTS.of,
    brush: Object.fromEntries(fields.getAll("brush").map(rangeIn).filter(Boolean).slice(0, MOST.brush)),
    zoom: zoom.length === 2 && zoom.every(Number.isFinite) && zoom[0] < zoom[1] ? zoom : null,
  };
}

/** Return the names of metrics in a JSON list, null for anything else. */
function metricsIn(text) {
  try {
    const names = JSON.parse(text);
    const isFit = Array.isArray(names) && names.length > 0 && names.length <= MOST_METRICS;
    return isFit && names.every((name) => typeof name === "string") ? names : null;
  } catch {
    return null;
  }
}

/** Return [name, [low, high]] of "low..high:name", null for anything else; an end may be empty. */
function rangeIn(text) {
  const place = text.indexOf(":");
  const name = text.slice(place + 1, place + 1 + MOST_NAME);
  const ends = text.slice(0, place).split("..").map((end) => (end === "" ? null : Number(end)));
  const isFit = place > 0 && name && ends.length === 2;
  return isFit && ends.every((end) => end === null || Number.isFinite(end)) ? [name, ends] : null;
}

/** Return the fragment of a view; what is as by default is left out. */
export function fragmentOf(view) {
  const fields = new URLSearchParams();
  if (view.runs.length) fields.set("runs", view.runs.join(","));
  for (const name of ["q", "metric", "group", "against"]) if (view[name]) fields.set(name, view[name]);
  for (const name of ["sort", "x", "of"]) if (view[name] !== DEFAULTS[name]) fields.set(name, view[name]);
  if (view.smooth) fields.set("smooth", String(view.smooth));
  if (view.log) fields.set("log", "1");
  if (view.zoom) fields.set("zoom", view.zoom.map((x) => Number(x.toPrecision(12))).join(","));
  for (const name of view.columns) fields.append("column", name);
  for (const kind of view.hidden) fields.append("hide", kind);
  for (const name of view.pins) fields.append("pin", name);
  for (const names of view.charts) fields.append("chart", JSON.stringify(names));
  for (const [name, [low, high]] of Object.entries(view.brush)) {
    fields.append("brush", `${low ?? ""}..${high ?? ""}:${name}`);
  }
  const text = fields.toString().replace(/%2C/g, ",");
  return text ? `#${text}` : "";
}

/** Return the one-time token in a fragment, and take it out of what is visible. */
export function takeToken(page = window) {
  const fields = new URLSearchParams(page.location.hash.replace(/^#/, ""));
  const token = fields.get("token") ?? "";
  if (token) {
    fields.delete("token");
    const rest = fields.toString().replace(/%2C/g, ",");
    const address = page.location.pathname + page.location.search + (rest ? `#${rest}` : "");
    page.history.replaceState(null, "", address);
  }
  return token;
}

/**
 * Return the address of the hive as `--hive` takes it: HOST:PORT, or the URL of the page's directory.
 *
 * Without a scheme `--hive` means plain HTTP, without a prefix, at a port that is written out.
 */
export function hiveAddress({ protocol, host, port, pathname } = location) {
  const directory = pathname.slice(0, pathname.lastIndexOf("/"));
  return protocol === "http:" && port && !directory ? host : `${protocol}//${host}${directory}`;
}
