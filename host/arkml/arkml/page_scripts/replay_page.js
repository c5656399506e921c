// The page of one replay: its document lies packed in the page itself.

import { byId, element, setText } from "./dom.js";
import { unpackedReplay } from "./replay_document.js";
import { ReplayView } from "./replay_view.js";

const packed = atob(byId("document").textContent);
const replay = await unpackedReplay(Uint8Array.from(packed, (letter) => letter.charCodeAt(0)));
setText(byId("guest"), replay.guest);
const recorded = new Date(replay.recorded_at / 1e6);
const told = [
  `frames ${replay.first.toLocaleString("en")} to ${replay.last.toLocaleString("en")}`,
  Number.isNaN(recorded.getTime()) ? "" : `recorded ${recorded.toISOString().slice(0, 19).replace("T", " ")} UTC`,
  `arkml ${replay.release}`,
];
byId("about").append(element("span", {}, told.filter(Boolean).join(" · ")));
new ReplayView(byId("replay"), replay, { keys: document });
