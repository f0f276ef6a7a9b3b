"use strict";

// One call of the plan over all instances: its errors, the most frequent first, and its instances by pages.

async function callView({ run, parts }) {
  const [index, status = ""] = parts;
  const answer = await ask(`runs/${run}/calls/${index}`, { status });
  const call = answer.call;
  const of = (status) => address("run", run, "call", index, ...(status ? [status] : []));
  const instances = pages({
    first: answer,
    key: "instances",
    row: (one) => callRow(run, one),
    more: (after) => ask(`runs/${run}/calls/${index}`, { status, after }),
    empty: status ? `None is ${status}.` : "It has not started yet.",
    label: `Call ${callName(call)}${status ? `, ${status}` : ""}`,
  });
  const errors = rows(answer.errors, (error) => errorGroup(run, error));
  return {
    title: `Call ${callName(call)}`,
    current: index,
    isReading: Boolean(answer.reading),
    nodes: [
      heading(`Call ${call.index}: `, wrap("span.tool", call.tool)),
      reading(answer),
      answer.errors.length ? section("Errors, the most frequent first", errors) : null,
      section(
        "Where it ran",
        wrap("div.filter-line", choice(of(""), "all", !status), badges(call.counts, of, status)),
        instances,
      ),
      section("As it is written", callFacts(run, call), writtenParameters(run, call)),
    ],
  };
}

function errorGroup(run, error) {
  const first = listed("ul.inline", error.instances, (one) => anchor(instanceAddress(run, one), instanceName(one)));
  const what = wrap("div.what", errorText(error), first);
  return wrap("div.row.error", badge("failed", error.count), what);
}

function callRow(run, one) {
  return statusRow(
    one.status,
    instanceAddress(run, one.instance),
    instanceName(one.instance),
    wrap(
      "div.what",
      errorText(one.error),
      one.reason ? wrap("p.reason", one.reason) : null,
      one.until ? moving(run, one) : null,
      one.progress ? progressOf(one.progress) : null,
    ),
    wrap(
      "span.when",
      one.ended ? moment(one.ended, { only: "time" }) : null,
      one.attempts > 1 ? wrap("span.quiet", plural(one.attempts, "attempt")) : null,
    ),
  );
}

/** What a call at work has reported of its progress: a bar where it says of how much, and its words. */
function progressOf({ done = null, total = null, text = "" }) {
  const said = done === null ? "" : total === null ? counted(done) : `${counted(done)} of ${counted(total)}`;
  const bar = done === null || !total ? null : make("progress", { max: String(total), value: String(done) });
  return wrap("p.reason", bar, bar ? " " : null, [said, text].filter(Boolean).join(": "));
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
    "run by": KINDS[call.kind] ?? call.kind,
    tick: call.tick,
    "": marks.length ? marks.join(", ") : null,
    writes: paths(run, call.writes),
    reads: paths(run, call.reads),
    "is shown": (call.scopes ?? []).length ? paths(run, call.scopes) : null,
    "runs after what writes": (call.after ?? []).length ? paths(run, call.after) : null,
    instances: call.instances ? counted(call.instances) : null,
    "why the model calls it": call.reasoning,
  });
}

function writtenParameters(run, call) {
  return Object.keys(call.parameters).length ? wrap("div", wrap("h4", "Parameters"), fields(call.parameters)) : null;
}

// One instance, or what is global: its calls with what they were given, why one failed and how that is mended; its values.

async function instanceView({ run, parts }) {
  const name = parts.length ? parts[0] : null;
  const answer = await ask(`runs/${run}/instance`, { name });
  const { calls, data } = answer;
  const bad = calls.filter((call) => call.status === "failed");
  const bar = bars(calls);
  const title = name === null ? "Global" : ["Instance ", wrap("span.tool", name)];
  const list = listed("ol.calls", calls, (call) => callDetails(run, call, bar(call)));
  const past = async () => moments({ run, log: await logOf(run, name), instance: name, show });
  const show = ({ id, data, conflicts }) => [
    kinds(run, name, data, id) ?? quiet("There is no value yet."),
    misfits(conflicts),
  ];
  return {
    title: instanceName(name),
    current: bad[0]?.index ?? null,
    nodes: [
      heading(title, " ", badge(answer.status)),
      bad.map((call) => failure(run, call)),
      section("Calls", calls.length ? list : quiet("No call runs here.")),
      section("Values now", kinds(run, name, data) ?? quiet("There is none.")),
      section("Values at any moment", late("Read the log", past)),
    ],
  };
}

