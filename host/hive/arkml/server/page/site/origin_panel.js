// Where a run came from: who started it, by which command, on which machine, from which guest.

import { element, table } from "./dom.js";
import { duration, harmless, whole } from "./format.js";

/** Return what is known of the start of a run, as names and texts of others. */
export function originRows(details, run) {
  const origin = details?.origin ?? {};
  const versions = Object.entries(origin.versions ?? {}).map((one) => one.join(" ")).join(", ");
  return [
    ["started by", details?.owner_name], ["command", origin.command], ["host", origin.host],
    ["guest", origin.guest_file], ["SHA-256 of the guest", origin.guest_sha256],
    ["versions", versions], ["git", origin.git], ["asked for", askedFor(run?.goal)],
  ].filter(([, text]) => text).map(([name, text]) => [name, harmless(text)]);
}

function askedFor(goal) {
  if (!goal) return "";
  return [
    goal.seconds ? duration(goal.seconds) : "",
    goal.frames ? `${whole(goal.frames)} frames` : "",
    typeof goal.mean_return === "number" ? `a mean return of ${goal.mean_return}` : "",
  ].filter(Boolean).join(", or ");
}

/** The panel about the start of a run. */
export function originOf(app, [run]) {
  const target = element("div", {});
  let known = null;
  const update = () => {
    const rows = originRows(app.store.details.get(run.id), app.store.runs.get(run.id));
    if (JSON.stringify(rows) === known) return;
    known = JSON.stringify(rows);
    const none = element("p", { className: "quiet" }, "The host that started it has not said.");
    target.replaceChildren(rows.length ? table(["", "as its host has said"], rows, "origin") : none);
  };
  return { element: target, update };
}
