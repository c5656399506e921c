// The view of the page in its address: what is behind the "#". Nothing in it is trusted.

export const AXES = ["rows", "updates", "time", "age"];
const DEFAULTS = { q: "", sort: "-started_at", x: "rows", smooth: 0, log: false, band: true };

/** Return the view in a fragment such as "#runs=ID,ID&x=time". */
export function viewIn(fragment) {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  const smooth = Number(fields.get("smooth") ?? 0);
  const zoom = (fields.get("zoom") ?? "").split(",").map(Number);
  const x = fields.get("x");
  return {
    runs: (fields.get("runs") ?? "").split(",").filter((id) => /^[\w-]{1,64}$/.test(id)).slice(0, 64),
    q: (fields.get("q") ?? "").slice(0, 200),
    metric: (fields.get("metric") ?? "").slice(0, 200),
    sort: (fields.get("sort") ?? DEFAULTS.sort).slice(0, 100),
    x: AXES.includes(x) ? x : DEFAULTS.x,
    smooth: smooth >= 0 && smooth < 1 ? smooth : 0,
    log: fields.get("log") === "1",
    band: fields.get("band") !== "0",
    zoom: zoom.length === 2 && zoom.every(Number.isFinite) && zoom[0] < zoom[1] ? zoom : null,
  };
}

/** Return the fragment of a view; what is as by default is left out. */
export function fragmentOf(view) {
  const fields = new URLSearchParams();
  if (view.runs.length) fields.set("runs", view.runs.join(","));
  if (view.q) fields.set("q", view.q);
  if (view.metric) fields.set("metric", view.metric);
  if (view.sort !== DEFAULTS.sort) fields.set("sort", view.sort);
  if (view.x !== DEFAULTS.x) fields.set("x", view.x);
  if (view.smooth) fields.set("smooth", String(view.smooth));
  if (view.log) fields.set("log", "1");
  if (!view.band) fields.set("band", "0");
  if (view.zoom) fields.set("zoom", view.zoom.map((x) => Number(x.toPrecision(12))).join(","));
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
