// The view of a replay: a time line with steps in both directions, agents, values, lines, failure.

import { element, setShown, setText, short } from "./dom.js";
import { inkOf, Plane, TRAIL } from "./plane.js";
import { dumpOf, indexOf, ReplayScenes, rewardsOf } from "./replay_scene.js";
import { ValuePanel } from "./values.js";

const RATES = [1, 5, 15, 30, 60]; // frames a second
const LEAP = 10; // frames, with the shift key
const LINES = 12; // of the log, up to the present frame
const ROWS = 64; // of the table
const INKS = { failed: "--trouble", differs: "--trouble", stopped: "--trouble", chosen: "--accent" };

/** Return a button of the controls. */
function control(text, label, press) {
  const made = element("button", { type: "button", title: label, "aria-label": label }, text);
  made.addEventListener("click", press);
  return made;
}

/** The line of rewards over all frames, with marks; a click goes to a frame. */
class TimeLine {
  #canvas = element("canvas", { className: "timeline" });
  #document;
  #points = [];
  #index = 0;

  constructor(document, go) {
    this.#document = document;
    this.root = this.#canvas;
    this.#canvas.addEventListener("pointerdown", (event) => {
      const drag = ({ offsetX }) => go(Math.round(this.#part(offsetX) * this.#last));
      drag(event);
      this.#canvas.setPointerCapture(event.pointerId);
      this.#canvas.onpointermove = drag;
    });
    this.#canvas.addEventListener("pointerup", () => (this.#canvas.onpointermove = null));
  }

  get #last() {
    return Math.max(1, this.#document.frames.length - 1);
  }

