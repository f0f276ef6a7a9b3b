"use strict";

// The plan as the answer draws it. Its picture is read as XML and taken in part by part: what is not known is refused.

const PARTS = new Set(
  "svg g path rect line polyline polygon circle ellipse text tspan title desc defs marker".split(" "),
);
const PART_ATTRIBUTES = new Set(
  (
    "class d x y x1 y1 x2 y2 cx cy r rx ry dx dy width height points transform viewBox preserveAspectRatio text-anchor dominant-baseline role tabindex " +
    "refX refY orient markerWidth markerHeight markerUnits pathLength textLength lengthAdjust stroke-dasharray font-size font-weight"
  ).split(" "),
);
const PART_VALUES = {
  id: /^[\w-]+$/,
  "marker-end": /^url\(#[\w-]+\)$/,
  "marker-start": /^url\(#[\w-]+\)$/,
  fill: /^(none|currentColor)$/,
  stroke: /^(none|currentColor)$/,
};
const LEAST_SCALE = 0.7;
const STEPS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

/** A picture from its text. Throws where it holds anything that no plan has. */
function picture(text) {
  const parsedPicture = new DOMParser().parseFromString(text, "image/svg+xml");
  const take = (element) => {
    if (element.namespaceURI !== SVG || !PARTS.has(element.localName))
      throw new Refusal(`The plan's picture holds <${element.localName}>, which is not shown.`);
    const copy = document.createElementNS(SVG, element.localName);
    for (const { name, value, namespaceURI } of element.attributes) {
      if (name === "xmlns") continue;
      const isKnown = PART_ATTRIBUTES.has(name) || /^(aria|data)-[a-z-]+$/.test(name) || PART_VALUES[name]?.test(value);
      if (!isKnown || namespaceURI !== null)
        throw new Refusal(`The plan's picture holds ${name}="${value}", which is not shown.`);
      copy.setAttribute(name, visible(value));
    }
    for (const child of element.childNodes) {
      if (child.nodeType === Node.ELEMENT_NODE) copy.append(take(child));
      else if (child.nodeType === Node.TEXT_NODE) copy.append(visible(child.data));
    }
    return copy;
  };
  return take(parsedPicture.documentElement);
}

/** The plan with what one clicks and steps through; `go(call, status)` is where a click leads. */
function planPicture(svg, current, go) {
  const drawn = picture(svg);
  // Counts are for the pointer: a call says its counts in its own label, and its page has them as links.
  for (const count of drawn.querySelectorAll("[data-call] [data-status]"))
    for (const name of ["role", "tabindex", "aria-label"]) count.removeAttribute(name);
  drawn.style.minWidth = `${LEAST_SCALE * drawn.getAttribute("width")}px`; // smaller than that nobody reads it
  const nodes = [...drawn.querySelectorAll("[data-call][tabindex]")];
  const chosen = nodes.find((node) => node.dataset.call === String(current)) ?? nodes[0];
  for (const node of nodes) node.setAttribute("tabindex", node === chosen ? "0" : "-1");
  for (const node of nodes)
    if (node.dataset.call === String(current))
      (node.classList.add("current"), node.setAttribute("aria-current", "true"));
  drawn.addEventListener("click", (event) => {
    const call = event.target.closest("[data-call]");
    if (call !== null) go(call.dataset.call, event.target.closest("[data-status]")?.dataset.status ?? null);
  });
  drawn.addEventListener("keydown", (event) => {
    const call = event.target.closest("[data-call]");
    if (call === null || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") go(call.dataset.call, null);
    else if (STEPS[event.key]) stepTo(nextNode(nodes, call, STEPS[event.key]), nodes);
    else if (event.key === "Home" || event.key === "End") stepTo(nodes.at(event.key === "Home" ? 0 : -1), nodes);
    else return;
    event.preventDefault();
  });
  return drawn;
}

function stepTo(node, nodes) {
  if (!node) return;
  for (const other of nodes) other.setAttribute("tabindex", other === node ? "0" : "-1");
  node.focus();
}

/** The nearest call in a direction; what lies aside counts double. */
function nextNode(nodes, from, [right, down]) {
  const centre = (node) => {
    const box = node.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  };
  const [x, y] = centre(from);
  let best = null;
  let least = Infinity;
  for (const node of nodes) {
    if (node === from) continue;
    const [dx, dy] = [centre(node)[0] - x, centre(node)[1] - y];
    const along = dx * right + dy * down;
    const aside = Math.abs(right ? dy : dx);
    if (along > 1 && along + 2 * aside < least) [best, least] = [node, along + 2 * aside];
  }
  return best;
}
