"use strict";

// The list of runs: the newest first.

const RUN_STATUSES = ["scheduled", "running", "paused", "completed", "failed", "cancelled", "foreign"];

async function runsView({ query }) {
  if (!isLive) return (location.replace(address("run", embedded.run)), { title: "Run", nodes: [] });
  const asked = { status: query.get("status") ?? "", search: query.get("search") ?? "" };
  const options = RUN_STATUSES.map((name) => make("option", { value: name }, name));
  const status = make("select", { "aria-label": "Status" }, make("option", { value: "" }, "every status"), options);
  status.value = asked.status;
  const form = searchForm({
    label: "Search runs",
    placeholder: "id, name or tags",
    value: asked.search,
    more: status,
    found: (search) => {
      const known = Object.entries({ status: status.value, search }).filter(([, value]) => value);
      return `#/${known.length ? "?" + new URLSearchParams(known) : ""}`;
    },
  });
  const first = await ask("runs", asked);
  const list = pages({
    first,
    key: "runs",
    row: runRow,
    more: (after) => ask("runs", { ...asked, after }),
    empty: asked.status || asked.search ? "No matching runs." : "There are no runs yet: acts submit FILE makes one.",
    label: "Runs",
  });
  const away = first.away ? notice("", first.away.map((why) => wrap("p", why))) : null;
  return { title: "Runs", nodes: [wrap("div.head", heading("Runs"), form), away, list], isFresh: true };
}

function runRow(run) {
  const name = make("a.name", { href: address("run", run.run) }, run.name ?? run.run);
  return wrap(
    "div.row.run",
    wrap("span.state", badge(run.status)),
    wrap(
      "span.what",
      name,
      run.name ? wrap("code.id", run.run) : null,
      (run.tags ?? []).map((tag) => wrap("span.tag", tag)),
    ),
    wrap("span.share", share(run.calls)),
    wrap(
      "span.when",
      `${duration(run.age_seconds)} ago`,
      wrap("span.quiet", `took ${duration(run.duration_seconds)}`),
      wrap("span.quiet", money(run.cost)),
    ),
  );
}

/** Counts by status as one bar; its words are for those who do not see it. */
function share(counts) {
  const names = byWeight.filter((name) => counts?.[name] > 0);
  const total = names.reduce((sum, name) => sum + counts[name], 0);
  if (!total) return null;
  const label = names.map((name) => `${counted(counts[name])} ${name}`).join(", ");
  const bar = draw("svg", {
    class: "share",
    viewBox: "0 0 100 6",
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": label,
  });
  let x = 0;
  for (const name of names) {
    const width = Math.max((100 * counts[name]) / total, 1.5);
    bar.append(draw("rect", { class: name, x, y: 0, width, height: 6 }));
    x += width;
  }
  bar.setAttribute("viewBox", `0 0 ${x} 6`);
  return [bar, make("span.quiet", { "aria-hidden": "true" }, label)];
}

// A run: what is above each of its views, its overview, and its instances.

const STANDING = ["failed", "held", "running", "completed"]; // what instances are asked for by

/** Above all views of a run. */
function runTop(overview, view) {
  const { run } = overview;
  const held = overview.held ?? 0;
  const tabs = [
    ["plan", "Plan"],
    overview.loop && ["conversation", "Conversation", "conversation"],
    overview.instances && ["instances", `Instances ${counted(overview.instances)}`, "instances"],
    ["global", "Global", "global"],
    ["held", held ? `Held ${counted(held)}` : "Held", "held"],
  ];
  const tab = ([name, label, ...parts]) => choice(address("run", run, ...parts), label, view === name, "page");
  return [
    wrap(
      "div.head",
      wrap("h1", anchor(address("run", run), overview.name ?? run)),
      badge(overview.status),
      badges(overview.counts, (status) =>
        overview.instances && STANDING.includes(status) ? address("run", run, "instances", status) : null,
      ),
    ),
    make("nav", { "aria-label": "Views of the run" }, listed("ul.tabs", tabs.filter(Boolean), tab)),
  ];
}

