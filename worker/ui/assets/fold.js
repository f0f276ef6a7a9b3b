"use strict";

// The state at a moment, folded from the log as the core folds it (protocol/state, SPEC R3): what was written is one
// operation for each message; an instance's operations come on top of the global ones, whatever the order of arrival; a
// place whose operation did not fit has no value until an operation replaces it; what calls had written that a retry did
// again counts no more. A test folds the same logs here and in the core.

const MISSING = Symbol("missing");
const DATA_TYPES = new Set(["data", "input", "state", "error"]);
const RESERVED = new Set(["type", "kind", "schema", "description", "title"]);
const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";

/** Of the entries of a log, in order, what a reader in `instance` (null: global) sees. */
function fold(entries, instance) {
  const kinds = new Map();
  for (const own of [false, true]) {
    if (own && instance === null) break;
    for (const entry of standing(entries, own ? instance : null)) {
      const operation = operationOf(entry);
      if (operation === null) continue;
      if (!kinds.has(operation.kind)) kinds.set(operation.kind, { root: MISSING, conflicts: [], owned: new Set() });
      applyTo(kinds.get(operation.kind), operation);
    }
  }
  return kinds;
}

/** The entries of one lane that no retry has withdrawn. */
function standing(entries, instance) {
  let found = [];
  for (const entry of entries) {
    if (entry.instance !== instance) continue;
    if (entry.undone) {
      const calls = new Set(entry.undone);
      found = found.filter((earlier) => earlier.call === null || !calls.has(earlier.call));
    } else if (entry.message && !entry.cut) found.push(entry);
  }
  return found;
}

/** Whether a message that counts was too large to be handed out: then the state is not known here. */
function isCut(entries, instance) {
  const lanes = new Set([null, instance]);
  return entries.some((entry) => entry.cut && lanes.has(entry.instance));
}

/** What a reader of a folded log finds at a place: `{value}`, `{conflict: sentence}`, or nothing: `{}`. */
function valueAt(kinds, place) {
  const kind = kinds.get(place.kind);
  if (kind === undefined) return {};
  const key = keyOf(place);
  const conflict = covering(kind, key) ?? kind.conflicts.find((one) => isWithin(key, one.key));
  if (conflict !== undefined) return { conflict: conflict.sentence };
  let value = kind.root;
  for (const segment of place.path) value = below(value, segment);
  return value === MISSING ? {} : { value };
}

/** The values of all kinds; at a place in conflict, what was there before. */
function snapshot(kinds) {
  const found = Object.create(null);
  for (const [name, kind] of kinds) if (kind.root !== MISSING) found[name] = kind.root;
  return found;
}

// Messages (SPEC R1, R3.1)

function operationOf(entry) {
  const message = entry.message;
  if (!DATA_TYPES.has(message.type)) return null;
  const kind = message.type === "data" ? (Object.hasOwn(message, "kind") ? message.kind : "data") : message.type;
  const payloadKey = payloadKeyOf(message, kind);
  if (isPromise(message, kind, payloadKey)) return null;
  const payload = payloadKey !== null ? message[payloadKey] : unreserved(message);
  const method = message._outputMethod ?? null;
  const source = `message ${entry.id}`;
  const written = writtenAt(message, kind, payload, method);
  if (written !== null) return { ...written, kind, method: method ?? "set", source };
  return { kind, path: [], method: kind === "error" ? "set" : (method ?? "merge"), value: payload, source };
}

function payloadKeyOf(message, kind) {
  if (Object.hasOwn(message, "data")) return "data";
  return DATA_TYPES.has(kind) && Object.hasOwn(message, kind) ? kind : null;
}

const isReserved = (key) => RESERVED.has(key) || key.startsWith("_");

function unreserved(message) {
  const found = Object.create(null);
  for (const key of Object.keys(message)) if (!isReserved(key)) found[key] = message[key];
  return found;
}

/** An input with a schema and without the value: that comes later. */
function isPromise(message, kind, payloadKey) {
  return (
    kind === "input" &&
    Object.hasOwn(message, "schema") &&
    payloadKey === null &&
    Object.keys(message).every(isReserved)
  );
}

