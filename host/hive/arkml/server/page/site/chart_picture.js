// A chart as a picture: its title, its plot and the names of its lines.

const [WIDTH, HEIGHT, HEAD, LINE] = [1_000, 460, 40, 20]; // pixels
const MOST = 12; // lines of the legend
const COLUMN = 480;

/** Return a plot with a title as a PNG. */
export async function pictureOf(plot, title, colors) {
  const named = plot.traces.filter((trace) => trace.name && !trace.isAside && trace.line).slice(0, MOST);
  const lines = named.length > 1 ? named : [];
  const canvas = document.createElement("canvas");
  canvas.width = WIDTH;
  canvas.height = HEAD + HEIGHT + Math.ceil(lines.length / 2) * LINE + 10;
  const drawn = await plot.canvas(WIDTH - 20, HEIGHT);
  const ctx = canvas.getContext("2d");
  ctx.fillStyle = colors.card;
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.fillStyle = colors.text;
  ctx.font = "600 16px system-ui, sans-serif";
  ctx.fillText(title, 14, 26, WIDTH - 28);
  ctx.drawImage(drawn, 10, HEAD);
  ctx.font = "13px system-ui, sans-serif";
  lines.forEach(({ name, line }, index) => {
    const [left, top] = [14 + (index % 2) * COLUMN, HEAD + HEIGHT + (index >> 1) * LINE + 14];
    ctx.fillStyle = line.color;
    ctx.fillRect(left, top - 6, 20, 4);
    ctx.fillStyle = colors.text;
    ctx.fillText(name, left + 28, top, COLUMN - 40);
  });
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
