"use strict";

// A value as a tree that opens step by step: a megabyte costs no more than what is open.

const AT_ONCE = 100;
const LONGEST = 1000;
const OPEN_ENTRIES = 12;
const CUT = "…cut"; // as worker/page/values.py writes what is too large

/** A value of JSON; with `link(place)` its keys lead to the page of their place. */
function tree(value, { place = null, link = null, whole = null, open = true, label = null } = {}) {
  const cut = isObject(value) && Object.hasOwn(value, CUT) && isObject(value[CUT]) ? value[CUT] : null;
  const key =
    label === null
      ? null
      : make("span", { class: "key" }, place && link ? make("a", { href: link(place) }, label) : label, ": ");
  if (cut !== null) return make("div", { class: "leaf" }, key, abridged(cut, place, whole));
  if (!isObject(value) && !Array.isArray(value)) return make("div", { class: "leaf" }, key, scalar(value));
  const keys = Array.isArray(value) ? value.length : Object.keys(value);
  const size = Array.isArray(value) ? keys : keys.length;
  const summary = Array.isArray(value) ? `list of ${counted(size)}` : `object of ${plural(size, "field")}`;
  if (size === 0)
    return make("div", { class: "leaf" }, key, make("span", { class: "scalar" }, Array.isArray(value) ? "[]" : "{}"));
  const entries = make("div", { class: "entries" });
  const branch = make("details", {
    class: "branch",
    on: { toggle: () => branch.open && !entries.firstChild && more(0) },
  });
  const more = (from) => {
    const to = Math.min(from + AT_ONCE, size);
    for (let position = from; position < to; position += 1) {
      const segment = Array.isArray(value)
        ? { key: String(position), index: true }
        : { key: keys[position], index: false };
      const inner = place && { kind: place.kind, path: [...place.path, segment] };
      const options = { place: inner, link, whole, open: size <= OPEN_ENTRIES && open, label: segment.key };
      entries.append(tree(Array.isArray(value) ? value[position] : value[segment.key], options));
    }
    if (to < size)
      entries.append(
        make(
          "button",
          { type: "button", on: { click: (event) => (event.target.remove(), more(to)) } },
          `${counted(size - to)} more`,
        ),
      );
  };
  branch.append(make("summary", {}, key, make("span", { class: "size" }, summary)), entries);
  if (open) {
    more(0);
    branch.open = true;
  }
  return branch;
}

/** A value that came cut: how it begins and ends, its size, and where the whole one is had. */
function abridged({ bytes: size, head, tail }, place, whole) {
  const had =
    place && whole ? make("button", { type: "button", on: { click: () => whole(place) } }, "Download all of it") : null;
  const told = make("span", { class: "size" }, ` ${bytes(size)}, of which this is the beginning and the end. `);
  return make("span", {}, make("span", { class: "scalar text" }, head, " … ", tail), told, had);
}

function scalar(value) {
  if (typeof value !== "string")
    return make("span", { class: "scalar" }, value instanceof Exact ? value.source : JSON.stringify(value));
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
