// What a plot is drawn from: curves side by side over one axis, and its ticks. No browser needed.

const DAY = 86_400_000; // milliseconds
const MINUTE = 60_000;
const THOUSANDS = ["", "k", "M", "G", "T"];

/**
 * Return traces {x, y} over one axis, as uPlot takes them: [places, values of the first, ...].
 *
 * A place that one trace has twice is there twice. Values are null where a trace has a gap, and
 * undefined where it has no point; on a logarithmic axis those that are not above 0 are gaps.
 */
export function aligned(traces, isLog = false) {
  const most = new Map(); // how often a place occurs in one trace
  for (const { x } of traces) {
    const own = new Map();
    for (const place of x) own.set(place, (own.get(place) ?? 0) + 1);
    for (const [place, count] of own) most.set(place, Math.max(count, most.get(place) ?? 0));
  }
  const starts = new Map();
  const places = [];
  for (const place of [...most.keys()].sort((a, b) => a - b)) {
    starts.set(place, places.length);
    for (let count = most.get(place); count; count -= 1) places.push(place);
  }
  const isShown = (value) => Number.isFinite(value) && (!isLog || value > 0);
  const columns = traces.map(({ x, y }) => {
    const column = Array(places.length).fill(undefined);
    let index = -1;
    x.forEach((place, point) => {
      const start = starts.get(place);
      index = place === x[point - 1] ? index + 1 : start;
      column[index] = isShown(y[point]) ? y[point] : null;
    });
    return column;
  });
  return [places, ...columns];
}

/** Return which columns of `aligned` are filled between, as uPlot takes it: a filled trace and the one before it. */
export function bandsOf(traces) {
  return traces.flatMap(({ fill }, index) =>
    fill ? [{ series: [index + 1, index], fill }] : []
  );
}

/** Return a range with some room around it; `fromZero` makes 0 a part of it. */
export function roomy(low, high, fromZero = false) {
  if (low === null || low === undefined) return [0, 1];
  const [from, to] = fromZero ? [Math.min(0, low), Math.max(0, high)] : [low, high];
  if (from === to) return [from - (Math.abs(from) || 1) / 2, to + (Math.abs(to) || 1) / 2];
  const room = to * 0.05 - from * 0.05; // halves would not help: the span may be beyond a float
  return [fromZero && from === 0 ? 0 : from - room, fromZero && to === 0 ? 0 : to + room];
}

/** Return a value beside a tick, with as many digits as ticks `step` apart need. */
export function tick(value, step) {
  const size = Math.abs(value);
  if (size && (size < 1e-3 || size >= 1e15)) return value.toExponential(1);
  const power = size < 10_000 ? 0 : Math.min(THOUSANDS.length - 1, Math.floor(Math.log10(size) / 3));
  const unit = 1000 ** power;
  return `${Number((value / unit).toFixed(digitsOf(step / unit)))}${THOUSANDS[power]}`;
}

/** Return how many digits after the point a step has, 12 at most. */
function digitsOf(step) {
  for (let digits = 0; digits < 12; digits += 1) {
    const scaled = step * 10 ** digits;
    if (Math.round(scaled) > 0 && Math.abs(scaled - Math.round(scaled)) < 1e-6) return digits;
  }
  return 12;
}

/** Return the texts of ticks that are times in milliseconds, `step` apart: a day where it begins. */
export function timeTicks(times, step) {
  const two = (number) => String(number).padStart(2, "0");
  const dayOf = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const dates = times.map((time) => new Date(Math.round(time / 1_000) * 1_000)); // some are a bit early
  const days = dates.map(dayOf);
  return dates.map((at, index) => {
    if (step >= DAY) return days[index];
    const seconds = step < MINUTE ? `:${two(at.getSeconds())}` : "";
    const clock = `${two(at.getHours())}:${two(at.getMinutes())}${seconds}`;
    return days[index] === days[index - 1] ? clock : `${clock}\n${days[index]}`;
  });
}

/** Return the places of the traces that are read, each once, in their order. */
export function placesOf(traces) {
  const read = traces.filter((trace) => !trace.isAside);
  return [...new Set(read.flatMap((trace) => trace.x))].sort((a, b) => a - b);
}

/** Return the index of the place that is nearest to x; `places` are sorted, and there is one. */
export function nearest(places, x) {
  let low = 0;
  let high = places.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (places[middle] <= x) low = middle;
    else high = middle;
  }
  return Math.abs(places[high] - x) < Math.abs(places[low] - x) ? high : low;
}