/** Where a message writes, and what; null where no path is known. */
function writtenAt(message, kind, payload, method) {
  const isWritten = isObject(message._call);
  const declared = isWritten ? message._path || message._call._outputPath : method !== null ? message._path : null;
  if (typeof declared !== "string") return null;
  for (const place of outputPlaces(declared)) {
    const value = place.kind === kind ? unnest(payload, place.path) : MISSING;
    if (value !== MISSING) return { path: place.path, value };
  }
  return null;
}

function unnest(value, path) {
  for (const segment of path) {
    if (!isObject(value) || Object.keys(value).length !== 1) return MISSING;
    value = below(value, segment);
  }
  return value;
}

// Places (SPEC R2). A segment is {key, index}: `index` where bare digits may mean an element of a list.

const KIND = /\p{L}[\p{L}\p{N}_-]*/uy;
const BARE = new RegExp(`[^${SPACE}.[\\]|&†]+`, "uy");
const QUOTED = /"(?:[^"\\]|\\.)*"/suy;
const BLANK = new RegExp(`[${SPACE}]*`, "uy");
const INDEX = /^(?:0|[1-9][0-9]{0,17})$/;
const PLAIN = new RegExp(`^[^${SPACE}.[\\]|&†}]+$`, "u");

/** The place of a path such as `†state.user`; the dagger may be left out. */
function placeOf(text) {
  const places = outputPlaces(text.startsWith("†") ? text : "†" + text);
  if (places.length !== 1) throw new Error(`${text} is not one place`);
  return places[0];
}

/** The places that an expression names; a path without a dagger is one inside the state, as calls write it. */
function outputPlaces(text) {
  let at = 0;
  const take = (pattern) => {
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    if (match === null) throw new Error(`${JSON.stringify(text)} is not a path: see position ${at}`);
    at += match[0].length;
    return match[0];
  };
  const quoted = () => {
    at += 1;
    const key = JSON.parse(take(QUOTED));
    if (text[at] !== "]") throw new Error(`${JSON.stringify(text)} lacks a "]" at position ${at}`);
    at += 1;
    return { key, index: false };
  };
  const bare = () => {
    const key = take(BARE);
    return { key, index: INDEX.test(key) };
  };
  const found = [];
  for (;;) {
    take(BLANK);
    const place = { kind: "state", path: [] };
    if (text[at] === "†") {
      at += 1;
      place.kind = take(KIND);
    } else place.path.push(text[at] === "[" ? quoted() : bare());
    while (text[at] === "." || text[at] === "[") {
      if (text[at] === "[") place.path.push(quoted());
      else {
        at += 1;
        place.path.push(bare());
      }
    }
    found.push(place);
    if (at === text.length) return found;
    take(BLANK);
    if (!text.startsWith("||", at) && !text.startsWith("&&", at))
      throw new Error(`${JSON.stringify(text)} is not a path`);
    at += 2;
  }
}

/** A place as it is written: the inverse of `placeOf`. */
function printed(place) {
  const one = ({ key, index }) =>
    index || (PLAIN.test(key) && !INDEX.test(key)) ? "." + key : `[${JSON.stringify(key)}]`;
  return "†" + place.kind + place.path.map(one).join("");
}

/** The conflict at a place or above it. */
function covering(kind, key) {
  const found = kind.conflicts.filter((conflict) => isWithin(conflict.key, key));
  return found.sort((one, other) => one.key.length - other.key.length)[0];
}

const keyOf = (place) => [place.kind, ...place.path.map((segment) => segment.key)];
const isWithin = (above, key) => above.length <= key.length && above.every((part, depth) => part === key[depth]);

// Operations (SPEC R3.2-R3.5)

function applyTo(kind, operation) {
  const key = keyOf(operation);
  const above = covering(kind, key);
  const settles = replacedBy(operation, key);
  if (above !== undefined && !settles.some((place) => place.length === above.key.length)) return;
  const sentence = misfit(operation, kind.root);
  if (sentence !== null) {
    if (above === undefined) kind.conflicts.push({ key, sentence });
    return;
  }
  kind.conflicts = kind.conflicts.filter((conflict) => !settles.some((place) => isWithin(place, conflict.key)));
  kind.root = changed(kind.root, operation, 0, (container) => ownOf(kind.owned, container));
}

