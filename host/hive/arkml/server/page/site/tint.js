// Colors with an opacity.

/** Return a color "rgb(...)" with an opacity; any other one as it is. */
export function faint(color, opacity) {
  return color.replace(/^rgb\((.*)\)$/, `rgba($1, ${opacity})`);
}
