"use strict";

// A value: who writes it and who reads it, who can see it, what it was at any moment, why it is missing.

async function valueView({ run, parts }) {
  const [path, , instance = null] = parts;
  const place = placeOf(path);
  let answer = null;
  let refusal = null;
  try {
    answer = await ask(`runs/${run}/place`, { path: printed(place), instance });
  } catch (error) {
    if (isLive || error.type !== "NotInTheFile") throw error;
    refusal = error;
  }
  const log =
    answer === null || answer.missing === undefined
      ? late("Read the log", () => placeHistory(run, place, instance))
      : null;
  const above = place.path.length
    ? make(
        "p",
        { class: "quiet" },
        "Inside of ",
        paths(
          run,
          place.path.map((_, depth) => printed({ kind: place.kind, path: place.path.slice(0, depth) })),
          instance,
        ),
      )
    : null;
  if (refusal !== null) log.open = true;
  return {
    title: printed(place),
    nodes: [
      heading("Value ", make("code", {}, printed(place))),
      make(
        "p",
        { class: "quiet" },
        instance === null
          ? "As a global reader sees it."
          : ["As a reader in ", make("a", { href: instanceAddress(run, instance) }, instance), " sees it."],
      ),
      above,
      answer === null
        ? notice(
            "quiet",
            make("p", {}, refusal.message),
            command(`acts explain ${run} ${quoted(printed(place))}${laneOption(instance)}`),
          )
        : placeParts(run, answer, place, instance),
      log && section("What it was at any moment", log),
    ],
  };
}

function placeParts(run, answer, place, instance) {
  const calls = (list, word) =>
    list?.length
      ? make(
          "ol",
          { class: "rows" },
          list.map((one) => make("li", {}, callLink(run, one))),
        )
      : make("p", { class: "quiet" }, word);
  const seen = answer.seen_by?.length
    ? make(
        "ul",
        { class: "rows" },
        answer.seen_by.map((one) =>
          make(
            "li",
            {},
            make(
              "div",
              { class: "row" },
              make("span", { class: "tool" }, one.who),
              make("span", { class: "quiet" }, one.how),
            ),
          ),
        ),
      )
    : make("p", { class: "quiet" }, "No call, delegate or model.");
  const link = (inner) => valueAddress(run, printed(inner), instance);
  const now =
    answer.missing === undefined
      ? tree(answer.value, { place, link, whole: wholeOf(run, instance) })
      : missing(answer.missing, run, instance);
  return [
    section(answer.missing === undefined ? "Now" : "It has no value", now),
    section("Who writes it", calls(answer.writers, "No call: it was given.")),
    section("Who reads it", calls(answer.readers, "No call.")),
    section("Who can see it", seen),
    answer.provenance?.length ? section("Which messages it came from", origins(run, answer, instance)) : null,
  ];
}

function origins(run, { provenance, more }, instance) {
  const one = (origin) => [
    callLink(run, origin),
    make("p", { class: "quiet" }, [origin.by && `by ${origin.by}`, origin.effect].filter(Boolean).join(", ")),
    tree(origin.value, { open: false, label: origin.path }),
    (origin.reads ?? []).map((read) => make("div", {}, "read ", paths(run, [read.path], instance))),
  ];
  return [
    more
      ? make("p", { class: "quiet" }, `The last ${counted(provenance.length)}; there are ${counted(more)} more.`)
      : null,
    make(
      "ol",
      { class: "rows" },
      provenance.map((origin) => make("li", {}, one(origin))),
    ),
  ];
}

/** Why there is nothing: the calls that were to write it, and what became of each. */
function missing({ sentence, why, near }, run, instance) {
  const one = (writer) =>
    make(
      "div",
      { class: "row" },
      make("span", { class: "state" }, badge(writer.status)),
      make("a", { class: "name", href: address("run", run, "call", writer.index) }, callName(writer)),
      writer.instance ? make("a", { href: instanceAddress(run, writer.instance) }, writer.instance) : null,
      errorText(writer.error) ?? (writer.reason ? make("p", { class: "reason" }, writer.reason) : null),
    );
  return [
    make("p", {}, sentence),
    near ? make("p", {}, "Near it: ", paths(run, [near], instance)) : null,
    why.length
      ? make(
          "ol",
          { class: "rows" },
          why.map((writer) => make("li", {}, one(writer))),
        )
      : null,
  ];
}

function callLink(run, one) {
  const method = one.method && one.method !== "set" ? make("span", { class: "tag" }, one.method) : null;
  return make(
    "div",
    { class: "row" },
    one.index === null || one.index === undefined
      ? make("span", { class: "name" }, "given")
      : make("a", { class: "name", href: address("run", run, "call", one.index) }, callName(one)),
    method,
    make(
      "span",
      { class: "when" },
      one.moment ? moment(one.moment) : null,
      one.id ? make("code", { class: "id" }, one.id) : null,
    ),
  );
}

async function placeHistory(run, place, instance) {
  const log = await logOf(run, instance);
  const concerns = (entry) => entry.cut || touches(entry, place);
  const link = (inner) => valueAddress(run, printed(inner), instance);
  const show = (kinds, entry) => {
    const found = valueAt(kinds, place);
    if (found.conflict) return notice("error", make("p", {}, found.conflict));
    const value =
      "value" in found ? tree(found.value, { place, link }) : make("p", { class: "quiet" }, "There was no value.");
    return [value, forkHere(run, entry)];
  };
  return moments({ run, log, instance, concerns, show });
}

/** Whether a message can make a difference to a place. */
function touches(entry, place) {
  const operation = operationOf(entry);
  if (operation === null || operation.kind !== place.kind) return false;
  const [mine, theirs] = [keyOf(place), keyOf(operation)];
  if (isWithin(mine, theirs)) return true;
  if (!isWithin(theirs, mine)) return false;
  let value = operation.value;
  if (operation.method !== "merge" && operation.method !== "assign") return true;
  for (const segment of place.path.slice(operation.path.length)) {
    if (!isObject(value)) return true;
    value = below(value, { key: segment.key });
    if (value === MISSING) return false;
  }
  return true;
}

/** What fetches a whole value as a file, where a server can give it. */
function wholeOf(run, instance) {
  if (!isLive) return null;
  return async (place) => {
    const asked = new URLSearchParams({ run, path: printed(place), ...(instance === null ? {} : { instance }) });
    try {
      const response = await fetched(`api/whole?${asked}`);
      if (!response.ok) await answerOf(response);
      const link = make("a", { href: URL.createObjectURL(await response.blob()), download: "value.json" });
      link.click();
      URL.revokeObjectURL(link.getAttribute("href"));
    } catch (error) {
      dialogOf(error);
    }
  };
}
