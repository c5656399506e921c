// The targets and walls of a game, as they lie in the plane for one row of an agent.

/** Return a coordinate of a map for an agent with these values; `own` is the agent's own one. */
function coordinateOf({ value, scale, feature, relative }, values, own) {
  const moved = scale === 0 ? 0 : scale * values[feature];
  return value + moved + (relative ? own : 0);
}

/** Return coordinates, x and y in turn, for an agent at `place`. */
function pointsOf(at, values, place) {
  return at.map((one, index) => coordinateOf(one, values, place[index % 2]));
}

/**
 * Return {targets: [{x, y, radius, name}], walls: [{from, to, box}]} of an agent's game.
 *
 * `place` is where the agent is, [x, y]. What has a coordinate that is not a number is left out.
 */
export function mapOf(game, values, place) {
  const targets = game.targets.map(({ at, radius, name }) => {
    const [x, y] = pointsOf(at, values, place);
    return { x, y, radius, name };
  });
  const walls = game.walls.map(({ at, box }) => {
    const [x, y, toX, toY] = pointsOf(at, values, place);
    return { from: { x, y }, to: { x: toX, y: toY }, box };
  });
  const isDrawn = (...points) => points.every(({ x, y }) => Number.isFinite(x) && Number.isFinite(y));
  return {
    targets: targets.filter((target) => isDrawn(target)),
    walls: walls.filter(({ from, to }) => isDrawn(from, to)),
  };
}

/** Return the points of a map that never move, which a plane has room for from the beginning. */
export function fixedPoints(game) {
  const points = [...game.targets, ...game.walls].flatMap(({ at }) =>
    [...Array(at.length / 2).keys()].map((index) => [at[2 * index], at[2 * index + 1]]),
  );
  const isFixed = ({ scale, relative }) => scale === 0 && !relative;
  return points.filter((point) => point.every(isFixed)).map(([x, y]) => ({ x: x.value, y: y.value }));
}

/** Draw walls and targets; `at` is a function to pixels, of a canvas with this height. */
export function drawMap(context, { targets, walls }, at, inks, height) {
  context.strokeStyle = inks.wall;
  context.lineWidth = 3;
  context.lineCap = "round";
  context.beginPath();
  for (const { from, to, box } of walls) {
    const [[left, top], [right, bottom]] = [at(from), at(to)];
    if (box) context.rect(left, top, right - left, bottom - top);
    else {
      context.moveTo(left, top);
      context.lineTo(right, bottom);
    }
  }
  context.stroke();
  context.lineCap = "butt";
  for (const target of targets) drawTarget(context, target, at, inks, height);
}

function drawTarget(context, { x, y, radius, name }, at, { target, text, paper }, height) {
  const [left, top] = at({ x, y });
  const [right, up] = at({ x: x + radius, y: y + radius });
  context.strokeStyle = target;
  context.lineWidth = 2.5;
  context.beginPath();
  context.ellipse(left, top, Math.max(right - left, 5), Math.max(top - up, 5), 0, 0, 2 * Math.PI);
  context.stroke();
  context.fillStyle = target;
  context.beginPath();
  context.arc(left, top, 2.5, 0, 2 * Math.PI);
  context.fill();
  if (!name) return;
  context.font = "12px system-ui, sans-serif";
  context.textAlign = "center";
  context.strokeStyle = paper;
  context.lineWidth = 4;
  context.fillStyle = text;
  const far = Math.max(top - up, 5);
  const line = top + far + 14 < height ? top + far + 14 : top - far - 6;
  context.strokeText(name, left, line);
  context.fillText(name, left, line);
}
