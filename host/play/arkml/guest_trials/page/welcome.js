// The dialog before a visit: what is recorded and learned from, the visitor's name and part.

import { goalsOf, titleOf } from "./game_text.js";
import { byId, element, setShown, setText } from "./shared/dom.js";
import { Backoff, pause } from "./seat.js";
import { isPassing } from "./service.js";

const NAME = "arkml.name";

/** Return the description of the server, which is asked again while it cannot be reached. */
async function described(service, trouble) {
  const backoff = new Backoff();
  for (;;) {
    try {
      const description = await service.describe();
      trouble("");
      return description;
    } catch (error) {
      trouble(error.message);
      if (!isPassing(error)) throw error;
      await pause(backoff.next());
    }
  }
}

/** Return a sentence about the log of the server. */
export function recordedText(description) {
  return description.isRecorded
    ? "Recorded: what you observe and do, rewards and your name, in the log of the server."
    : "Not recorded: the server keeps no log of what you do.";
}

/** Return a sentence about learning. */
export function learningText(description) {
  return description.learning || "Nothing is learned from what you do.";
}

/** Show the dialog; return {description, chosen: {user, slot, trialId}} when it is answered. */
export async function welcomed(service, link) {
  const dialog = byId("welcome");
  const trouble = (text) => {
    setText(byId("welcome-trouble"), text);
    setShown(byId("welcome-trouble"), text !== "");
  };
  byId("begin").disabled = true;
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  dialog.showModal();
  const description = await described(service, trouble);
  setText(byId("welcome-title"), `Play ${titleOf(description)}`);
  setText(byId("welcome-goal"), goalsOf(description));
  setShown(byId("welcome-goal"), goalsOf(description) !== "");
  setText(byId("recorded"), recordedText(description));
  setText(byId("learning"), learningText(description));
  fillParts(byId("slot"), description, link.slot);
  byId("name").value = window.sessionStorage.getItem(NAME) ?? "";
  byId("begin").disabled = false;
  byId("name").focus();
  await new Promise((resume) => {
    byId("welcome-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (byId("name").value.trim() === "") return;
      dialog.close();
      resume();
    });
  });
  const user = byId("name").value.trim();
  window.sessionStorage.setItem(NAME, user);
  const [trialId, slot] = JSON.parse(byId("slot").value);
  return { description, chosen: { user, slot, trialId } };
}

/** Fill the list of parts: watching, or any actor of a live trial. */
function fillParts(list, description, wanted) {
  const option = (text, trialId, slot) =>
    element("option", { value: JSON.stringify([trialId, slot]) }, text);
  const trials = description.trials;
  const groups = trials.map((trial) => {
    const parts = trial.actors.map(({ name }) => option(`play ${name}`, trial.trialId, name));
    const watching = option("watch", trial.trialId, "");
    return element("optgroup", { label: `trial ${trial.trialId}` }, watching, ...parts);
  });
  if (groups.length === 0) {
    list.replaceChildren(option(wanted ? `play ${wanted}, in the next trial` : "watch the next trial", "", wanted));
    return;
  }
  list.replaceChildren(...(groups.length === 1 ? [...groups[0].children] : groups));
  const values = [...list.options].map(({ value }) => value);
  const fitting = values.find((value) => JSON.parse(value)[1] === wanted);
  list.value = fitting ?? values[0];
}