  #part(x) {
    return Math.min(Math.max(x / Math.max(1, this.#canvas.clientWidth), 0), 1);
  }

  /** Draw other rewards from now on: [index, reward]. */
  use(points) {
    this.#points = points;
    this.draw(this.#index);
  }

  /** Draw the line, with the present frame. */
  draw(index) {
    this.#index = index;
    const canvas = this.#canvas;
    const scale = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = canvas;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    const ink = inkOf(canvas);
    const at = (one) => (one / this.#last) * (width - 2) + 1;
    const rewards = this.#points.map(([, reward]) => reward);
    const low = rewards.reduce((one, other) => Math.min(one, other), 0);
    const high = rewards.reduce((one, other) => Math.max(one, other), 0);
    const up = (reward) => height - 6 - ((reward - low) / (high - low || 1)) * (height - 12);
    context.strokeStyle = ink("--line");
    context.beginPath();
    context.moveTo(0, up(0));
    context.lineTo(width, up(0));
    context.stroke();
    for (const { frame, kind } of this.#document.marks) {
      context.fillStyle = ink(INKS[kind] ?? "--quiet");
      const isMajor = kind in INKS;
      context.fillRect(at(indexOf(this.#document.frames, frame)) - (isMajor ? 1 : 0.5), 0, isMajor ? 2 : 1, isMajor ? height : 5);
    }
    context.strokeStyle = ink("--accent");
    context.lineWidth = 1.5;
    context.beginPath();
    for (const [place, reward] of this.#points) context.lineTo(at(place), up(reward));
    context.stroke();
    context.fillStyle = ink("--text");
    context.fillRect(at(index) - 1, 0, 2, height);
  }
}

/**
 * The table of the agents at a frame; `look` is called with the name of one that is chosen.
 *
 * Its rows stay where they are, so that a press on one is not lost while the frames go on.
 */
export class AgentTable {
  #body = element("tbody");
  #look;
  #rows = []; // { root, name, dot, label, cells, actor }

  constructor(look) {
    this.#look = look;
    const names = ["agent", "state", "reward", "return", "value", "action"];
    const head = names.map((name, place) =>
      element("th", { scope: "col", className: place > 1 ? "number" : "" }, name),
    );
    const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)), this.#body);
    this.root = element("div", { className: "scroll" }, table);
  }

  show(scene, looked) {
    const actors = scene.actors.slice(0, ROWS);
    while (this.#rows.length > actors.length) this.#rows.pop().root.remove();
    while (this.#rows.length < actors.length) this.#add();
    actors.forEach((actor, place) => this.#fill(this.#rows[place], actor, looked));
  }

  #add() {
    const dot = element("span", { className: "dot" });
    const label = document.createTextNode("");
    const name = element("button", { type: "button", className: "name" }, dot, label);
    const cells = ["", "number", "number", "number", "number"].map((className) => element("td", { className }));
    const root = element("tr", {}, element("th", { scope: "row" }, name), ...cells);
    const row = { root, name, dot, label, cells, actor: null };
    name.addEventListener("click", () => this.#look(row.actor.name));
    this.#rows.push(row);
    this.#body.append(root);
  }

  #fill(row, actor, looked) {
    const isLooked = actor.name === looked;
    if (row.actor?.index !== actor.index) row.dot.style.background = `var(--actor-${actor.index % 8})`;
    if (row.label.data !== actor.name) row.label.data = actor.name;
    row.actor = actor;
    row.root.className = isLooked ? "looked" : "";
    row.name.setAttribute("aria-pressed", String(isLooked));
    const actions = actor.acted.values.slice(0, 4).map(short).join(" ");
    const texts = [
      actor.state,
      short(actor.reward),
      short(actor.return),
      actor.value === null ? "–" : short(actor.value),
      actor.acted.values.length > 4 ? `${actions} …` : actions,
    ];
    row.cells.forEach((cell, place) => setText(cell, texts[place]));
  }
}

/** The end of a guest: its error, its backtrace, and the memory around the address. */
function failureOf({ kind, text, calls, memory }) {
  const list = calls.map(({ function: name, module, offset, places }) => {
    const where = offset === null ? "" : ` at ${offset.toString(16).padStart(4, "0")}`;
    const lines = places.map((place) => element("span", { className: "place" }, place));
    return element("li", {}, element("code", {}, `${name} (${module}${where})`), ...lines);
  });
  const parts = [element("h2", {}, kind), element("p", { className: "trouble" }, text)];
  if (list.length > 0) parts.push(element("ol", { className: "calls", start: "0" }, ...list));
  if (memory) {
    const rows = dumpOf(memory).map(({ address, bytes, text: letters }) =>
      element(
        "tr",
        {},
        element("th", { scope: "row" }, address),
        ...bytes.map(({ hex, isFault }) => element("td", { className: isFault ? "fault" : "" }, hex)),
        element("td", { className: "letters", colSpan: 17 - bytes.length }, letters),
      ),
    );
    const fault = `0x${memory.fault.toString(16)}`;
    const isInside = rows.length > 0 && memory.fault < memory.start + memory.data.length / 2;
    const note = isInside ? "" : ", which is beyond the end of the memory";
    parts.push(
      element("h3", {}, `Memory around ${fault}${note}`),
      element("div", { className: "scroll" }, element("table", { className: "dump" }, element("tbody", {}, ...rows))),
    );
  }
  return element("section", { className: "card failure" }, ...parts);
}

/**
 * Shows one document of a replay in an element.
 *
 * Keys: ← → step, with shift ten frames; Home and End; space plays; n and p go to marks. They work
 * while the focus is in `keys`, which is the element itself if it is left out.
 */
export class ReplayView {
  #document;
  #scenes;
  #index = 0;
  #looked = "";
  #playing = null; // the time and the frame at which playing began
  #drawn = -1;
  #plane;
  #line;
  #agents;
  #observed;
  #acted;
  #parts = {};
  #resized;

  constructor(root, document, { keys = root } = {}) {
    this.#document = document;
    this.#scenes = new ReplayScenes(document);
    root.classList.add("replay");
    root.replaceChildren(...this.#build());
    const redraw = () => this.redraw();
    this.#resized = new ResizeObserver(redraw);
    this.#resized.observe(root);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    keys.addEventListener("keydown", (event) => this.#press(event));
    if (document.frames.length === 0) return;
    for (let index = 0; index < document.frames.length; index += 1) {
      this.#plane?.follow(this.#scenes.at(index)); // all that it has to have room for
    }
    this.#look("");
    this.go(indexOf(document.frames, document.opens_at));
  }

  /** The index of the frame that is shown. */
  get index() {
    return this.#index;
  }

  /** Show a frame by its index; beyond the ends, the one there. */
  go(index) {
    const last = this.#document.frames.length - 1;
    this.#index = Math.min(Math.max(index, 0), Math.max(last, 0));
    this.#draw(false);
  }

  /** Draw the present frame again, as after a change of colors. */
  redraw() {
    this.#draw(true);
  }

  /** Play from the present frame, or from the first at the end; or stop. */
  play(isOn = this.#playing === null) {
    const last = this.#document.frames.length - 1;
    if (!isOn || last < 1) this.#playing = null;
    else {
      const from = this.#index >= last ? 0 : this.#index;
      this.#playing = { since: performance.now(), from };
      requestAnimationFrame(() => this.#tick());
    }
    const label = this.#playing ? "pause (space)" : "play (space)";
    setText(this.#parts.play, this.#playing ? "Pause" : "Play");
    this.#parts.play.title = label;
    this.#parts.play.setAttribute("aria-label", label);
  }

  /** Stop, and let go of what it listens to. */
  free() {
    this.play(false);
    this.#resized.disconnect();
  }

  #tick() {
    if (this.#playing === null) return;
    const { since, from } = this.#playing;
    const rate = Number(this.#parts.rate.value);
    const index = from + Math.floor(((performance.now() - since) * rate) / 1_000);
    this.go(index);
    if (index >= this.#document.frames.length - 1) this.play(false);
    else requestAnimationFrame(() => this.#tick());
  }

  #step(frames) {
    this.play(false);
    this.go(this.#index + frames);
  }

  #press(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.target.closest?.("input, select, textarea")) return;
    const isButton = event.target.closest?.("button") !== null;
    const leap = event.shiftKey ? LEAP : 1;
    const acts = {
      ArrowLeft: () => this.#step(-leap),
      ArrowRight: () => this.#step(leap),
      Home: () => this.#step(-Infinity),
      End: () => this.#step(Infinity),
      n: () => this.#leapToMark(1),
      p: () => this.#leapToMark(-1),
    };
    if (!isButton) acts[" "] = () => this.play();
    if (!(event.key in acts)) return;
    event.preventDefault();
    acts[event.key]();
  }

  #leapToMark(direction) {
    const { frames, marks } = this.#document;
    const places = marks.map(({ frame }) => indexOf(frames, frame)).sort((one, other) => one - other);
    const next =
      direction > 0
        ? places.find((place) => place > this.#index)
        : places.findLast((place) => place < this.#index);
    if (next === undefined) return;
    this.play(false);
    this.go(next);
  }

  #look(name) {
    this.#looked = name;
    const count = this.#document.frames.length;
    this.#line.use(rewardsOf(this.#scenes, count, name));
    setText(this.#parts.drawn, name ? `reward of ${name}` : "mean reward of the agents");
    this.#draw(true);
  }

  #build() {
    const { frames, marks, notes, failure } = this.#document;
    const parts = this.#parts;
    this.#line = new TimeLine(this.#document, (index) => {
      this.play(false);
      this.go(index);
    });
    this.#agents = new AgentTable((name) => this.#look(name === this.#looked ? "" : name));
    parts.title = element("strong");
    parts.call = element("code");
    parts.mark = element("span", { className: "mark-text" });
    parts.drawn = element("span", { className: "quiet" });
    parts.slider = element("input", { type: "range", min: "0", max: String(Math.max(0, frames.length - 1)), "aria-label": "frame" });
    parts.slider.addEventListener("input", () => this.#step(Number(parts.slider.value) - this.#index));
    parts.play = control("Play", "play (space)", () => this.play());
    parts.rate = element("select", { "aria-label": "frames a second" });
    parts.rate.append(...RATES.map((rate) => element("option", { value: String(rate), selected: rate === 30 }, `${rate} a second`)));
    parts.rate.addEventListener("change", () => this.#playing && this.play(true));
    const buttons = element(
      "div",
      { className: "buttons" },
      control("|◀", "first frame (Home)", () => this.#step(-Infinity)),
      control("◀", "back (←)", () => this.#step(-1)),
      parts.play,
      control("▶", "forward (→)", () => this.#step(1)),
      control("▶|", "last frame (End)", () => this.#step(Infinity)),
      ...(marks.length > 0
        ? [
            control("◂ mark", "mark before (p)", () => this.#leapToMark(-1)),
            control("mark ▸", "next mark (n)", () => this.#leapToMark(1)),
          ]
        : []),
      parts.rate,
    );
    const broken = marks.find(({ kind }) => kind === "differs" || kind === "failed");
    if (broken) {
      const text = broken.kind === "differs" ? "to the first frame that differs" : "to the failure";
      const leap = () => this.#step(indexOf(frames, broken.frame) - this.#index);
      buttons.append(control(text, text, leap));
    }
    const time = element(
      "section",
      { className: "card time" },
      element("p", { className: "present" }, parts.title, parts.call, parts.mark, parts.drawn),
      this.#line.root, parts.slider, buttons,
    );
    const left = [];
    if (this.#scenes.hasPlane) {
      const canvas = element("canvas", { className: "plane" });
      this.#plane = new Plane(canvas);
      canvas.addEventListener("click", ({ offsetX, offsetY }) => {
        const name = this.#plane.at(offsetX, offsetY);
        if (name) this.#look(name);
      });
      left.push(element("section", { className: "card plane-box", "aria-label": "Agents in the plane" }, canvas));
    }
    parts.agentsNote = element("p", { className: "quiet" });
    left.push(element("section", { className: "card" }, element("h2", {}, "Agents"), this.#agents.root, parts.agentsNote));
    const panel = (title) => {
      const note = element("p", { className: "quiet" }, "none in this frame");
      const values = element("div", { className: "values" });
      const head = element("h2", {}, title);
      return { head, root: element("section", { className: "card" }, head, note, values), shown: new ValuePanel(values, note) };
    };
    parts.observed = panel("Observation");
    parts.acted = panel("Action");
    this.#observed = parts.observed.shown;
    this.#acted = parts.acted.shown;
    parts.lines = element("ol", { className: "lines" });
    parts.linesBox = element("section", { className: "card" }, element("h2", {}, "Log"), parts.lines);
    setShown(parts.linesBox, this.#document.lines.length > 0);
    const right = [parts.observed.root, parts.acted.root, parts.linesBox];
    const hasAgents = this.#scenes.hasAgents;
    for (const part of [...left, ...right.slice(0, 2), parts.drawn]) setShown(part, hasAgents);
    if (failure) left.push(failureOf(failure));
    const said = notes.map((note) => element("li", {}, note));
    const noteList = element("ul", { className: "notes quiet" }, ...said);
    setShown(noteList, said.length > 0);
    if (frames.length === 0) return [element("p", { className: "card" }, "The trace has no frames."), noteList];
    const column = (cards) => element("div", { className: "column" }, ...cards);
    return [time, element("div", { className: "columns" }, column(left), column(right)), noteList];
  }

  #draw(isForced) {
    const { frames, marks, last } = this.#document;
    if (frames.length === 0 || (!isForced && this.#index === this.#drawn)) return;
    const parts = this.#parts;
    const scene = this.#scenes.at(this.#index);
    const { frame, call, stopped, submits } = scene.frame;
    setText(parts.title, `frame ${frame.toLocaleString("en")} of ${last.toLocaleString("en")}`);
    setText(parts.call, call);
    const here = marks.filter((mark) => mark.frame === frame);
    setText(parts.mark, [...new Set([...here.map(({ text }) => text), stopped])].filter(Boolean).join("; "));
    parts.mark.classList.toggle("trouble", here.some(({ kind }) => kind in INKS && kind !== "chosen"));
    parts.slider.value = String(this.#index);
    parts.slider.setAttribute("aria-valuetext", `frame ${frame}`);
    this.#drawPlane(scene);
    this.#drawn = this.#index;
    this.#line.draw(this.#index);
    this.#agents.show(scene, this.#looked);
    const rows = submits.reduce((sum, submit) => sum + submit.rows, 0);
    const refused = submits.filter(({ code }) => code !== 0 && code !== null).map(({ code }) => code);
    const told = [
      scene.isFresh ? "" : `no submit in this frame${scene.actors.length > 0 ? ": the newest rows before it are shown" : ""}`,
      rows > scene.actors.length && scene.isFresh ? `${rows - scene.actors.length} more rows were left out` : "",
      scene.actors.length > ROWS ? `the first ${ROWS} are listed` : "",
      refused.length > 0 ? `a submit was refused with code ${refused.join(", ")}` : "",
    ].filter(Boolean);
    setText(parts.agentsNote, told.join("; "));
    this.#showValues(scene);
    this.#showLines(frame);
  }

  /** Draw the plane; after a leap with the trails that a way forwards would have left. */
  #drawPlane(scene) {
    if (!this.#plane) return;
    if (this.#index !== this.#drawn && this.#index !== this.#drawn + 1) {
      this.#plane.clearTrails();
      for (let index = Math.max(0, this.#index - TRAIL); index < this.#index; index += 1) {
        this.#plane.follow(this.#scenes.at(index));
      }
    }
    this.#plane.draw(scene, "", this.#looked);
  }

  #showValues(scene) {
    const actor = scene.actor(this.#looked) ?? (this.#looked ? null : scene.actors[0]);
    const { observed, acted } = this.#parts;
    const name = actor?.name ?? this.#looked;
    setText(observed.head, name ? `${name} observes` : "Observation");
    setText(acted.head, name ? `${name} acts` : "Action");
    if (!actor) return;
    this.#observed.show(actor);
    this.#acted.show({ actorClass: actor.actorClass.actions, observation: actor.acted });
  }

  #showLines(frame) {
    const { lines } = this.#document;
    let end = lines.findIndex((line) => line.frame > frame);
    if (end < 0) end = lines.length;
    const shown = lines.slice(Math.max(0, end - LINES), end).map((line) => {
      const isNow = line.frame === frame;
      const go = element("button", { type: "button", className: "frame", title: "to this frame" }, String(line.frame));
      go.addEventListener("click", () => this.#step(indexOf(this.#document.frames, line.frame) - this.#index));
      return element("li", { className: `${line.level}${isNow ? " now" : ""}` }, go, element("span", {}, line.text));
    });
    if (shown.length === 0) shown.push(element("li", { className: "none" }, "no line yet"));
    this.#parts.lines.replaceChildren(...shown);
  }
}
