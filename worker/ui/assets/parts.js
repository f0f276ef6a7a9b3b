"use strict";

// Making elements. Whatever comes from a run becomes a text or the value of one of a few attributes: it is never markup.

const ATTRIBUTES = new Set(
  (
    "class id href type value name for title lang role tabindex open hidden disabled checked rows placeholder datetime download min max step " +
    "spellcheck autocomplete rel colspan scope selected multiple readonly inputmode maxlength"
  ).split(" "),
);
const SVG = "http://www.w3.org/2000/svg";

/** An element, such as `p` or `p.quiet`, with children: nodes, texts, lists of them; null is nothing. */
const wrap = (selector, ...children) => make(selector, {}, children);

/** The same with attributes; `on` holds listeners. */
function make(selector, attributes, ...children) {
  const [tag, ...classes] = selector.split(".");
  const element = document.createElement(tag);
  element.classList.add(...classes);
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  fill(element, children);
  return element;
}

const anchor = (href, ...children) => make("a", { href }, children);

const pushButton = (label, click, selector = "button") => make(selector, { type: "button", on: { click } }, label);

function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
  else if (name === "href" && !/^(#|blob:)/.test(value)) throw new Error(`a link to ${value}`);
  else if (ATTRIBUTES.has(name) || /^(aria|data)-[a-z-]+$/.test(name))
    element.setAttribute(name, value === true ? "" : visible(String(value)));
  else throw new Error(`the attribute ${name}`);
}

function fill(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : visible(String(child)));
  }
}

/** Put other children in place of those of an element. */
function refill(element, ...children) {
  element.replaceChildren();
  fill(element, children);
  return element;
}

/** A part of a picture; its attributes are numbers and classes that the page itself makes. */
function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  fill(element, children);
  return element;
}

/** A text whose control characters, and those that turn the direction of writing, can be seen. */
function visible(text) {
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g,
    (character) => {
      const code = character.codePointAt(0);
      return code < 0x20
        ? String.fromCodePoint(0x2400 + code)
        : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
    },
  );
}

// Numbers and times for people

const counted = (number) => Number(number).toLocaleString("en");

/** "1 call", "3 calls" */
const plural = (number, word, words = word + "s") => `${counted(number)} ${number === 1 ? word : words}`;

function bytes(number) {
  const units = ["bytes", "kB", "MB", "GB"];
  let unit = 0;
  while (number >= 1000 && unit < units.length - 1) [number, unit] = [number / 1000, unit + 1];
  return `${unit && number < 100 ? number.toFixed(1) : Math.round(number)} ${units[unit]}`;
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  const rest = Math.floor(seconds % 60);
  if (minutes < 60) return `${minutes} min${minutes < 10 && rest ? ` ${rest} s` : ""}`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

/** A moment in the reader's time zone, with the exact time as title. */
function moment(iso, { only = "" } = {}) {
  if (!iso) return "–";
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return String(iso);
  const two = (number, places = 2) => String(number).padStart(places, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  const shown = only === "time" ? `${time}.${two(date.getMilliseconds(), 3)}` : `${day} ${time}`;
  return make("time", { datetime: iso, title: iso }, shown);
}

function money(cost) {
  if (!cost) return null;
  if (cost.money === null || cost.money === undefined) return "price not known";
  return `${Number(cost.money).toFixed(cost.money < 0.01 ? 5 : 2)} ${cost.currency ?? "USD"}`;
}

/** Where the page is: each part of the address is a text. */
const address = (...parts) => "#/" + parts.map((part) => encodeURIComponent(String(part))).join("/");

// What several views are made of.

const STATUSES = {
  done: "✓",
  failed: "✕",
  held: "‖",
  unknown: "?",
  running: "▶",
  waiting: "○",
  skipped: "–",
  "not taken": "–",
  sent: "➝",
  latent: "·",
  completed: "✓",
  cancelled: "⊘",
  paused: "‖",
  scheduled: "○",
  foreign: "?",
};
const MOST_ROWS = 500;

/** A status as its sign and its word: never told by colour alone. */
function badge(status, number = null) {
  const known = Object.hasOwn(STATUSES, status) ? status : "waiting";
  const words = number === null ? status : `${counted(number)} ${status}`;
  return make(
    "span",
    { class: `badge ${known.replace(" ", "-")}` },
    make("span.sign", { "aria-hidden": "true" }, STATUSES[known]),
    " ",
    words,
  );
}

const byWeight = [
  "failed",
  "unknown",
  "held",
  "running",
  "waiting",
  "paused",
  "scheduled",
  "cancelled",
  "done",
  "completed",
  "sent",
  "skipped",
  "latent",
  "not taken",
];

/** Counts by status, worst first, as links where `link(status)` gives them. */
function badges(counts, link = null, current = null) {
  const names = Object.keys(counts ?? {}).filter((status) => counts[status] > 0);
  const weight = (status) => byWeight.indexOf(status) + 1 || byWeight.length + 1;
  names.sort((one, other) => weight(one) - weight(other));
  const one = (status) => {
    const shown = badge(status, counts[status]);
    const href = link?.(status) ?? null;
    return href ? make("a", { href, "aria-current": status === current ? "true" : null }, shown) : shown;
  };
  return listed("ul.badges", names, one);
}

/** Names and what is known of them; null is left out. */
function facts(pairs) {
  const known = Object.entries(pairs).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return wrap(
    "dl.facts",
    known.map(([name, value]) => wrap("div", wrap("dt", name), wrap("dd", value))),
  );
}

/** A command line to copy. */
function command(text) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      getSelection().selectAllChildren(code); // where a page may not write to the clipboard the text is marked
    }
    button.textContent = "Copied";
    announce("Copied");
  };
  const code = make("code", { tabindex: "0" }, text);
  const button = make("button", { type: "button", "aria-label": `Copy: ${text}`, on: { click: copy } }, "Copy");
  return wrap("p.command", code, button);
}

