"use strict";

// A value as a tree that opens step by step: a megabyte costs no more than what is open.

const AT_ONCE = 100;
const LONGEST = 1000;
const ONE_LINE = 70;
const OPEN_ENTRIES = 12;
const MOST_OPEN = 60;
const CUT = "…cut"; // as worker/ui/opened.py writes what is too large

/**
 * A value of JSON; with `link(place)` its keys lead to the page of their place, `whole(place)` fetches what came cut.
 * What is small is open, so far as `left` branches may be.
 */
function tree(
  value,
  { place = null, link = null, whole = null, label = null, open = true, left = { open: MOST_OPEN } } = {},
) {
  const name = place && link ? make("a", { href: link(place) }, label) : label;
  const key = label === null ? null : make("span", { class: "key" }, name, ": ");
  if (isCutValue(value)) return make("div", { class: "leaf" }, key, abridged(value[CUT], place, whole));
  if (isShort(value)) return make("div", { class: "leaf" }, key, scalar(value));
  const keys = Object.keys(value);
  const isSmall = keys.length <= OPEN_ENTRIES;
  const size = Array.isArray(value) ? `list of ${counted(keys.length)}` : `object of ${plural(keys.length, "field")}`;
  const entries = make("div", { class: "entries", hidden: true });
  const more = (from) => {
    const to = Math.min(from + AT_ONCE, keys.length);
    for (const key of keys.slice(from, to)) {
      const inner = place && inside(place, key, Array.isArray(value));
      entries.append(tree(value[key], { place: inner, link, whole, label: key, open: isSmall, left }));
    }
    const go = (event) => (event.target.remove(), more(to));
    const rest = `${counted(keys.length - to)} more`;
    if (to < keys.length) entries.append(make("button", { type: "button", on: { click: go } }, rest));
  };
  const turn = () => {
    entries.hidden = !entries.hidden;
    toggle.setAttribute("aria-expanded", String(!entries.hidden));
    toggle.textContent = entries.hidden ? "▸" : "▾";
    if (!entries.firstChild) more(0);
  };
  const told = {
    type: "button",
    class: "toggle",
    "aria-expanded": "false",
    "aria-label": `${label ?? "value"}, ${size}`,
  };
  const toggle = make("button", { ...told, on: { click: turn } }, "▸");
  if (open && left.open > 0) {
    left.open -= 1;
    turn();
  }
  return make("div", { class: "branch" }, toggle, key, make("span", { class: "size" }, size), entries);
}

// Paths, as the server writes them. Numbers in brackets are keys of objects, those behind a dot are places in a list.

const PLAIN = /^(?!(?:0|[1-9]\d{0,17})$)[^\s\x1c-\x1f\x85.[\]|&†}]+$/u;

/** The path of a part of what is at a path. */
const inside = (path, key, isElement) => path + (isElement || PLAIN.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`);

/** The keys of a path, its kind the first. */
const keysOf = (path) =>
  [...path.matchAll(/\[("(?:[^"\\]|\\.)*")\]|[^.[†]+/g)].map(([key, quoted]) => (quoted ? JSON.parse(quoted) : key));

/** What is at a place: `{value}`, `{isCut}` where something above it came cut, or nothing. */
function valueAt(data, keys) {
  let value = data;
  for (const key of keys) {
    if (isCutValue(value)) return { isCut: true };
    if (typeof value !== "object" || value === null || !Object.keys(value).includes(key)) return {};
    value = value[key];
  }
  return { value };
}

const isCutValue = (value) => isObject(value) && Object.hasOwn(value, CUT) && isObject(value[CUT]);

/** A value that came cut: how it begins and ends, its size, and where the whole one is had. */
function abridged({ bytes: size, head, tail }, place, whole) {
  const go = () => whole(place);
  const button = place && whole ? make("button", { type: "button", on: { click: go } }, "Download all of it") : null;
  const told = make("span", { class: "size" }, `${bytes(size)}, of which this is the beginning and the end. `);
  return [told, button, make("span", { class: "scalar text abridged", tabindex: "0" }, head, " … ", tail)];
}

/** Whether a value is shown on one line: what holds nothing, or nothing but a few short scalars. */
function isShort(value) {
  if (!isObject(value) && !Array.isArray(value)) return true;
  const inside = Array.isArray(value) ? value : Object.values(value);
  if (inside.length > 6 || inside.some((one) => isObject(one) || Array.isArray(one))) return false;
  return line(value).length <= ONE_LINE;
}

/** A value as JSON on one line. */
function line(value) {
  if (value instanceof Exact) return value.source;
  if (Array.isArray(value)) return `[${value.map(line).join(", ")}]`;
  if (!isObject(value)) return JSON.stringify(value);
  return `{${Object.keys(value)
    .map((key) => `${JSON.stringify(key)}: ${line(value[key])}`)
    .join(", ")}}`;
}

/** The fields of an object one below the other, each as a tree. */
function fields(value) {
  if (!isObject(value) || isCutValue(value)) return tree(value);
  return make(
    "div",
    { class: "fields" },
    Object.keys(value).map((key) => tree(value[key], { label: key })),
  );
}

function scalar(value) {
  if (typeof value !== "string") return make("span", { class: "scalar" }, line(value));
  if (value.length <= LONGEST) return make("span", { class: "scalar text" }, value === "" ? '""' : value);
  const shown = make("span", { class: "scalar text" }, value.slice(0, LONGEST) + " …");
  const all = () => {
    refill(shown, value);
    button.remove();
  };
  const button = make("button", { type: "button", on: { click: all } }, `all ${counted(value.length)} characters`);
  return make("span", {}, shown, " ", button);
}

/** JSON as one writes it, for a text that a person changes. */
function written(value, indent = "") {
  const inner = indent + "  ";
  if (value instanceof Exact) return value.source;
  if (Array.isArray(value) && value.length)
    return `[\n${value.map((one) => inner + written(one, inner)).join(",\n")}\n${indent}]`;
  if (isObject(value) && Object.keys(value).length) {
    return `{\n${Object.keys(value)
      .map((key) => `${inner}${JSON.stringify(key)}: ${written(value[key], inner)}`)
      .join(",\n")}\n${indent}}`;
  }
  return JSON.stringify(value);
}
