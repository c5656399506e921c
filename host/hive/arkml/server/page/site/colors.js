// The colors of the style sheet, as charts take them, and the switch between light and dark.

const THEMES = ["auto", "light", "dark"];
const KEY = "arkml.theme";
const DASHES = [[], [7, 3], [2, 3], [7, 3, 2, 3], [12, 4]]; // pixels drawn, and left out
const SIGNS = ["──", "╌╌", "┈┈", "╌┈", "━ ━"]; // the dashes as text
const MARKS = ["star", "square", "diamond", "cross", "triangle-up"];

/** Return the colors that charts need, as the theme has them now. */
export function palette() {
  const probe = document.createElement("span");
  document.body.append(probe);
  const color = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const colors = {
    text: color("--text"),
    quiet: color("--quiet"),
    line: color("--line"),
    card: color("--card"),
    runs: Array.from({ length: 8 }, (_, index) => color(`--run-${index}`)),
    heat: ["--card", "--heat-1", "--heat-2", "--heat-3"].map(color),
  };
  probe.remove();
  return colors;
}

/**
 * Return the looks of a group by its place: {color, dash, mark}. When the colors are used up, the
 * dashes and the marks of the next ones differ: 40 groups before one looks like another.
 */
export function styleOf(index, colors) {
  const round = Math.floor(index / colors.runs.length);
  return {
    color: colors.runs[index % colors.runs.length],
    dash: DASHES[round % DASHES.length],
    mark: MARKS[round % MARKS.length],
  };
}

/** Return a dash as text, by the place of what is drawn with it. */
export function dashSign(index) {
  return SIGNS[index % SIGNS.length];
}

/** Set up the switch; `changed` is called with each change of colors. */
export function setUpTheme(button, changed) {
  let theme = THEMES.includes(read()) ? read() : "auto";
  const show = () => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = { auto: "◐ auto", light: "☀ light", dark: "☾ dark" }[theme];
    button.setAttribute("aria-label", `colors: ${theme}; change`);
  };
  button.onclick = () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // a browser that keeps nothing still changes the page
    }
    show();
    changed();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  show();
}

function read() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}