/** A word of a command line, quoted as a shell reads it. */
const quoted = (word) => (/^[\w.,:@%/+=-]+$/.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`);

/** Say a change to those who cannot see it. */
function announce(text) {
  const news = document.getElementById("news");
  news.textContent = news.textContent === text ? text + "\u00a0" : text;
}

function notice(kind, ...children) {
  return make("div", { class: `notice ${kind}`, role: kind === "error" ? "alert" : null }, children);
}

/** The notice of what could not be had. */
const refused = (error) => notice("error", wrap("p", error.message));

/**
 * A list by pages: `row(item)` makes each row, `more(after)` asks for the next page; `key` is where its items are. At most
 * 500 rows are on the page: the first ones go when more come, and can be had again.
 */
function pages({ first, key, row, more, empty, label }) {
  const list = make("ol.rows", { "aria-label": label });
  const [before, after] = [wrap("p.more"), wrap("p.more")];
  let dropped = 0;
  const show = ({ [key]: items, next }) => {
    list.append(...items.map((item) => wrap("li", row(item))));
    for (; list.childElementCount > MOST_ROWS; dropped += 1) list.firstElementChild.remove();
    const restarting = [`${plural(dropped, "earlier row")} left out. `, pushButton("From the beginning", restart)];
    refill(before, dropped ? restarting : []);
    refill(after, (next ?? null) === null ? [] : pushButton("More", () => go(next), "button.next"));
  };
  const restart = () => {
    list.replaceChildren();
    dropped = 0;
    show(first);
    list.scrollIntoView({ block: "start" });
  };
  const go = async (next) => {
    const button = after.querySelector("button");
    button.disabled = true;
    try {
      const page = await more(next);
      show(page);
      announce(`${plural(page[key].length, "more row")}`);
    } catch (error) {
      button.disabled = false;
      after.append(refused(error));
    }
  };
  show(first);
  if (!first[key].length && (first.next ?? null) === null) return quiet(empty);
  return wrap("div.pages", before, list, after);
}

/** A link to one of several views or filters, of which one is chosen. */
const choice = (href, label, isChosen, as = "true") => make("a", { href, "aria-current": isChosen ? as : null }, label);

/** A form that leads to where `found(text)` says, with more fields behind the text. */
function searchForm({ label, placeholder, value, found, more = null }) {
  const search = make("input", { type: "search", placeholder, "aria-label": label, autocomplete: "off" });
  search.value = value;
  const go = () => (location.hash = found(search.value.trim()));
  const submit = (event) => (event.preventDefault(), go());
  const form = make("form.filter", {
    role: "search",
    on: { submit, change: (event) => event.target === more && go() },
  });
  fill(form, [search, more, make("button", { type: "submit" }, "Search")]);
  return form;
}

/** A row that begins with a status and a link. */
const statusRow = (status, href, name, ...more) =>
  wrap("div.row", wrap("span.state", badge(status)), make("a.name", { href }, name), more);

/** A dialog, which is gone when it is closed. */
function popup(title, ...children) {
  const box = make("dialog.dialog", { "aria-label": title }, children);
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  return box;
}

/** A list; `row(one)` makes what each item shows. */
const listed = (selector, items, row) => make(selector, {}, ...items.map((one) => wrap("li", row(one))));

const rows = (items, row) => listed("ol.rows", items, row);

const quiet = (...children) => wrap("p.quiet", children);

/** What a field is asked for, with its label. */
function field(label, input) {
  return wrap("label.field", wrap("span", label), input);
}

/** A heading that is given the focus when a view is shown. */
const heading = (...children) => make("h2", { tabindex: "-1" }, children);

const section = (title, ...children) => wrap("section.part", wrap("h3", title), children);

/** Paths as links to the page of their value. */
function paths(run, list, instance = null) {
  if (!list?.length) return null;
  return listed("ul.inline", list, (path) => anchor(valueAddress(run, path, instance), wrap("code", path)));
}

const valueAddress = (run, path, instance) =>
  address("run", run, "value", path, ...(instance === null ? [] : ["in", instance]));
const instanceAddress = (run, instance) =>
  instance === null ? address("run", run, "global") : address("run", run, "instance", instance);
const instanceName = (instance) => (instance === null ? "global" : instance);
const callName = (call) => `${call.index} ${call.tool}`;

/** An error as it was raised. */
function errorText(error) {
  if (!error) return null;
  const type = wrap("strong", error.type ?? "Error");
  return wrap("p.reason", type, error.message ? [": ", wrap("span.text", error.message)] : null);
}
