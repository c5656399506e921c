// What people do to runs: stop, save a checkpoint, download, remove. Asked twice where it matters.

import { change, download, removeAt } from "./api.js";
import { fileName } from "./csv.js";
import { button, element } from "./dom.js";
import { harmless, whole } from "./format.js";
import { titleOf } from "./labels.js";

const OVER = new Set(["stopped", "aborted", "not_found", "terminating"]);

/** Return whether a run is over. */
export function isOver(run) {
  return OVER.has(run.status);
}

/**
 * Ask a question in two steps, and return whether both were answered with yes.
 *
 * `texts` are the two questions, `yes` the texts of their buttons.
 */
export function askTwice(title, texts, yes) {
  return new Promise((resolve) => {
    let step = 0;
    let isSure = false;
    const text = element("p", {}, texts[0]);
    const go = button(yes[0], () => {
      step += 1;
      if (step === texts.length) {
        isSure = true;
        dialog.close();
      } else {
        text.textContent = texts[step];
        go.textContent = yes[step];
        go.classList.add("dangerous");
        no.focus();
      }
    });
    const no = button("Cancel", () => dialog.close());
    const dialog = element(
      "dialog", { "aria-label": title }, element("h2", {}, title), text,
      element("div", { className: "buttons" }, no, go)
    );
    dialog.onclose = () => {
      dialog.remove();
      resolve(isSure);
    };
    document.body.append(dialog);
    dialog.showModal();
    no.focus();
  });
}

/** Stop a run for all of its sessions; returns whether that was done. Throws ApiError. */
export async function stop(run) {
  const name = harmless(titleOf(run));
  const isSure = await askTwice(
    `Stop ${name}?`,
    [
      "A checkpoint is saved, and all hosts that take part end their training.",
      `Stop ${name} (${run.id}) for everybody who takes part?`,
    ],
    ["Stop…", "Stop it"]
  );
  if (isSure) await change("POST", `v1/runs/${run.id}/stop`);
  return isSure;
}

/** Remove a run with all its files; returns whether that was done. Throws ApiError. */
export async function remove(run) {
  const name = harmless(titleOf(run));
  const isSure = await askTwice(
    `Remove ${name}?`,
    [
      `${isOver(run) ? "Its" : "It is stopped first. Its"} ${whole(run.rows)} rows, policies, checkpoints and metrics are deleted.`,
      `This cannot be undone. Remove ${name} (${run.id}) for good?`,
    ],
    ["Remove…", "Remove for good"]
  );
  if (isSure) await removeAt(`v1/runs/${run.id}`, { force: isOver(run) ? 0 : 1 });
  return isSure;
}

/** Save a checkpoint now; returns its name. Throws ApiError. */
export async function snapshot(run) {
  return (await change("POST", `v1/runs/${run.id}/checkpoints`)).checkpoint;
}

/** Save a policy of a run as a file: "best", "latest" or "now". Throws ApiError. */
export async function savePolicy(run, which) {
  await download(`v1/runs/${run.id}/snapshot`, { which }, `${fileName(run.name, which)}.onnx`);
}
