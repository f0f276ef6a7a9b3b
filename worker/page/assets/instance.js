"use strict";

// One instance, or what is global: its calls with what they were given, why one failed and how that is mended; its values.

async function instanceView({ run, parts }) {
  const name = parts.length ? parts[0] : null;
  const answer = await ask(`runs/${run}/instance`, { name });
  const calls = answer.calls ?? [];
  const bad = calls.filter((call) => call.status === "failed");
  const data = Object.keys(answer.data ?? {});
  const link = (place) => valueAddress(run, printed(place), name);
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
          ? [
              timeline(calls),
              make(
                "ol",
                { class: "calls" },
                calls.map((call) => make("li", {}, callDetails(run, call))),
              ),
            ]
          : make("p", { class: "quiet" }, "No call runs here."),
      ),
      section(
        "Values now",
        data.length
          ? data.map((kind) =>
              tree(answer.data[kind], {
                place: { kind, path: [] },
                link,
                whole: wholeOf(run, name),
                label: "†" + kind,
              }),
            )
          : make("p", { class: "quiet" }, "There is none."),
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
    refill(inside, make("p", { class: "quiet" }, "Reading …"));
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
  const show = (kinds, entry) => {
    const values = snapshot(kinds);
    const link = (place) => valueAddress(run, printed(place), instance);
    const conflicts = [...kinds.values()].flatMap((kind) =>
      kind.conflicts.map((conflict) => make("li", {}, conflict.sentence)),
    );
    return [
      Object.keys(values).map((kind) => tree(values[kind], { place: { kind, path: [] }, link, label: "†" + kind })),
      conflicts.length ? notice("error", make("p", {}, "What could not be applied:"), make("ul", {}, conflicts)) : null,
      deedOr(mayControl(), "Fork here …", () => openFork(run, entry.id), `acts fork ${run} --at ${entry.id}`),
    ];
  };
  return moments({ run, log, instance, concerns: (entry) => Boolean(entry.message) || entry.cut, show });
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
  const hasParameters = call.parameters && Object.keys(call.parameters).length > 0;
  if (!hasParameters) return make("p", { class: "quiet" }, "No parameters.");
  const as =
    call.parameters_as === "written"
      ? make("p", { class: "quiet" }, "As it is written: the values are not known here.")
      : null;
  return make("div", { class: "given" }, as, fields(call.parameters));
}

function callDetails(run, call) {
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
    make("a", { href: address("run", run, "sent", call.id) }, "exactly what it was given"),
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

/** When each call was at work, one above the other. */
function timeline(calls) {
  const known = calls.filter((call) => call.timing?.began && call.timing?.ended);
  if (known.length < 2) return null;
  const at = (iso) => new Date(iso).getTime();
  const [from, to] = [
    Math.min(...known.map((call) => at(call.timing.began))),
    Math.max(...known.map((call) => at(call.timing.ended))),
  ];
  const span = Math.max(to - from, 1);
  const shown = known.slice(0, 60);
  const height = 18;
  const bars = shown.map((call, row) => {
    const x = (700 * (at(call.timing.began) - from)) / span;
    const width = Math.max((700 * (at(call.timing.ended) - at(call.timing.began))) / span, 2);
    const inside = x > 420;
    return draw(
      "g",
      {},
      draw("rect", { class: call.status, x, y: row * height + 3, width, height: height - 6, rx: 2 }),
      draw(
        "text",
        { x: inside ? x - 5 : x + width + 5, y: row * height + 13, "text-anchor": inside ? "end" : "start" },
        `${callName(call)}  ${duration(call.timing.seconds ?? 0)}`.slice(0, 60),
      ),
    );
  });
  const label = `When the calls were at work: ${shown.length} calls in ${duration(span / 1000)}`;
  return make(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": label },
    draw(
      "svg",
      { class: "timeline", viewBox: `-4 0 960 ${shown.length * height}`, role: "img", "aria-label": label },
      bars,
    ),
  );
}
