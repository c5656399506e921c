// What a game is called and what its goal is, where a guest has several classes of actors.

/** Return the title of the game that a server describes: the first that is declared, or the guest. */
export function titleOf({ guest, classes }) {
  return classes.map(({ game }) => game?.title).find(Boolean) ?? guest;
}

/** Return the goals of all classes as one text, empty without any. */
export function goalsOf({ classes }) {
  const told = classes.filter(({ game }) => game?.goal);
  const [first] = told;
  if (told.every(({ game }) => game.goal === first.game.goal)) return first?.game.goal ?? "";
  return told.map(({ name, game }) => `${name}: ${game.goal}`).join(" ");
}
