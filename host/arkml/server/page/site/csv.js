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

/** Return a name for a file: only letters, digits and some marks. */
export function fileName(...parts) {
  const text = parts.map((part) => String(part).replace(/[^A-Za-z0-9._-]+/g, "-")).join("-");
  return text.replace(/^[.-]+/, "").slice(0, 120) || "arkml";
}
