// Files of comma-separated values.

/**
 * Return a cell. A text that a spreadsheet would take for a formula is marked as a text.
 *
 * Numbers stay numbers, also negative ones.
 */
export function cell(value) {
  if (typeof value === "number") return String(value);
  const text = String(value ?? "");
  const safe = /^[=+\-@\t\r\n]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) || safe !== text ? `"${safe.replace(/"/g, '""')}"` : safe;
}

/** Return a file of rows of values. */
export function csv(rows) {
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

/** Return the rows of curves: [{run, name, points}], points being [rows, value, nanoseconds]. */
export function curveRows(curves) {
  const rows = [["run", "id", "metric", "rows", "time", "value"]];
  for (const { run, name, points } of curves) {
    for (const [step, value, at] of points) {
      rows.push([run.name, run.id, name, step, new Date(at / 1e6).toISOString(), value]);
    }
  }
  return rows;
}

/** Return the rows of a chart of lines {name, x, y} over the time, in milliseconds. */
export function lineRows({ title, name }, lines) {
  const rows = [["chart", "title", "line", "time", "value"]];
  for (const line of lines) {
    line.x.forEach((x, index) => {
      if (line.y[index] === null) return;
      rows.push([name, title, line.name, new Date(x).toISOString(), line.y[index]]);
    });
  }
  return rows;
}

/** Return the rows of a histogram over time, one for each bin; `reply` is null without any. */
export function heatRows(run, name, reply) {
  const rows = [["run", "id", "histogram", "rows", "time", "from", "to", "count"]];
  (reply?.counts ?? []).forEach((counts, place) => {
    const time = new Date(reply.times[place] / 1e6).toISOString();
    counts.forEach((count, bin) => {
      const [from, to] = [reply.edges[bin], reply.edges[bin + 1]];
      rows.push([run.name, run.id, name, reply.rows[place], time, from, to, count]);
    });
  });
  return rows;
}

/** Return a name for a file: only letters, digits and some marks. */
export function fileName(...parts) {
  const text = parts.map((part) => String(part).replace(/[^A-Za-z0-9._-]+/g, "-")).join("-");
  return text.replace(/^[.-]+/, "").slice(0, 120) || "arkml";
}
