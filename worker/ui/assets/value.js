"use strict";

// A value: who writes it and who reads it, who can see it, what it was at any moment, why it is missing.

async function valueView({ run, parts }) {
  const [path, , instance = null] = parts;
  const log = late("Read the log", () => placeHistory(run, path, instance));
  let answer = { path, above: [] };
  let known;
  try {
    answer = await ask(`runs/${run}/place`, { path, instance });
    known = placeParts(run, answer, instance);
  } catch (error) {
    if (error.type !== "NotInTheFile") throw error;
    const text = `acts explain ${run} ${quoted(path)}${laneOption(instance)}`;
    known = notice("quiet", make("p", {}, error.message), command(text));
    log.open = true;
  }
  const reader = instance === null ? "a global reader" : make("a", { href: instanceAddress(run, instance) }, instance);
  return {
    title: answer.path,
    nodes: [
      heading("Value ", make("code", {}, answer.path)),
      quiet("As ", reader, " sees it."),
      answer.above.length ? quiet("Inside of ", paths(run, answer.above, instance)) : null,
      known,
      section("What it was at any moment", log),
    ],
  };
}

function placeParts(run, answer, instance) {
  const link = (inner) => valueAddress(run, inner, instance);
  const calls = (list, nothing) => (list.length ? rows(list, (one) => callLink(run, one)) : quiet(nothing));
  const sight = ({ who, how }) => make("div", { class: "row" }, make("span", { class: "tool" }, who), quiet(how));
  const { missing: absence, seen_by: seers, provenance } = answer;
  return [
    absence === undefined
      ? section("Now", tree(answer.value, { place: answer.path, link, whole: wholeOf(run, instance) }))
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

/** A slider over the moments at which a value has changed, or may have. */
async function placeHistory(run, path, instance) {
  const log = await logOf(run, instance);
  const keys = keysOf(path);
  const isNear = ({ place }) => keys.every((key, depth) => depth >= place.length || key === place[depth]);
  const at = ({ data, conflicts }) => [valueAt(data, keys), conflicts.filter(isNear)];
  const chosen = (entries) => {
    let before = JSON.stringify([{}, []]);
    return entries.filter((entry) => {
      const now = entry.data ? JSON.stringify(at(entry)) : null;
      const isOther = now === null || now !== before;
      before = now;
      return isOther;
    });
  };
  const link = (inner) => valueAddress(run, inner, instance);
  const show = async (entry) => {
    let [found, conflicts] = at(entry);
    if (found.isCut) found = await ask(`runs/${run}/place`, { path, instance, at: entry.id });
    const told =
      "value" in found
        ? tree(found.value, { place: path, link, whole: wholeOf(run, instance, entry.id) })
        : quiet(found.missing?.sentence ?? "There was no value.");
    return [told, misfits(conflicts)];
  };
  return moments({ run, log, instance, chosen, show });
}

/** What fetches a whole value as a file, where a server can give it. */
function wholeOf(run, instance, at = null) {
  if (!isLive) return null;
  return async (place) => {
    const asked = new URLSearchParams({
      run,
      path: place,
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
