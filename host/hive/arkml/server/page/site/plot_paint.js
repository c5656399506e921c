// What is painted onto a plot besides its lines: marks, changes of modules, maps of histograms.

const DASHES = {
  solid: [], dot: [2, 3], dash: [7, 4], longdash: [12, 4], dashdot: [7, 3, 2, 3], longdashdot: [12, 3, 2, 3],
};
const LARGEST = 11; // pixels of a mark, which may lie at an edge
const VERSION = 9; // pixels of the line of a version
const APART = 70; // pixels between two marks of a line

/** The corners of marks, in shares of their radius. */
const SHAPES = {
  square: [[-0.85, -0.85], [0.85, -0.85], [0.85, 0.85], [-0.85, 0.85]],
  diamond: [[0, -1.2], [1.2, 0], [0, 1.2], [-1.2, 0]],
  "triangle-up": [[0, -1.1], [1.1, 0.9], [-1.1, 0.9]],
  "triangle-down": [[0, 1.1], [1.1, -0.9], [-1.1, -0.9]],
  cross: corners(4, 1.2, 0.35),
  star: corners(5, 1.25, 0.5),
};

function corners(count, outer, inner) {
  return Array.from({ length: 2 * count }, (_, index) => {
    const turn = (Math.PI * index) / count;
    const radius = index % 2 ? inner : outer;
    return [radius * Math.sin(turn), -radius * Math.cos(turn)];
  });
}

/** Return a dash as pixels: a list of them, or a name. */
export function dashOf(dash) {
  return Array.isArray(dash) ? dash : DASHES[dash] ?? [];
}

/** Paint inside of the axes of a plot, or up to some pixels around them. */
export function inside(plot, paint, around = 0) {
  const { ctx, bbox } = plot;
  const ratio = ctx.canvas.width / plot.width;
  const more = around * ratio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left - more, bbox.top - more, bbox.width + 2 * more, bbox.height + 2 * more);
  ctx.clip();
  paint(ctx, ratio);
  ctx.restore();
}

/** Paint the marks of traces: of each point, or some along a line that has a `mark`. */
export function paintMarks(plot, traces) {
  inside(plot, (ctx, ratio) => {
    for (const trace of traces) {
      if (trace.mode !== "markers" && !trace.mark) continue;
      const { color, size = 6, symbol = "circle" } = trace.marker;
      const radius = (size / 2) * ratio;
      const apart = trace.mode === "markers" ? 0 : APART * ratio;
      ctx.fillStyle = color;
      let last = -Infinity;
      trace.x.forEach((x, index) => {
        const left = plot.valToPos(x, "x", true);
        const top = plot.valToPos(trace.y[index], "y", true);
        if (!Number.isFinite(top) || left - last < apart) return;
        last = left;
        paintMark(ctx, trace.mark ?? symbol, left, top, radius);
      });
    }
  }, LARGEST / 2);
}

function paintMark(ctx, symbol, left, top, radius) {
  ctx.beginPath();
  const shape = SHAPES[symbol];
  if (!shape) ctx.arc(left, top, radius, 0, 2 * Math.PI);
  else shape.forEach(([x, y]) => ctx.lineTo(left + x * radius, top + y * radius));
  ctx.fill();
}

/** Paint a dotted line, with a word, at each place where the module of a guest has changed. */
export function paintChanges(plot, changes) {
  const { top, height } = plot.bbox;
  inside(plot, (ctx, ratio) => {
    ctx.font = `${9 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "top";
    ctx.lineWidth = ratio;
    ctx.setLineDash([2 * ratio, 3 * ratio]);
    for (const { x, color, text } of changes) {
      const left = plot.valToPos(x, "x", true);
      ctx.strokeStyle = color;
      ctx.fillStyle = color;
      ctx.beginPath();
      ctx.moveTo(left, top);
      ctx.lineTo(left, top + height);
      ctx.stroke();
      ctx.fillText(text, left + 3 * ratio, top + ratio);
    }
  });
}

/** Paint a short line on the axis for each version that may be watched. */
export function paintVersions(plot, versions, color) {
  const bottom = plot.bbox.top + plot.bbox.height;
  inside(plot, (ctx, ratio) => {
    ctx.strokeStyle = color;
    ctx.lineWidth = 1.5 * ratio;
    ctx.beginPath();
    for (const { x } of versions) {
      const left = plot.valToPos(x, "x", true);
      ctx.moveTo(left, bottom - VERSION * ratio);
      ctx.lineTo(left, bottom);
    }
    ctx.stroke();
  }, 1);
}

/** Paint a map of shares {x, edges, z, colors}: a cell for each place and each bin. */
export function paintHeat(plot, { x, edges, z, colors }) {
  const highest = Math.max(...z.map((row) => Math.max(...row)), Number.MIN_VALUE);
  const across = x.map((place) => plot.valToPos(place, "x", true));
  const up = edges.map((edge) => plot.valToPos(edge, "y", true));
  const ramp = rampOf(colors);
  const ends = endsOf(across);
  inside(plot, (ctx) => {
    z.forEach((row, bin) => {
      const [bottom, top] = [Math.round(up[bin]), Math.round(up[bin + 1])];
      row.forEach((share, index) => {
        const [left, right] = [Math.round(ends[index]), Math.round(ends[index + 1])];
        ctx.fillStyle = ramp(share / highest);
        ctx.fillRect(left, top, Math.max(1, right - left), Math.max(1, bottom - top));
      });
    });
  });
}

/** Return where cells begin and end: half-way between their places. */
function endsOf(places) {
  const half = ((places[1] ?? places[0] + 40) - places[0]) / 2;
  const ends = [places[0] - half];
  places.slice(1).forEach((place, index) => ends.push((places[index] + place) / 2));
  ends.push(2 * places.at(-1) - ends.at(-1));
  return ends;
}

/** Return a function from a share of one to a color between those of a list of `rgb(…)`. */
function rampOf(colors) {
  const parts = colors.map((color) => color.match(/[\d.]+/g).map(Number));
  const made = Array.from({ length: 64 }, (_, step) => {
    const place = (step / 63) * (parts.length - 1);
    const low = Math.min(Math.floor(place), parts.length - 2);
    const mixed = [0, 1, 2].map((i) => parts[low][i] + (place - low) * (parts[low + 1][i] - parts[low][i]));
    return `rgb(${mixed.map(Math.round).join(", ")})`;
  });
  return (share) => made[Math.round(63 * Math.min(1, Math.max(0, share)))];
}
