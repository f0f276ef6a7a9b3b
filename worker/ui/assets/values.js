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
  const name = place && link ? anchor(link(place), label) : label;
  const key = label === null ? null : wrap("span.key", name, ": ");
  if (isCutValue(value)) return wrap("div.leaf", key, abridged(value[CUT], place, whole));
  if (isShort(value)) return wrap("div.leaf", key, scalar(value));
  const keys = Object.keys(value);
  const isSmall = keys.length <= OPEN_ENTRIES;
  const size = Array.isArray(value) ? `list of ${counted(keys.length)}` : `object of ${plural(keys.length, "field")}`;
  const entries = make("div.entries", { hidden: true });
  const more = (from) => {
    const to = Math.min(from + AT_ONCE, keys.length);
    for (const key of keys.slice(from, to)) {
      const inner = place && inside(place, key, Array.isArray(value));
      entries.append(tree(value[key], { place: inner, link, whole, label: key, open: isSmall, left }));
    }
    const go = (event) => (event.target.remove(), more(to));
    const rest = `${counted(keys.length - to)} more`;
    if (to < keys.length) entries.append(pushButton(rest, go));
  };
  const turn = () => {
    entries.hidden = !entries.hidden;
    toggle.setAttribute("aria-expanded", String(!entries.hidden));
    toggle.textContent = entries.hidden ? "▸" : "▾";
    if (!entries.firstChild) more(0);
  };
  const told = { "aria-expanded": "false", "aria-label": `${label ?? "value"}, ${size}`, on: { click: turn } };
  const toggle = make("button.toggle", { type: "button", ...told }, "▸");
  if (open && left.open > 0) {
    left.open -= 1;
    turn();
  }
  return wrap("div.branch", toggle, key, wrap("span.size", size), entries);
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
  const button = place && whole ? pushButton("Download all of it", go) : null;
  const told = wrap("span.size", `${bytes(size)}, of which this is the beginning and the end. `);
  return [told, button, make("span.scalar.text.abridged", { tabindex: "0" }, head, " … ", tail)];
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
  return wrap(
    "div.fields",
    Object.keys(value).map((key) => tree(value[key], { label: key })),
  );
}

