"use strict";

// The workflows of the operator's folders: what each needs, gives, costs and can reach, before it runs.

async function workflowsView({ query }) {
  const search = query.get("search") ?? "";
  const form = searchForm({
    label: "Search workflows",
    placeholder: "name",
    value: search,
    found: (text) => `#/workflows${text ? "?" + new URLSearchParams({ search: text }) : ""}`,
  });
  const list = pages({
    first: await ask("workflows", { search }),
    key: "workflows",
    row: workflowRow,
    more: (after) => ask("workflows", { search, after }),
    empty: search ? "No matching workflows." : "There is no workflow in the folders of ACTS_DELEGATES.",
    label: "Workflows",
  });
  return { title: "Workflows", nodes: [wrap("div.head", heading("Workflows"), form), list] };
}

function workflowRow({ name, needs, calls }) {
  const says = calls === null ? "it cannot be read" : plural(calls, "call");
  return wrap(
    "div.row",
    wrap("span.what", anchor(address("workflow", name), name)),
    quiet([says, needs.length ? `needs ${needs.join(", ")}` : null].filter(Boolean).join(", ")),
  );
}

async function workflowView({ parts }) {
  const [name = ""] = parts;
  const found = await ask("workflow", { name });
  const { problems, needs, gives, costs, reaches = [], findings = [] } = found;
  if (problems.length) {
    const told = listed("ul", problems, (one) => [one.pointer ? wrap("code", one.pointer) : null, " ", one.message]);
    return { title: name, nodes: [heading(name), notice("error", wrap("p", "It cannot be run from here:"), told)] };
  }
  const told = facts({
    calls: `at most ${counted(costs.calls)}`,
    "requests to models": costs.requests ? `at most ${counted(costs.requests)}` : "none",
    "child runs": costs.levels ? `${plural(costs.levels, "level")} deep` : null,
    "for each element": costs.per_element ? "a call with _each counts once here, and runs for each element" : null,
    recursion: costs.recursive ? "a workflow calls itself, and counts once here" : null,
    limits: Object.keys(costs.limits).length ? tree(costs.limits) : null,
    start: command(`acts run ${quoted(name)}${inputs(needs.schema)}`),
  });
  return {
    title: name,
    nodes: [
      heading(name),
      told,
      section("Needs", needs.schema === null ? quiet("It declares no input.") : tree(needs.schema)),
      section("Gives", givesWhat(gives)),
      section("Can reach", reaches.length ? listed("ul", reaches, reachedBy) : quiet("Nothing.")),
      findings.length ? section("Findings", listed("ul", findings, (one) => `${one.code} ${one.message}`)) : null,
    ],
  };
}

/** The inputs that have to be given, as options of the command. */
function inputs(schema) {
  const required = Array.isArray(schema?.required) ? schema.required : [];
  return required.map((key) => ` --input ${quoted(`${key}=…`)}`).join("");
}

function givesWhat({ output, schema, places }) {
  const result = output === null ? quiet("The state that its calls leave:") : tree(output);
  const where = output === null ? listed("ul", places, (place) => wrap("code", place)) : null;
  return [result, where, schema === null ? null : [quiet("Its schema:"), tree(schema)]];
}

const REACHED_BY = { activity: "code", delegate: "a delegate in code", loop: "a loop, whose model chooses calls" };

function reachedBy({ name, by, calls, effects, untrusted, servers, held }) {
  const what = by === "workflow" ? anchor(address("workflow", name), name) : wrap("strong", name);
  const said = [
    REACHED_BY[by] ?? `a ${by}`,
    plural(calls, "call"),
    effects ? "with effects" : null,
    untrusted.length ? `untrusted (${untrusted.join(", ")})` : null,
    servers.length ? `server ${servers.join(", ")}` : null,
    held ? "held until a person decides" : null,
  ];
  return [what, ": ", said.filter(Boolean).join(", ")];
}
