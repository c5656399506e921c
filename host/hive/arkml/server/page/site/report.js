// What a report does in a browser: it reads values, and switches groups of runs off and on.

import { placeText, valueText } from "./chart_text.js";
import { nearest, placesOf } from "./plot_data.js";
import { Readout } from "./readout.js";
import { element } from "./shared/dom.js";

const curves = JSON.parse(document.getElementById("curves").textContent);
const switchedOff = new Set(); // numbers of groups

/** Read the values of a chart: its lines, and the rows at the edges of its plot. */
function readChart(figure, { lines, edges: [low, high] }) {
  const { left, right, width } = curves.place;
  const area = figure.querySelector(".area");
  const shown = () => lines.filter(({ group }) => !switchedOff.has(group));
  const across = () => area.clientWidth / width;
  const source = {
    places: () => placesOf(shown()),
    read: (place) => ({
      where: placeText("rows", place),
      values: shown().filter(({ x }) => place >= x[0] && place <= x.at(-1)).map((line) => valueOf(line, place)),
    }),
    point: (place) => {
      const share = high > low ? (place - low) / (high - low) : 0;
      reader.show(place, (left + share * (right - left)) * across());
    },
    zoom: () => {}, // a report shows all that there is
  };
  const reader = new Readout(area, `values of ${figure.getAttribute("aria-label")}`, source);
  reader.attach(area);
  reader.bound();
  const pointed = ({ clientX }) => {
    const share = ((clientX - area.getBoundingClientRect().left) / across() - left) / (right - left);
    const places = source.places();
    if (places.length) source.point(places[nearest(places, low + share * (high - low))]);
  };
  for (const kind of ["pointermove", "pointerdown"]) area.addEventListener(kind, pointed);
  area.addEventListener("pointerleave", ({ pointerType }) => pointerType === "mouse" && reader.hide());
}

function valueOf({ group, x, y, lowest, highest }, place) {
  const index = nearest(x, place);
  const { label, color } = curves.groups[group];
  const range = lowest ? ` (${valueText({}, lowest[index])} to ${valueText({}, highest[index])})` : "";
  return { name: label, value: valueText({}, y[index]) + range, color: `var(--${color})` };
}

/** Turn the entries of the legend into switches of their groups. */
function switchGroups(entries) {
  entries.forEach((entry, group) => {
    const press = element("button", { type: "button", "aria-pressed": "true" }, ...entry.childNodes);
    press.onclick = () => {
      const isOff = !switchedOff.delete(group);
      if (isOff) switchedOff.add(group);
      press.setAttribute("aria-pressed", String(!isOff));
      for (const one of document.querySelectorAll(`[data-group="${group}"]`)) one.classList.toggle("off", isOff);
    };
    entry.replaceChildren(press);
  });
}

for (const { lines } of curves.charts) for (const line of lines) line.x = curves.rows[line.x];
document.querySelectorAll("figure.chart").forEach((figure, index) => readChart(figure, curves.charts[index]));
if (curves.groups.length > 1) switchGroups(document.querySelectorAll(".legend > li"));