function scalar(value) {
  if (typeof value !== "string") return wrap("span.scalar", line(value));
  if (value.length <= LONGEST) return wrap("span.scalar.text", value === "" ? '""' : value);
  const shown = wrap("span.scalar.text", value.slice(0, LONGEST) + " …");
  const all = () => {
    refill(shown, value);
    button.remove();
  };
  const button = pushButton(`all ${counted(value.length)} characters`, all);
  return wrap("span", shown, " ", button);
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

// A value: who writes it and who reads it, who can see it, what it was at any moment, why it is missing.

async function valueView({ run, parts }) {
  const [path, , instance = null] = parts;
  const log = late("Read the log", () => placeHistory(run, path, instance));
  let answer = { path, above: [] };
  let known;
  try {
    answer = await ask(`runs/${run}/place`, { path, instance });
    known = placeParts(run, answer, instance);
  } catch (error) {
    if (error.type !== "NotInTheFile") throw error;
    const text = `acts explain ${run} ${quoted(path)}${laneOption(instance)}`;
    known = notice("quiet", wrap("p", error.message), command(text));
    log.open = true;
  }
  const reader = instance === null ? "a global reader" : anchor(instanceAddress(run, instance), instance);
  return {
    title: answer.path,
    nodes: [
      heading("Value ", wrap("code", answer.path)),
      quiet("As ", reader, " sees it."),
      answer.above.length ? quiet("Inside of ", paths(run, answer.above, instance)) : null,
      known,
      section("Its value over time", log),
    ],
  };
}

function placeParts(run, answer, instance) {
  const link = (inner) => valueAddress(run, inner, instance);
  const calls = (list, nothing) => (list.length ? rows(list, (one) => callLink(run, one)) : quiet(nothing));
  const sight = ({ who, how }) => wrap("div.row", wrap("span.tool", who), quiet(how));
  const { missing: absence, seen_by: seers, provenance } = answer;
  return [
    absence === undefined
      ? section("Now", tree(answer.value, { place: answer.path, link, whole: wholeOf(run, instance) }))
      : section("It has no value", missing(absence, run, instance)),
    section("Who writes it", calls(answer.writers, "No call: it was given.")),
    section("Who reads it", calls(answer.readers, "No call.")),
    section("Who can see it", seers.length ? rows(seers, sight) : quiet("No call, delegate or model.")),
    provenance.length ? section("Which messages it came from", origins(run, answer, instance)) : null,
  ];
}

function origins(run, { provenance, more }, instance) {
  const read = (origin) =>
    paths(
      run,
      origin.reads.map((one) => one.path),
      instance,
    );
  const one = (origin) => [
    callLink(run, origin),
    quiet([origin.by && `by ${origin.by}`, origin.effect].filter(Boolean).join(", ")),
    tree(origin.value, { open: false, label: origin.path }),
    origin.sources.length ? quiet(`others wrote to it: ${origin.sources.join(", ")}`) : null,
    origin.reads.length ? wrap("div", "It read ", read(origin)) : null,
    origin.unasked.length ? quiet(`nobody was asked: ${origin.unasked.map((one) => one.text).join("; ")}`) : null,
  ];
  return [
    more ? quiet(`The last ${counted(provenance.length)}; there are ${counted(more)} more.`) : null,
    rows(provenance, one),
  ];
}

/** Why there is nothing: the calls that were to write it, and what became of each. */
function missing({ sentence, why, near }, run, instance) {
  const one = (writer) =>
    statusRow(
      writer.status,
      address("run", run, "call", writer.index),
      callName(writer),
      writer.instance ? anchor(instanceAddress(run, writer.instance), writer.instance) : null,
      errorText(writer.error) ?? (writer.reason ? wrap("p.reason", writer.reason) : null),
    );
  return [
    wrap("p", sentence),
    near ? wrap("p", "Near it: ", paths(run, [near], instance)) : null,
    why.length ? rows(why, one) : null,
  ];
}

function callLink(run, one) {
  const isGiven = (one.index ?? null) === null;
  return wrap(
    "div.row",
    isGiven
      ? wrap("span.name", "given")
      : make("a.name", { href: address("run", run, "call", one.index) }, callName(one)),
    one.method && one.method !== "set" ? wrap("span.tag", one.method) : null,
    wrap("span.when", one.moment ? moment(one.moment) : null, one.id ? wrap("code.id", one.id) : null),
  );
}

/** A slider over the moments at which a value has changed, or may have. */
async function placeHistory(run, path, instance) {
  const log = await logOf(run, instance);
  const keys = keysOf(path);
  const isNear = ({ place }) => keys.every((key, depth) => depth >= place.length || key === place[depth]);
  const at = ({ data, conflicts }) => [valueAt(data, keys), conflicts.filter(isNear)];
  const chosen = (entries) => {
    let before = JSON.stringify([{}, []]);
    return entries.filter((entry) => {
      const now = entry.data ? JSON.stringify(at(entry)) : null;
      const isOther = now === null || now !== before;
      before = now;
      return isOther;
    });
  };
  const link = (inner) => valueAddress(run, inner, instance);
  const show = async (entry) => {
    let [found, conflicts] = at(entry);
    if (found.isCut) found = await ask(`runs/${run}/place`, { path, instance, at: entry.id });
    const told =
      "value" in found
        ? tree(found.value, { place: path, link, whole: wholeOf(run, instance, entry.id) })
        : quiet(found.missing?.sentence ?? "There was no value.");
    return [told, misfits(conflicts)];
  };
  return moments({ run, log, instance, chosen, show });
}

/** What fetches a whole value as a file, where a server can give it. */
function wholeOf(run, instance, at = null) {
  if (!isLive) return null;
  return async (place) => {
    try {
      const response = await fetched(`api/whole${queryOf({ run, path: place, instance, at })}`);
      if (!response.ok) await answerOf(response);
      const link = make("a", { href: URL.createObjectURL(await response.blob()), download: "value.json" });
      link.click();
      URL.revokeObjectURL(link.getAttribute("href"));
    } catch (error) {
      dialogOf(error);
    }
  };
}

// The history of an instance, or of one value: a slider over the log, with the values of each moment.

const ENTRIES_AT_ONCE = 5_000;

/** The moments of the log that a reader in an instance sees, page after page up to a bound; `next` where there are more. */
async function logOf(run, instance, log = { entries: [], next: null }) {
  const until = log.entries.length + ENTRIES_AT_ONCE;
  do {
    const page = await ask(`runs/${run}/log`, { instance, after: log.next });
    log.entries.push(...page.entries);
    log.next = page.next;
  } while (isLive && log.next !== null && log.entries.length < until);
  return log;
}

/** A slider over `chosen(entries)`; `show(entry)` makes what is shown of the values then. */
function moments({ run, log, instance, chosen = (entries) => entries, show }) {
  const entries = chosen(log.entries);
  if (!entries.length) return quiet("The log has nothing about this.");
  const output = wrap("div.moment");
  const told = make("p.told", { role: "status" });
  const last = entries.length - 1;
  const slider = make("input", {
    type: "range",
    min: "0",
    max: String(last),
    step: "1",
    value: String(last),
    "aria-label": "Moment in the log",
  });
  const go = async () => {
    const at = Number(slider.value);
    const entry = entries[at];
    const id = wrap("code.id", entry.id);
    slider.setAttribute("aria-valuetext", `${at + 1} of ${entries.length}, message ${entry.id}`);
    refill(told, `${counted(at + 1)} of ${counted(entries.length)}: `, moment(entry.moment), " ", byWhom(entry), id);
    let shown;
    try {
      if (!entry.data) Object.assign(entry, (await ask(`runs/${run}/log`, { instance, at: entry.id })).entries[0]);
      shown = [await show(entry), forkHere(run, entry)];
    } catch (error) {
      shown = [refused(error), command(`acts show ${run}${laneOption(instance)} --at ${entry.id}`)];
    }
    if (entries[Number(slider.value)] === entry) refill(output, shown);
  };
  let asked = false;
  slider.addEventListener("input", () => {
    if (!asked) requestAnimationFrame(() => ((asked = false), go()));
    asked = true;
  });
  const step = (label, sign, by) => {
    const click = () => ((slider.value = String(Number(slider.value) + by)), go());
    return make("button", { type: "button", "aria-label": label, on: { click } }, sign);
  };
  go();
  const controls = wrap("div.slider", step("Earlier", "‹", -1), slider, step("Later", "›", 1));
  const whole = wrap("div.moments", controls, told);
  if (isLive && log.next !== null) {
    const more = async () =>
      whole.replaceWith(moments({ run, log: await logOf(run, instance, log), instance, chosen, show }));
    const button = pushButton("Read on", more);
    whole.append(quiet(`These are the first ${counted(log.entries.length)} messages. `, button));
  }
  whole.append(output);
  return whole;
}

function byWhom({ undone, instance, call, tool, method }) {
  if (undone) return `calls ${undone.join(", ")} are done again: what they wrote counts no more. `;
  const who = call === null ? "given" : `by call ${call}${tool ? ` ${tool}` : ""}`;
  return `${instance === null ? "global, " : ""}${who}${method ? ` (${method})` : ""}. `;
}

/** What could not be applied until a moment. */
function misfits(conflicts) {
  if (!conflicts.length) return null;
  const list = listed("ul", conflicts, (one) => one.message);
  return notice("error", wrap("p", "What could not be applied:"), list);
}
