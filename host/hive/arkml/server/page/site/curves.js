// Curves as they are drawn: their axis, smoothing, thinning, bands of seeds. No browser needed.

export const MOST_POINTS = 1_000;
const KEPT_POINTS = 800; // of a curve that grows beyond that, so that not every point thins it again

/** Return points [step, value, at] with newer ones, in the order of their times, each once. */
export function joined(points, newer) {
  const last = points.length ? points[points.length - 1][2] : -1;
  const later = newer.filter((point) => point[2] > last);
  if (later.length === newer.length) return points.concat(newer);
  const times = new Set(points.map((point) => point[2]));
  const fresh = newer.filter((point) => !times.has(point[2]));
  return points.concat(fresh).sort((a, b) => a[2] - b[2]);
}

/**
 * Return at most `most` points of a curve: the lowest and the highest of each part, and the last.
 *
 * `place` gives the place of a point on the axis, by default its time.
 */
export function thinned(points, most = MOST_POINTS, place = (point) => point[2]) {
  if (points.length <= most) return points;
  const first = place(points[0]);
  const last = place(points[points.length - 1]);
  const parts = Math.max(1, Math.floor((most - 1) / 2));
  const width = (last - first) / parts || 1;
  const kept = new Set([points.length - 1]);
  const extremes = new Map();
  points.forEach((point, index) => {
    const part = Math.min(parts - 1, Math.floor((place(point) - first) / width));
    const known = extremes.get(part);
    if (!known) extremes.set(part, [index, index]);
    else if (point[1] < points[known[0]][1]) known[0] = index;
    else if (point[1] > points[known[1]][1]) known[1] = index;
  });
  for (const pair of extremes.values()) pair.forEach((index) => kept.add(index));
  return [...kept].sort((a, b) => a - b).map((index) => points[index]);
}

/** Return a curve that has grown with at most `MOST_POINTS` points. `place` as for `thinned`. */
export function bounded(points, place) {
  return points.length > MOST_POINTS ? thinned(points, KEPT_POINTS, place) : points;
}

/**
 * Return values smoothed exponentially, as TensorBoard does: `weight` 0 leaves them as they are.
 *
 * The first values are not drawn towards zero.
 */
export function smoothed(values, weight) {
  if (!(weight > 0)) return values;
  let sum = 0;
  let share = 1;
  return values.map((value) => {
    sum = weight * sum + (1 - weight) * value;
    share *= weight;
    return sum / (1 - share);
  });
}

/** Return the value of a curve at a place between its points; null outside of them. */
export function valueAt(xs, ys, x) {
  if (!xs.length || x < xs[0] || x > xs[xs.length - 1]) return null;
  let low = 0;
  let high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle;
  }
  if (xs[high] === xs[low] || high === low) return ys[high];
  const share = (x - xs[low]) / (xs[high] - xs[low]);
  return ys[low] + share * (ys[high] - ys[low]);
}

/**
 * Return the values of a curve on an axis: {xs, ys}.
 *
 * `kind` is "rows", "time" (milliseconds since the Unix epoch), "age" (seconds since `started`, in
 * nanoseconds) or "updates", for which `updates` are the points of train/n_updates.
 */
export function onAxis(points, kind, { updates = [], started = 0 } = {}) {
  const ys = points.map((point) => point[1]);
  switch (kind) {
    case "time":
      return { xs: points.map((point) => point[2] / 1e6), ys };
    case "age":
      return { xs: points.map((point) => (point[2] - started) / 1e9), ys };
    case "updates": {
      const times = updates.map((point) => point[2]);
      const counts = updates.map((point) => point[1]);
      const placed = points
        .map((point) => [countAt(times, counts, point[2]), point[1]])
        .filter((pair) => pair[0] !== null);
      return { xs: placed.map((pair) => pair[0]), ys: placed.map((pair) => pair[1]) };
    }
    default:
      return { xs: points.map((point) => point[0]), ys };
  }
}

/** Return the number of updates at a time: before the first report 0, after the last that. */
function countAt(times, counts, at) {
  if (!times.length) return null;
  if (at <= times[0]) return at === times[0] ? counts[0] : 0;
  return valueAt(times, counts, at) ?? counts[counts.length - 1];
}

/**
 * Return several curves {xs, ys} as one: {xs, middle, low, high}, the median and the extremes.
 *
 * The places are those that all curves reach, `most` at most.
 */
export function band(curves, most = 400) {
  const given = curves.filter((curve) => curve.xs.length);
  if (!given.length) return { xs: [], middle: [], low: [], high: [] };
  const first = Math.max(...given.map((curve) => curve.xs[0]));
  const last = Math.min(...given.map((curve) => curve.xs[curve.xs.length - 1]));
  const places = [...new Set(given.flatMap((curve) => curve.xs))]
    .filter((x) => x >= first && x <= last)
    .sort((a, b) => a - b);
  const step = Math.max(1, Math.ceil(places.length / most));
  const xs = places.filter((_, index) => index % step === 0 || index === places.length - 1);
  const sorted = xs.map((x) =>
    given.map((curve) => valueAt(curve.xs, curve.ys, x)).sort((a, b) => a - b)
  );
  const middleOf = (values) => {
    const half = values.length >> 1;
    return values.length % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
  };
  return {
    xs,
    middle: sorted.map(middleOf),
    low: sorted.map((values) => values[0]),
    high: sorted.map((values) => values[values.length - 1]),
  };
}

/** Return the points of a line of `width` by `height` for SVG, empty without values. */
export function sparkline(values, width, height) {
  const finite = values.filter(Number.isFinite);
  if (finite.length < 2) return "";
  const low = Math.min(...finite);
  const span = Math.max(...finite) - low || 1;
  return finite
    .map((value, index) => {
      const x = (index / (finite.length - 1)) * width;
      return `${x.toFixed(1)},${(height - 1 - ((value - low) / span) * (height - 2)).toFixed(1)}`;
    })
    .join(" ");
}
