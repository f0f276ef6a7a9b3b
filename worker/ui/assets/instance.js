"use strict";

// One instance, or what is global: its calls with what they were given, why one failed and how that is mended; its values.

async function instanceView({ run, parts }) {
  const name = parts.length ? parts[0] : null;
  const answer = await ask(`runs/${run}/instance`, { name });
  const calls = answer.calls ?? [];
  const bad = calls.filter((call) => call.status === "failed");
  const data = Object.keys(answer.data ?? {});
  const bar = bars(calls);
  const link = (place) => valueAddress(run, place, name);
  return {
    title: instanceName(name),
    current: bad[0]?.index ?? null,
    nodes: [
      heading(
        name === null ? "Global" : ["Instance ", make("span", { class: "tool" }, name)],
        " ",
        answer.status ? badge(answer.status) : null,
      ),
      bad.length ? bad.map((call) => failure(run, call)) : null,
      section(
        "Calls",
        calls.length
          ? make(
              "ol",
              { class: "calls" },
              calls.map((call) => make("li", {}, callDetails(run, call, bar(call)))),
            )
          : quiet("No call runs here."),
      ),
      section(
        "Values now",
        data.length
          ? data.map((kind) =>
              tree(answer.data[kind], { place: "†" + kind, link, whole: wholeOf(run, name), label: "†" + kind }),
            )
          : quiet("There is none."),
      ),
      section(
        "Values at any moment",
        late("Read the log", () => past(run, name)),
      ),
    ],
  };
}

/** What is read only when it is opened. */
function late(label, read) {
  const inside = make("div", {});
  const box = make(
    "details",
    { class: "late", on: { toggle: () => box.open && !inside.firstChild && go() } },
    make("summary", {}, label),
    inside,
  );
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

async function past(run, instance) {
  const log = await logOf(run, instance);
  const link = (place) => valueAddress(run, place, instance);
  const show = ({ id, data, conflicts }) => {
    const [names, whole] = [Object.keys(data), wholeOf(run, instance, id)];
    return [
      names.map((kind) => tree(data[kind], { place: "†" + kind, link, whole, label: "†" + kind })),
      names.length ? null : quiet("There is no value yet."),
      misfits(conflicts),
    ];
  };
  return moments({ run, log, instance, show });
}

/** A failed call at the top: what it was given, why it failed, how that is mended. */
function failure(run, call) {
  return make(
    "section",
    { class: "failure", "aria-label": `Call ${callName(call)} has failed` },
    make(
      "h3",
      {},
      badge("failed"),
      " ",
      make("a", { href: address("run", run, "call", call.index) }, `Call ${callName(call)}`),
    ),
    make("h4", {}, "Why"),
    errorText(call.error) ?? make("p", {}, "The log gives no reason."),
    make("h4", {}, "What it was given"),
    given(call),
    make("h4", {}, "How to mend it"),
    mending(run, call),
  );
}

function given(call) {
  if (call.parameters === undefined) return quiet("Not known: it has not begun, or reads in every instance.");
  return Object.keys(call.parameters).length ? fields(call.parameters) : quiet("No parameters.");
}

function callDetails(run, call, bar) {
  const timing = call.timing ?? {};
  const times = facts({
    began: timing.began ? moment(timing.began, { only: "time" }) : null,
    ended: timing.ended ? moment(timing.ended, { only: "time" }) : null,
    "at work": timing.seconds === null || timing.seconds === undefined ? null : duration(timing.seconds),
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
  const more = [
    make("a", { href: address("run", run, "call", call.index) }, "in all instances"),
    call.child ? make("a", { href: address("run", call.child) }, "its own run") : null,
    make(
      "a",
      { href: address("run", run, "sent", call.id) },
      call.kind === "activity" ? "what it was given" : "exactly what it was given",
    ),
  ];
  const stale = call.stale
    ? notice(
        "",
        make("p", {}, "Stale: it has read what a retry may have changed since."),
        command(`acts retry ${run} --call ${call.index}${laneOption(call.instance)} --downstream`),
      )
    : null;
  const summary = make(
    "summary",
    {},
    badge(call.status),
    " ",
    make("span", { class: "tool" }, callName(call)),
    call.stale ? make("span", { class: "tag" }, "stale") : null,
    make(
      "span",
      { class: "quiet" },
      timing.seconds === null || timing.seconds === undefined ? null : duration(timing.seconds),
    ),
    bar,
  );
  return make(
    "details",
    { class: "call" },
    summary,
    errorText(call.error),
    call.reason ? make("p", { class: "reason" }, call.reason) : null,
    stale,
    times,
    make("h4", {}, "What it was given"),
    given(call),
    make("p", { class: "links" }, more),
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
