"use strict";

// A run: what stands above each of its views, its overview, and its instances.

const STANDING = ["failed", "held", "running", "completed"]; // what instances are asked for by

/** What stands above all views of a run. */
function runTop(overview, view) {
  const { run } = overview;
  const held = overview.held ?? 0;
  const tab = (name, label, ...parts) =>
    make(
      "li",
      {},
      make("a", { href: address("run", run, ...parts), "aria-current": view === name ? "page" : null }, label),
    );
  const tabs = make(
    "ul",
    { class: "tabs" },
    tab("plan", "Plan"),
    overview.loop ? tab("conversation", "Conversation", "conversation") : null,
    overview.instances ? tab("instances", `Instances ${counted(overview.instances)}`, "instances") : null,
    tab("global", "Global", "global"),
    tab("held", held ? `Held ${counted(held)}` : "Held", "held"),
  );
  return [
    make(
      "div",
      { class: "head" },
      make("h1", {}, make("a", { href: address("run", run) }, overview.name ?? run)),
      badge(overview.status),
      badges(overview.counts, (status) =>
        overview.instances && STANDING.includes(status) ? address("run", run, "instances", status) : null,
      ),
    ),
    make("nav", { "aria-label": "Views of the run" }, tabs),
  ];
}

async function runView({ run, overview }) {
  const told = facts({
    run: make("code", { class: "id" }, run),
    tags: (overview.tags ?? []).length ? overview.tags.map((tag) => make("span", { class: "tag" }, tag)) : null,
    submitted: moment(overview.submitted),
    finished: overview.finished ? moment(overview.finished) : null,
    took: duration(overview.duration_seconds),
    cost: overview.cost ? [money(overview.cost), tokens(overview.cost)] : null,
    ticks: overview.ticks,
    instances: overview.instances ? counted(overview.instances) : null,
    "child of": overview.parent ? make("a", { href: address("run", overview.parent.run) }, overview.parent.run) : null,
    "forked from": forkedFrom(overview.forked_from),
    "sent and forgotten": background(overview.background),
    by: [
      (overview.orders ?? []).map((one) => make("div", {}, ordered(one))),
      make("a", { href: address("run", run, "audit") }, "everything, with decisions and amendments"),
    ],
    expires: overview.expires ? moment(overview.expires) : null,
    "last entry": overview.log && !overview.finished ? moment(new Date(parseInt(overview.log)).toISOString()) : null,
  });
  const output =
    overview.output === null || overview.output === undefined ? null : section("Output", tree(overview.output));
  const attention = [];
  if (overview.reason) attention.push(make("p", { class: "reason" }, overview.reason));
  for (const { message } of (overview.unanswered ?? []).slice(0, 5))
    attention.push(make("p", {}, "A model is asked again: ", message));
  const failed = overview.counts?.failed ?? 0;
  if (failed)
    attention.push(
      make("p", {}, badge("failed", failed), ": choose the count at its call in the plan to see which, and why."),
    );
  if (overview.held)
    attention.push(
      make(
        "p",
        {},
        make("a", { href: address("run", run, "held") }, badge("held", overview.held)),
        ": a person decides.",
      ),
    );
  return {
    title: overview.name ?? run,
    nodes: [heading("The run"), attention.length ? notice("", attention) : null, told, runDeeds(overview), output],
  };
}

/** Who has done something to the run; a token has shown the name, or it is what somebody says of himself. */
const ordered = (one) => `${one.did} by ${one.by}${one.authenticated ? " (authenticated)" : ""} from ${one.from}`;

async function auditView({ run }) {
  const page = async (after = "") => {
    const answer = await ask(`runs/${run}/audit`, { after });
    return { items: answer.orders, next: answer.next };
  };
  const list = pages({
    first: await page(),
    row: orderRow,
    more: page,
    empty: "Nothing that was done to this run from outside stands in its log.",
    label: "Who did what",
  });
  return { title: "Who did what", nodes: [heading("Who did what, the newest first"), list] };
}

function orderRow(one) {
  const where = [one.call === null ? null : `call ${one.call}`, one.instance && `in ${one.instance}`];
  const about = Object.entries(one.about).map(([name, value]) => `${name} ${shortened(value)}`);
  return make(
    "div",
    { class: "row" },
    make("span", { class: "what" }, ordered(one)),
    quiet([...where, ...about].filter(Boolean).join(", ")),
    make("span", { class: "when" }, moment(one.moment)),
  );
}

const shortened = (value) => {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
};

function forkedFrom(origin) {
  return origin ? make("a", { href: address("run", origin.run) }, `${origin.run} at ${origin.at}`) : null;
}

const background = (counts) => counts && Object.entries(counts).map(([name, number]) => `${counted(number)} ${name} `);

function tokens(cost) {
  const known = [
    cost.requests !== undefined && plural(cost.requests, "request"),
    cost.input !== undefined && `${counted(cost.input)} tokens in`,
    cost.output !== undefined && `${counted(cost.output)} out`,
    cost.cached ? `${counted(cost.cached)} cached` : null,
  ];
  return make(
    "span",
    { class: "quiet" },
    known.filter(Boolean).map((text) => ` · ${text}`),
  );
}

/** How far the log of a large run has been counted. */
function reading(answer) {
  if (!answer.reading) return null;
  return notice(
    "quiet",
    make(
      "p",
      {},
      `The log is still being read: ${counted(answer.reading.read)} of ${counted(answer.reading.of)} entries. The counts are those so far.`,
    ),
  );
}

async function instancesView({ run, parts, query }) {
  const asked = { status: parts[0] ?? "", search: query.get("search") ?? "" };
  const answer = await ask(`runs/${run}/instances`, asked);
  const search = make("input", {
    type: "search",
    placeholder: "name",
    "aria-label": "Search instances",
    autocomplete: "off",
  });
  search.value = asked.search;
  const go = (event) => {
    event.preventDefault();
    const text = search.value.trim();
    location.hash =
      address("run", run, "instances", ...(asked.status ? [asked.status] : [])) +
      (text ? "?" + new URLSearchParams({ search: text }) : "");
  };
  const list = pages({
    first: { items: answer.instances, next: answer.next },
    row: (one) =>
      make(
        "div",
        { class: "row" },
        make("span", { class: "state" }, badge(one.status)),
        make("a", { class: "name", href: instanceAddress(run, one.instance) }, instanceName(one.instance)),
        badges(one.counts),
      ),
    more: async (after) => {
      const page = await ask(`runs/${run}/instances`, { ...asked, after });
      return { items: page.instances, next: page.next };
    },
    empty: asked.status || asked.search ? "No instance fits." : "This run has no instances: all its calls are global.",
    label: "Instances",
  });
  const filter = STANDING.map((status) =>
    make(
      "li",
      {},
      make(
        "a",
        { href: address("run", run, "instances", status), "aria-current": status === asked.status ? "true" : null },
        badge(status),
      ),
    ),
  );
  const all = make(
    "li",
    {},
    make("a", { href: address("run", run, "instances"), "aria-current": asked.status ? null : "true" }, "all"),
  );
  const form = isLive
    ? make(
        "form",
        { class: "filter", role: "search", on: { submit: go } },
        search,
        make("button", { type: "submit" }, "Search"),
      )
    : null;
  return {
    title: "Instances",
    nodes: [
      heading("Instances"),
      reading(answer),
      make("div", { class: "head" }, make("ul", { class: "badges" }, all, filter), form),
      list,
    ],
    isReading: Boolean(answer.reading),
  };
}
