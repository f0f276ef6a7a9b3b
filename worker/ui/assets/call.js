"use strict";

// One call of the plan over all instances: its errors, the most frequent first, and its instances by pages.

async function callView({ run, parts }) {
  const [index, status = ""] = parts;
  const answer = await ask(`runs/${run}/calls/${index}`, { status });
  const call = answer.call;
  const link = (one) => address("run", run, "call", index, one);
  const instances = pages({
    first: { items: answer.instances, next: answer.next },
    row: (one) => callRow(run, one),
    more: async (after) => {
      const page = await ask(`runs/${run}/calls/${index}`, { status, after });
      return { items: page.instances, next: page.next };
    },
    empty: status ? `None is ${status}.` : "It has not been laid out yet.",
    label: `Call ${callName(call)}${status ? `, ${status}` : ""}`,
  });
  const all = make("a", { href: address("run", run, "call", index), "aria-current": status ? null : "true" }, "all");
  return {
    title: `Call ${callName(call)}`,
    current: index,
    isReading: Boolean(answer.reading),
    nodes: [
      heading(`Call ${call.index}: `, make("span", { class: "tool" }, call.tool)),
      reading(answer),
      answer.errors?.length
        ? section(
            "Errors, the most frequent first",
            rows(answer.errors, (error) => errorGroup(run, error)),
          )
        : null,
      section("Where it ran", make("div", { class: "filter-line" }, all, badges(call.counts, link, status)), instances),
      section("As it is written", callFacts(run, call), writtenParameters(run, call)),
    ],
  };
}

function errorGroup(run, error) {
  const first = (error.instances ?? []).map((instance) =>
    make("li", {}, make("a", { href: instanceAddress(run, instance) }, instanceName(instance))),
  );
  return make(
    "div",
    { class: "row error" },
    badge("failed", error.count),
    make("div", { class: "what" }, errorText(error), make("ul", { class: "inline" }, first)),
  );
}

function callRow(run, one) {
  return make(
    "div",
    { class: "row" },
    make("span", { class: "state" }, badge(one.status)),
    make("a", { class: "name", href: instanceAddress(run, one.instance) }, instanceName(one.instance)),
    make(
      "div",
      { class: "what" },
      errorText(one.error),
      one.reason ? make("p", { class: "reason" }, one.reason) : null,
    ),
    make(
      "span",
      { class: "when" },
      one.ended ? moment(one.ended, { only: "time" }) : null,
      one.attempts > 1 ? make("span", { class: "quiet" }, plural(one.attempts, "attempt")) : null,
    ),
  );
}

const KINDS = { activity: "code of this backend", delegate: "a delegate", latent: "a model answers" };

function callFacts(run, call) {
  const marks = [
    call.gather && "gathers from all instances",
    call.each && "once for each element",
    call.fire_and_forget && "sent and forgotten",
    call.child && "a run of its own",
    call.note && "a note",
  ].filter(Boolean);
  return facts({
    "carried out by": KINDS[call.kind] ?? call.kind,
    tick: call.tick,
    "": marks.length ? marks.join(", ") : null,
    writes: paths(run, call.writes),
    reads: paths(run, call.reads),
    "is shown": (call.scopes ?? []).length ? paths(run, call.scopes) : null,
    instances: call.instances ? counted(call.instances) : null,
    "why the model calls it": call.reasoning,
  });
}

function writtenParameters(run, call) {
  return call.parameters && Object.keys(call.parameters).length
    ? make("div", { class: "parameters" }, make("h4", {}, "Parameters"), fields(call.parameters))
    : null;
}
