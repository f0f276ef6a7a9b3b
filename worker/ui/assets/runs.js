"use strict";

// The list of runs: the newest first.

const RUN_STATUSES = ["running", "paused", "completed", "failed", "cancelled", "foreign"];

async function runsView({ query }) {
  if (!isLive) return (location.replace(address("run", embedded.run)), { title: "Run", nodes: [] });
  const status = make(
    "select",
    { "aria-label": "Status", on: { change: () => go() } },
    make("option", { value: "" }, "every status"),
    RUN_STATUSES.map((name) => make("option", { value: name }, name)),
  );
  const search = make("input", {
    type: "search",
    placeholder: "id, name or tag",
    "aria-label": "Search runs",
    autocomplete: "off",
  });
  status.value = query.get("status") ?? "";
  search.value = query.get("search") ?? "";
  const asked = { status: status.value, search: search.value };
  const go = () => {
    const said = new URLSearchParams(
      Object.entries({ status: status.value, search: search.value.trim() }).filter(([, value]) => value),
    );
    location.hash = `#/${said.size ? "?" + said : ""}`;
  };
  const form = make(
    "form",
    { class: "filter", role: "search", on: { submit: (event) => (event.preventDefault(), go()) } },
    search,
    status,
    make("button", { type: "submit" }, "Search"),
  );
  const answer = await ask("runs", asked);
  const list = pages({
    first: { items: answer.runs, next: answer.next },
    row: runRow,
    more: async (after) => {
      const page = await ask("runs", { ...asked, after });
      return { items: page.runs, next: page.next };
    },
    empty: asked.status || asked.search ? "No run fits." : "There are no runs yet: acts submit FILE makes one.",
    label: "Runs",
  });
  return { title: "Runs", nodes: [make("div", { class: "head" }, heading("Runs"), form), list], isFresh: true };
}

function runRow(run) {
  const name = make("a", { class: "name", href: address("run", run.run) }, run.name ?? run.run);
  return make(
    "div",
    { class: "row run" },
    make("span", { class: "state" }, badge(run.status)),
    make(
      "span",
      { class: "what" },
      name,
      run.name ? make("code", { class: "id" }, run.run) : null,
      (run.tags ?? []).map((tag) => make("span", { class: "tag" }, tag)),
    ),
    make("span", { class: "share" }, share(run.calls)),
    make(
      "span",
      { class: "when" },
      `${duration(run.age_seconds)} ago`,
      make("span", { class: "quiet" }, `took ${duration(run.duration_seconds)}`),
      make("span", { class: "quiet" }, money(run.cost)),
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
  return [bar, make("span", { class: "quiet", "aria-hidden": "true" }, label)];
}
