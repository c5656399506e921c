// Who plays an actor of a trial, in words.

import { PlayerKind } from "./js/players.js";

const KINDS = { [PlayerKind.CLIENT]: "client", [PlayerKind.PERSON]: "person" };

/** Return who plays an actor in words, "" if that is not known yet. */
export function playerText(player) {
  if (!player) return "";
  const isStandIn = player.kind === PlayerKind.STAND_IN;
  const kind = isStandIn ? (player.name ? "policy" : "default action") : KINDS[player.kind];
  const marks = [player.isHeld ? "held" : "", player.isAway ? "away" : ""].filter(Boolean);
  const about = marks.length > 0 ? ` (${marks.join(", ")})` : "";
  return `${kind ?? "player"}${player.name ? `: ${player.name}` : ""}${about}`;
}

/** Return true if a person or a client that is present plays an actor. */
export function isTaken(player) {
  if (!player || player.kind === PlayerKind.STAND_IN) return false;
  return player.kind === PlayerKind.PERSON || !player.isAway;
}

/** Return true if a policy plays an actor. */
export function isPolicy(player) {
  return player?.kind === PlayerKind.STAND_IN && player.name !== "";
}
