// Texts of others in charts: plotly takes tags and entities in them for markup.

import { harmless } from "./format.js";

/**
 * Return a text that plotly shows as it is.
 *
 * Plotly reads `<b>`, `<a href>` and others, entities such as `&lt;`, and `%{...}` in templates.
 * A tag needs its `<`, which becomes an entity that plotly writes as that letter.
 */
export function plain(text) {
  return harmless(text)
    .replace(/&/g, "&amp;")
    .replace(/</g, "&lt;")
    .replace(/>/g, "&gt;")
    .replace(/%(?=\{)/g, "&#37;")
    .replace(/\$/g, "&#36;");
}
