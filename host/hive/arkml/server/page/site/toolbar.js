// The controls of charts: axis, smoothing, scale, groups, search, zoom.

import { button, element } from "./dom.js";
import { harmless } from "./format.js";

const AXES = [["rows", "rows"], ["updates", "updates"], ["time", "time of day"], ["age", "time since start"]];

/** Return a choice of groups {element, show(choices, chosen)}, which is part of the view. */
export function groupSelect(app, title) {
  const select = element("select", { id: "group", onchange: () => app.change({ group: select.value }) });
  let shown = "";
  const show = (choices, chosen) => {
    const isKnown = choices.some(([value]) => value === chosen);
    const all = isKnown ? choices : [...choices, [chosen, chosen.replace(/^setting:/, "")]];
    const key = JSON.stringify(all);
    if (key !== shown) {
      select.replaceChildren(...all.map(([value, text]) => element("option", { value }, harmless(text))));
      shown = key;
    }
    if (select.value !== chosen) select.value = chosen;
  };
  return { element: element("label", {}, title, select), show };
}

/** Return the controls. Each change is part of the view, and so of the address. */
export function toolbarOf(app, ...more) {
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
  const log = element("input", {
    id: "log", type: "checkbox", checked: view.log, onchange: () => app.change({ log: log.checked }),
  });
  const search = element("input", {
    id: "metric-search", type: "search", placeholder: "Search metrics (/)", value: view.metric,
    "aria-label": "Search metrics", oninput: () => app.change({ metric: search.value }),
  });
  return element(
    "div", { className: "toolbar", role: "toolbar", "aria-label": "Charts" },
    search,
    element("label", {}, "x: ", axis),
    element("label", {}, "smoothing ", smooth),
    element("label", {}, log, " log scale"),
    ...more,
    button("Reset zoom", () => app.change({ zoom: null }), { id: "unzoom" })
  );
}