/** The values of all kinds, now or at a moment; null where there is none. */
function kinds(run, instance, data, at = null) {
  const link = (place) => valueAddress(run, place, instance);
  const whole = wholeOf(run, instance, at);
  const found = Object.keys(data).map((kind) => ["†" + kind, data[kind]]);
  return found.length ? found.map(([place, value]) => tree(value, { place, link, whole, label: place })) : null;
}

/** What is read only when it is opened. */
function late(label, read) {
  const inside = wrap("div");
  const toggle = () => box.open && !inside.firstChild && go();
  const box = make("details.late", { on: { toggle } }, wrap("summary", label), inside);
  const go = async () => {
    refill(inside, quiet("Reading …"));
    try {
      refill(inside, await read());
    } catch (error) {
      refill(inside, refused(error));
    }
  };
  return box;
}

/** A failed call at the top: what it was given, why it failed, how that is mended. */
function failure(run, call) {
  return make(
    "section.failure",
    { "aria-label": `Call ${callName(call)} has failed` },
    wrap("h3", badge("failed"), " ", anchor(address("run", run, "call", call.index), `Call ${callName(call)}`)),
    wrap("h4", "Why"),
    errorText(call.error) ?? wrap("p", "The log gives no reason."),
    wrap("h4", "Input"),
    given(call),
    wrap("h4", "How to mend it"),
    mending(run, call),
  );
}

function given(call) {
  if (call.parameters === undefined) return quiet("Not known: it has not begun, or reads in every instance.");
  return Object.keys(call.parameters).length ? fields(call.parameters) : quiet("No parameters.");
}

/** Why nobody was asked about a call that others' data reached. */
function unasked({ rule, unasked: waivers = [] }) {
  const reasons = [...(rule ? [`rule ${rule} of the run let it start`] : []), ...waivers.map((one) => one.text)];
  return reasons.length ? wrap("p.reason", `Nobody was asked: ${reasons.join("; ")}.`) : null;
}

function callDetails(run, call, bar) {
  const timing = call.timing ?? {};
  const seconds = (timing.seconds ?? null) === null ? null : duration(timing.seconds);
  const times = facts({
    began: timing.began ? moment(timing.began, { only: "time" }) : null,
    ended: timing.ended ? moment(timing.ended, { only: "time" }) : null,
    "at work": seconds,
    waited: timing.waited_seconds ? duration(timing.waited_seconds) : null,
    attempts: timing.attempts,
    worker: call.worker,
    version: call.version,
    tick: call.tick,
    cost: money(call.cost),
    elements: call.elements ? JSON.stringify(call.elements) : null,
    writes: paths(run, call.writes, call.instance),
    reads: paths(run, call.reads, call.instance),
  });
  const sent = call.kind === "activity" ? "what it was given" : "exactly what it was given";
  const more = [
    anchor(address("run", run, "call", call.index), "in all instances"),
    call.child ? anchor(address("run", call.child), "its own run") : null,
    anchor(address("run", run, "sent", call.id), sent),
  ];
  const again = `acts retry ${run} --call ${call.index}${laneOption(call.instance)} --downstream`;
  const stale = notice("", wrap("p", "Stale: it read something that a retry may have changed."), command(again));
  const summary = wrap(
    "summary",
    badge(call.not_taken ? "not taken" : call.status),
    " ",
    wrap("span.tool", callName(call)),
    call.stale ? wrap("span.tag", "stale") : null,
    wrap("span.quiet", seconds),
    bar,
  );
  return wrap(
    "details.call",
    summary,
    errorText(call.error),
    call.reason ? wrap("p.reason", call.reason) : null,
    unasked(call),
    call.stale ? stale : null,
    times,
    wrap("h4", "Input"),
    given(call),
    wrap("p.links", more),
  );
}

/** When each call was at work, as a bar on one scale for all of them; null where that is not known. */
function bars(calls) {
  const at = (iso) => new Date(iso).getTime();
  const known = calls.map((call) => call.timing).filter((timing) => timing?.began && timing.ended);
  const from = Math.min(...known.map((timing) => at(timing.began)));
  const span = Math.max(...known.map((timing) => at(timing.ended)), from + 1) - from;
  return (call) => {
    if (!call.timing?.began || !call.timing.ended) return null;
    const width = Math.max((100 * (at(call.timing.ended) - at(call.timing.began))) / span, 1);
    const x = Math.min((100 * (at(call.timing.began) - from)) / span, 100 - width);
    const bar = draw("rect", { class: call.status, x, y: 0, width, height: 6 });
    return draw(
      "svg",
      { class: "span", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
      bar,
    );
  };
}
