"use strict";

// What several views are made of.

const STATUSES = {
  done: "✓",
  failed: "✕",
  held: "‖",
  running: "▶",
  waiting: "○",
  skipped: "–",
  sent: "➝",
  latent: "·",
  completed: "✓",
  cancelled: "⊘",
  paused: "‖",
  foreign: "?",
};
const MOST_ROWS = 500;

/** A status as its sign and its word: never told by colour alone. */
function badge(status, number = null) {
  const known = Object.hasOwn(STATUSES, status) ? status : "waiting";
  const words = number === null ? status : `${counted(number)} ${status}`;
  return make(
    "span",
    { class: `badge ${known}` },
    make("span", { class: "sign", "aria-hidden": "true" }, STATUSES[known]),
    " ",
    words,
  );
}

const byWeight = [
  "failed",
  "held",
  "running",
  "waiting",
  "paused",
  "cancelled",
  "done",
  "completed",
  "sent",
  "skipped",
  "latent",
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
  return make(
    "ul",
    { class: "badges" },
    names.map((status) => make("li", {}, one(status))),
  );
}

/** Names and what is known of them; null is left out. */
function facts(pairs) {
  const known = Object.entries(pairs).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return make(
    "dl",
    { class: "facts" },
    known.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))),
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
  return make("p", { class: "command" }, code, button);
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
const refused = (error) => notice("error", make("p", {}, error.message));

/**
 * A list by pages: `row(item)` makes each row, `ask(after)` gets `{items, next}`. At most 500 rows are on the page: the
 * first ones go when more come, and can be had again.
 */
function pages({ first, row, more, empty, label }) {
  const list = make("ol", { class: "rows", "aria-label": label });
  const before = make("p", { class: "more" });
  const after = make("p", { class: "more" });
  let dropped = 0;
  const show = ({ items, next }) => {
    list.append(...items.map((item) => make("li", {}, row(item))));
    while (list.childElementCount > MOST_ROWS) {
      list.firstElementChild.remove();
      dropped += 1;
    }
    refill(
      before,
      dropped
        ? [
            `${plural(dropped, "earlier row")} left out. `,
            make("button", { type: "button", on: { click: restart } }, "From the beginning"),
          ]
        : [],
    );
    refill(
      after,
      next === null || next === undefined
        ? []
        : make("button", { type: "button", class: "next", on: { click: () => go(next) } }, "More"),
    );
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
      announce(`${plural(page.items.length, "more row")}`);
    } catch (error) {
      button.disabled = false;
      after.append(refused(error));
    }
  };
  show(first);
  if (!first.items.length && (first.next ?? null) === null) return quiet(empty);
  return make("div", { class: "pages" }, before, list, after);
}

/** A list with a row for each. */
const rows = (list, row) =>
  make(
    "ol",
    { class: "rows" },
    list.map((one) => make("li", {}, row(one))),
  );

const quiet = (...children) => make("p", { class: "quiet" }, children);

/** What a field is asked for, with its label. */
function field(label, input) {
  return make("label", { class: "field" }, make("span", {}, label), input);
}

/** A heading that is given the focus when a view is shown. */
const heading = (...children) => make("h2", { tabindex: "-1" }, children);

const section = (title, ...children) => make("section", { class: "part" }, make("h3", {}, title), children);

/** Paths as links to the page of their value. */
function paths(run, list, instance = null) {
  if (!list?.length) return null;
  return make(
    "ul",
    { class: "inline" },
    list.map((path) => make("li", {}, make("a", { href: valueAddress(run, path, instance) }, make("code", {}, path)))),
  );
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
  const type = make("strong", {}, error.type ?? "Error");
  return make(
    "p",
    { class: "reason" },
    type,
    error.message ? [": ", make("span", { class: "text" }, error.message)] : null,
  );
}
