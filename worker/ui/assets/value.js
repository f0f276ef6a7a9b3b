"use strict";

// A value: who writes it and who reads it, who can see it, what it was at any moment, why it is missing.

async function valueView({ run, parts }) {
  const [path, , instance = null] = parts;
  const place = placeOf(path);
  const log = late("Read the log", () => placeHistory(run, place, instance));
  let known;
  try {
    known = placeParts(run, await ask(`runs/${run}/place`, { path: printed(place), instance }), place, instance);
  } catch (error) {
    if (error.type !== "NotInTheFile") throw error;
    const text = `acts explain ${run} ${quoted(printed(place))}${laneOption(instance)}`;
    known = notice("quiet", make("p", {}, error.message), command(text));
    log.open = true;
  }
  const above = place.path.map((_, depth) => printed({ kind: place.kind, path: place.path.slice(0, depth) }));
  const reader = instance === null ? "a global reader" : make("a", { href: instanceAddress(run, instance) }, instance);
  return {
    title: printed(place),
    nodes: [
      heading("Value ", make("code", {}, printed(place))),
      quiet("As ", reader, " sees it."),
      above.length ? quiet("Inside of ", paths(run, above, instance)) : null,
      known,
      section("What it was at any moment", log),
    ],
  };
}

function placeParts(run, answer, place, instance) {
  const link = (inner) => valueAddress(run, printed(inner), instance);
  const calls = (list, nothing) => (list.length ? rows(list, (one) => callLink(run, one)) : quiet(nothing));
  const sight = ({ who, how }) => make("div", { class: "row" }, make("span", { class: "tool" }, who), quiet(how));
  const { missing: absence, seen_by: seers, provenance } = answer;
  return [
    absence === undefined
      ? section("Now", tree(answer.value, { place, link, whole: wholeOf(run, instance) }))
      : section("It has no value", missing(absence, run, instance)),
    section("Who writes it", calls(answer.writers, "No call: it was given.")),
    section("Who reads it", calls(answer.readers, "No call.")),
    section("Who can see it", seers.length ? rows(seers, sight) : quiet("No call, delegate or model.")),
    provenance.length ? section("Which messages it came from", origins(run, answer, instance)) : null,
  ];
}

function origins(run, { provenance, more }, instance) {
  const one = (origin) => [
    callLink(run, origin),
    quiet([origin.by && `by ${origin.by}`, origin.effect].filter(Boolean).join(", ")),
    tree(origin.value, { open: false, label: origin.path }),
    origin.reads.length
      ? make(
          "div",
          {},
          "It read ",
          paths(
            run,
            origin.reads.map((read) => read.path),
            instance,
          ),
        )
      : null,
  ];
  return [
    more ? quiet(`The last ${counted(provenance.length)}; there are ${counted(more)} more.`) : null,
    rows(provenance, one),
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
    why.length ? rows(why, one) : null,
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
  const shown = (value, at) => tree(value, { place, link, whole: wholeOf(run, instance, at) });
  const show = (kinds, entry) => {
    const found = valueAt(kinds, place);
    if (found.conflict) return notice("error", make("p", {}, found.conflict));
    return ["value" in found ? shown(found.value, entry.id) : quiet("There was no value."), forkHere(run, entry)];
  };
  const large = async (entry) => {
    const answer = await ask(`runs/${run}/place`, { path: printed(place), instance, at: entry.id });
    const value = answer.missing === undefined ? shown(answer.value, entry.id) : quiet(answer.missing.sentence);
    return [value, forkHere(run, entry)];
  };
  return moments({ run, log, instance, concerns, show, large: isLive ? large : null });
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
function wholeOf(run, instance, at = null) {
  if (!isLive) return null;
  return async (place) => {
    const asked = new URLSearchParams({
      run,
      path: printed(place),
      ...(instance === null ? {} : { instance }),
      ...(at === null ? {} : { at }),
    });
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
