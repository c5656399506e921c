// Elements of SVG, and the scales of axes. Texts become text, never markup.

/** Return a new element of SVG with attributes and children; texts are children, too. */
export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
