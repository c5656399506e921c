// The page of one replay: its document lies packed in the page itself.

import { byId, element, setText } from "./dom.js";
import { ReplayView } from "./replay_view.js";

/** Return the JSON in an element: gzip, as base64. */
async function unpacked(holder) {
  const bytes = Uint8Array.from(atob(holder.textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

const replay = await unpacked(byId("document"));
setText(byId("guest"), replay.guest);
const recorded = new Date(replay.recorded_at / 1e6);
const told = [
  `frames ${replay.first.toLocaleString("en")} to ${replay.last.toLocaleString("en")}`,
  Number.isNaN(recorded.getTime()) ? "" : `recorded ${recorded.toISOString().slice(0, 19).replace("T", " ")} UTC`,
  `arkml ${replay.release}`,
];
byId("about").append(element("span", {}, told.filter(Boolean).join(" · ")));
new ReplayView(byId("replay"), replay, { keys: document });