async function runView({ run, overview }) {
  const told = facts({
    run: wrap("code.id", run),
    tags: (overview.tags ?? []).length ? overview.tags.map((tag) => wrap("span.tag", tag)) : null,
    submitted: moment(overview.submitted),
    priority: overview.priority || null,
    begins: overview.at ? moment(overview.at) : null,
    finished: overview.finished ? moment(overview.finished) : null,
    took: duration(overview.duration_seconds),
    cost: overview.cost ? [money(overview.cost), tokens(overview.cost)] : null,
    ticks: overview.ticks,
    instances: overview.instances ? counted(overview.instances) : null,
    "child of": overview.parent ? anchor(address("run", overview.parent.run), overview.parent.run) : null,
    "forked from": forkedFrom(overview.forked_from),
    "undone by": (overview.undo ?? []).length
      ? overview.undo.map((undoing) => wrap("div", anchor(address("run", undoing), undoing)))
      : null,
    simulation: overview.simulation ? "models have answered its calls, and no code has run" : null,
    "sent and forgotten": background(overview.background),
    by: [
      (overview.orders ?? []).map((one) => wrap("div", ordered(one))),
      anchor(address("run", run, "audit"), "everything, with decisions and amendments"),
    ],
    expires: overview.expires ? moment(overview.expires) : null,
    "last entry": overview.log && !overview.finished ? moment(new Date(parseInt(overview.log)).toISOString()) : null,
  });
  const output =
    overview.output === null || overview.output === undefined ? null : section("Output", tree(overview.output));
  const attention = [];
  if (overview.reason) attention.push(wrap("p.reason", overview.reason));
  for (const { message } of (overview.unanswered ?? []).slice(0, 5))
    attention.push(wrap("p", "A model is asked again: ", message));
  for (const { call, reason } of (overview.waiting_for ?? []).filter((one) => one.for !== "person").slice(0, 5))
    attention.push(wrap("p", call === null ? "The run" : ["Call ", wrap("code.id", call)], ` waits: ${reason}`));
  for (const one of (overview.progress ?? []).slice(0, 5))
    attention.push(wrap("div", "Call ", wrap("code.id", one.call), progressOf(one)));
  const failed = overview.counts?.failed ?? 0;
  if (failed)
    attention.push(
      wrap("p", badge("failed", failed), ": choose the count at its call in the plan to see which, and why."),
    );
  if (overview.held)
    attention.push(wrap("p", anchor(address("run", run, "held"), badge("held", overview.held)), ": a person decides."));
  return {
    title: overview.name ?? run,
    nodes: [heading("The run"), attention.length ? notice("", attention) : null, told, runDeeds(overview), output],
  };
}

/** Who has done something to the run; a token has shown the name, or it is what somebody says of himself. */
const ordered = (one) => `${one.did} by ${one.by}${one.authenticated ? " (authenticated)" : ""} from ${one.from}`;

async function auditView({ run }) {
  const more = (after) => ask(`runs/${run}/audit`, { after });
  const empty = "Nobody has changed this run from outside.";
  const list = pages({ first: await more(""), key: "orders", row: orderRow, more, empty, label: "Who did what" });
  return { title: "Who did what", nodes: [heading("Who did what, the newest first"), list] };
}

function orderRow(one) {
  const where = [one.call === null ? null : `call ${one.call}`, one.instance && `in ${one.instance}`];
  const about = Object.entries(one.about).map(([name, value]) => `${name} ${shortened(value)}`);
  return wrap(
    "div.row",
    wrap("span.what", ordered(one)),
    quiet([...where, ...about].filter(Boolean).join(", ")),
    wrap("span.when", moment(one.moment)),
  );
}

const shortened = (value) => {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
};

function forkedFrom(origin) {
  return origin ? anchor(address("run", origin.run), `${origin.run} at ${origin.at}`) : null;
}

const background = (counts) => counts && Object.entries(counts).map(([name, number]) => `${counted(number)} ${name} `);

function tokens(cost) {
  const known = [
    cost.requests !== undefined && plural(cost.requests, "request"),
    cost.input !== undefined && `${counted(cost.input)} tokens in`,
    cost.output !== undefined && `${counted(cost.output)} out`,
    cost.cached ? `${counted(cost.cached)} cached` : null,
  ];
  return wrap(
    "span.quiet",
    known.filter(Boolean).map((text) => ` · ${text}`),
  );
}

/** How far the log of a large run has been counted. */
function reading(answer) {
  if (!answer.reading) return null;
  return notice(
    "quiet",
    wrap(
      "p",
      `The log is still being read: ${counted(answer.reading.read)} of ${counted(answer.reading.of)} entries. The counts are those so far.`,
    ),
  );
}

async function instancesView({ run, parts, query }) {
  const asked = { status: parts[0] ?? "", search: query.get("search") ?? "" };
  const answer = await ask(`runs/${run}/instances`, asked);
  const of = (status) => address("run", run, "instances", ...(status ? [status] : []));
  const list = pages({
    first: answer,
    key: "instances",
    row: (one) =>
      statusRow(one.status, instanceAddress(run, one.instance), instanceName(one.instance), badges(one.counts)),
    more: (after) => ask(`runs/${run}/instances`, { ...asked, after }),
    empty: asked.status || asked.search ? "No matching instances." : "This run has no instances: all its calls are global.",
    label: "Instances",
  });
  const filter = listed("ul.badges", ["", ...STANDING], (status) =>
    choice(of(status), status ? badge(status) : "all", status === asked.status),
  );
  const found = (search) => of(asked.status) + (search ? "?" + new URLSearchParams({ search }) : "");
  const search = { label: "Search instances", placeholder: "name", value: asked.search, found };
  const head = wrap("div.head", filter, isLive ? searchForm(search) : null);
  const nodes = [heading("Instances"), reading(answer), head, list];
  return { title: "Instances", nodes, isReading: Boolean(answer.reading) };
}
