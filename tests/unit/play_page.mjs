// Answers questions about the modules of the page that need no browser: stdin {name: [arguments]}.

import { readFileSync } from "node:fs";

const given = JSON.parse(readFileSync(0, "utf-8"));
const module = (name) => import(new URL(`${name}.js`, given.folder));
const { endpointOf, linkIn, takeLink } = await module("link");
const shared = (name) => import(new URL(`${name}.js`, given.shared));
const { actionOf, isAllowed, mappingOf } = await shared("mapping");
const { Scene } = await shared("scene");
const { imageOf, imageShape, pixelsOf } = await shared("pictures");
const { cellsOf } = await shared("grids");
const { presentOf } = await shared("entities");
const { Range } = await shared("ranges");
const { short } = await shared("dom");
const { RunPolicy } = await shared("ark_run_policy");

/** A window of which only what `takeLink` takes is there. */
function fakePage({ hash, stored }) {
  const items = new Map(Object.entries(stored));
  const page = {
    location: { hash, pathname: "/play/" },
    history: { replaceState: (_, __, address) => (page.address = address) },
    sessionStorage: {
      getItem: (name) => items.get(name) ?? null,
      setItem: (name, value) => items.set(name, value),
    },
  };
  return page;
}

function unbounded(values) {
  return values.map((value) => (value === null ? Infinity : value === "-" ? -Infinity : value));
}

const answers = {
  link: (fragment) => linkIn(fragment),
  endpoint: (origin, token) => endpointOf(origin, token),
  taken: (page) => {
    const made = fakePage(page);
    const first = takeLink(made);
    made.location.hash = "";
    return { first, again: takeLink(made), address: made.address };
  },
  mapping: ({ low, high, branches, names = [], choices = [] }) =>
    mappingOf({ low: unbounded(low), high: unbounded(high), branches, names, choices }),
  actions: ({ cases, ...actions }) => {
    const mapping = answers.mapping(actions);
    return cases.map(({ keys = [], values = [], rests = [], pad = null, allowed = [] }) => {
      const held = { keys: new Set(keys), values: new Map(values), rests: new Map(rests), pad };
      return actionOf(mapping, held, allowed);
    });
  },
  late: (branches, states, masks) => {
    const count = states.length;
    const width = 1 + branches.length;
    const actions = new Float32Array(count * width);
    const policy = new RunPolicy({ act: () => void actions.fill(0.5) }, branches);
    policy.act({
      key: 1,
      ids: BigUint64Array.from(states.keys(), BigInt),
      features: new Float32Array(count),
      rewards: new Float32Array(count),
      states,
      masks: masks && Uint8Array.from(masks.flat()),
      actions,
      values: new Float32Array(count),
    });
    return [...states.keys()].map((row) => [...actions.subarray(row * width, (row + 1) * width)]);
  },
  allowed: (allowed, branch, choice) => isAllowed(allowed, branch, choice),
  returns: (views) => {
    const scene = new Scene("trial", [{ name: "a", actorClass: {} }]);
    for (const [tickId, reward, observation] of views) {
      const view = { tickId, observations: [observation], players: [], rewards: [reward] };
      scene.view(tickId * 100, { ...view, actions: [] });
    }
    const [actor] = scene.actors;
    const { missed, rate } = scene;
    return { present: actor.return, ended: actor.ended, missed, rate };
  },
  image: (shape) => imageShape(shape),
  imagePart: (part) => imageOf(part),
  imagePixels: (values, part) => [...pixelsOf(values, imageOf(part), 0, 255)],
  cells: (values, shape, most) => cellsOf(values, shape, most),
  present: (counts, most) => counts.map((count) => presentOf(Number(count), most)),
  short: (values, low, high) => {
    const { extent } = new Range(low ?? -Infinity, high ?? Infinity);
    return values.map((value) => short(value, extent));
  },
  pixels: (values, shape, low, high) => [...pixelsOf(values, imageShape(shape), low, high)],
};

const results = given.questions.map(([name, ...values]) => answers[name](...values));
process.stdout.write(JSON.stringify(results));
