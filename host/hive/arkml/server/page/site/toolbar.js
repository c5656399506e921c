// The controls of charts: axis, smoothing, scale, search, zoom.

import { button, element } from "./dom.js";

const AXES = [["rows", "rows"], ["updates", "updates"], ["time", "time of day"], ["age", "time since start"]];

/** Return the controls. Each change is part of the view, and so of the address. */
export function toolbarOf(app) {
  const { view } = app;
  const axis = element(
    "select",
    { id: "axis", onchange: () => app.change({ x: axis.value, zoom: null }) },
    ...AXES.map(([value, text]) => element("option", { value, selected: value === view.x }, text))
  );
  const smooth = element("input", {
    id: "smooth", type: "range", min: 0, max: 0.99, step: 0.01, value: view.smooth,
    oninput: () => app.change({ smooth: Number(smooth.value) }),
  });
  const box = (name, text, key) => {
    const input = element("input", {
      id: name, type: "checkbox", checked: view[key],
      onchange: () => app.change({ [key]: input.checked }),
    });
    return element("label", {}, input, ` ${text}`);
  };
  const search = element("input", {
    id: "metric-search", type: "search", placeholder: "Search metrics (/)", value: view.metric,
    "aria-label": "Search metrics", oninput: () => app.change({ metric: search.value }),
  });
  const parts = [
    search,
    element("label", {}, "x: ", axis),
    element("label", {}, "smoothing ", smooth),
    box("log", "log scale", "log"),
    button("Reset zoom", () => app.change({ zoom: null }), { id: "unzoom" }),
  ];
  if (view.runs.length > 1) parts.splice(4, 0, box("band", "join seeds", "band"));
  return element("div", { className: "toolbar", role: "toolbar", "aria-label": "Charts" }, ...parts);
}
