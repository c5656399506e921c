// Answers questions about the scores and the map of a game: stdin {folder, questions: [[name, ...]]}.

import { readFileSync } from "node:fs";

const given = JSON.parse(readFileSync(0, "utf-8"));
const module = (name) => import(new URL(`${name}.js`, given.folder));
const pageModule = (name) => import(new URL(`${name}.js`, given.page));

/** An element of which only what a score board does is there. */
class FakeElement {
  children = [];
  attributes = {};
  hidden = false;
  textContent = "";

  append(...children) {
    for (const child of children) {
      if (typeof child === "string") this.textContent += child;
      else Object.assign(child, { parentNode: this }) && this.children.push(child);
    }
  }

  prepend(...children) {
    this.append(...children);
  }

  querySelector() {
    return this;
  }

  animate() {}

  setAttribute(name, value) {
    this.attributes[name] = value;
  }
}

const stored = new Map();
globalThis.document = { createElement: () => new FakeElement() };
globalThis.localStorage = {
  getItem: (key) => stored.get(key) ?? null,
  setItem: (key, value) => {
    if (given.isFull) throw new Error("full");
    stored.set(key, value);
  },
};

const { Scene } = await module("scene");
const { boundedPart } = await module("ranges");
const { EntityTable } = await module("entities");
const { BestToday, endText, isBetter, ScoreBoard, Tally } = await module("scores");
const { fixedPoints, mapOf } = await module("plane_map");
const { goalsOf, titleOf } = await pageModule("game_text");

/** Return the texts of a board's fields, by what is printed above them, and its news. */
function shownBy(root) {
  const [, list, news] = root.children;
  const fields = list.children.filter(({ hidden }) => !hidden).map(({ children }) => children);
  const texts = fields.map(([name, value]) => [name.textContent, value.textContent]);
  return { ...Object.fromEntries(texts), news: news.textContent };
}

const answers = {
  map: (game, values, place) => mapOf(game, values, place),
  fixed: (game) => fixedPoints(game),
  better: (score, value, other) => isBetter(score, value, other),
  ended: (score, end, isWhole = true, goal = "") => endText({ score, goal }, end, isWhole),
  best: (score, kept, values) => {
    stored.clear();
    const today = new Date().toDateString();
    if (kept !== null) stored.set("arkml.best:game", kept.replace("TODAY", today));
    const best = new BestToday("game");
    const before = best.value;
    return { before, better: values.map((value) => best.take(score, value)), after: new BestToday("game").value };
  },
  tally: (score, values) => {
    const tally = new Tally();
    for (const value of values) tally.take(score, value);
    return tally.text;
  },
  board: (game, views) => {
    stored.clear();
    const root = new FakeElement();
    const board = new ScoreBoard(root, "game", "3 ± 1 of 20");
    const actorClass = { name: "hunter", game };
    const scene = new Scene("trial", ["a", "b"].map((name) => ({ name, actorClass })));
    const news = views.map(({ tick, rewards, ends = [0, 0], episode = 0, players, values = [0] }) => {
      const observations = ends.map((end) => ({ episode, end, finalEnd: 0, present: true, values }));
      scene.view(tick, { tickId: tick, observations, players: [], rewards, actions: [] });
      return board.show(scene, scene.actors[0], (actor) => players[actor.index]);
    });
    return { news, isShown: !root.hidden, shown: shownBy(root) };
  },
  entities: (part, values) => {
    const table = new EntityTable(boundedPart(part), 1);
    table.show(values);
    return table.rows.map(({ cells }) => cells.map(({ root }) => root.textContent));
  },
  title: (description) => titleOf(description),
  goals: (description) => goalsOf(description),
};

const results = given.questions.map(([name, ...values]) => answers[name](...values));
process.stdout.write(JSON.stringify(results));