/** The container itself where this fold made it, else a copy: no message is changed. */
function ownOf(owned, container) {
  if (owned.has(container)) return container;
  const copy = Array.isArray(container) ? container.slice() : Object.assign(Object.create(null), container);
  owned.add(copy);
  return copy;
}

function changed(base, operation, depth, own) {
  if (depth === operation.path.length) return combined(base, operation, own);
  const segment = operation.path[depth];
  const container = own(base !== MISSING ? base : depth && segment.index ? [] : Object.create(null));
  container[Array.isArray(container) ? Number(segment.key) : segment.key] = changed(
    below(base, segment),
    operation,
    depth + 1,
    own,
  );
  return container;
}

function combined(base, { method, value }, own) {
  if (method === "set") return value;
  if (method === "merge") return merged(base, value, own);
  if (method === "assign") return Object.assign(own(base === MISSING ? Object.create(null) : base), value);
  if (method === "concat" && (base === MISSING || typeof base === "string"))
    return base === MISSING ? value : base + value;
  const items = own(base === MISSING ? [] : base);
  for (const item of method === "push" ? [value] : value) items.push(item);
  return items;
}

function merged(base, value, own) {
  if (!isObject(value) || !isObject(base)) return value;
  const target = own(base);
  for (const key of Object.keys(value)) target[key] = merged(below(target, { key }), value[key], own);
  return target;
}

/** Why an operation does not fit what is there, or null. */
function misfit(operation, root) {
  const { method, path, value } = operation;
  const say = (base, why) => {
    const place = printed(operation);
    return `cannot ${method} ${typeName(value)} at ${place}: there is ${typeName(base)}${why ? ", and " + why : ""} (${operation.source})`;
  };
  let base = root;
  for (const [depth, segment] of path.entries()) {
    if (base === MISSING) {
      if (depth && segment.index && segment.key !== "0") return say(base, `index ${segment.key} is beyond the end`);
    } else if (Array.isArray(base)) {
      if (!segment.index) return say(base, `a list has no key '${segment.key}'`);
      if (Number(segment.key) > base.length) return say(base, `index ${segment.key} is beyond the end, ${base.length}`);
    } else if (!isObject(base))
      return say(base, `${segment.index ? segment.key : `'${segment.key}'`} is not inside it`);
    base = below(base, segment);
  }
  return fits(method, base, value) ? null : say(base, "");
}

function fits(method, base, value) {
  const isNew = base === MISSING;
  if (method === "push") return isNew || Array.isArray(base);
  if (method === "concat")
    return typeof value === "string"
      ? isNew || typeof base === "string"
      : Array.isArray(value) && (isNew || Array.isArray(base));
  if (method === "assign") return isObject(value) && (isNew || isObject(base));
  return method === "set" || !isObject(value) || isNew || isObject(base);
}

/** The keys of the places that an operation gives a new value whatever was there. */
function replacedBy({ method, value }, key) {
  if (method === "set") return [key];
  if (method === "assign" && isObject(value)) return Object.keys(value).map((name) => [...key, name]);
  return method === "merge" ? leaves(value, key) : [];
}

function leaves(value, key) {
  return isObject(value) ? Object.keys(value).flatMap((name) => leaves(value[name], [...key, name])) : [key];
}

// Values of JSON

/** What is under a segment of a value, or MISSING. Numbers that JavaScript would round are objects of their own. */
function below(value, segment) {
  if (Array.isArray(value))
    return segment.index && Number(segment.key) < value.length ? value[Number(segment.key)] : MISSING;
  return isObject(value) && Object.hasOwn(value, segment.key) ? value[segment.key] : MISSING;
}

/** A number as it was written, where JavaScript's numbers are too coarse for it. */
class Exact {
  constructor(source) {
    this.source = source;
  }
}

const isObject = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Exact);

function typeName(value) {
  if (value === MISSING) return "nothing";
  if (value === null) return "null";
  if (Array.isArray(value)) return "list";
  return value instanceof Exact ? "number" : typeof value;
}

/** JSON, with numbers as exact as they are written. */
function parsed(text) {
  return JSON.parse(text, (key, value, context) => {
    const isCoarse = typeof value === "number" && context && Number.isInteger(value) && !Number.isSafeInteger(value);
    return isCoarse ? new Exact(context.source) : value;
  });
}
