"use strict";

// The history of an instance, or of one value: a slider over the log, with the values of each moment.

const ENTRIES_AT_ONCE = 5_000;

/** The moments of the log that a reader in an instance sees, page after page up to a bound; `next` where there are more. */
async function logOf(run, instance, log = { entries: [], next: null }) {
  const until = log.entries.length + ENTRIES_AT_ONCE;
  do {
    const page = await ask(`runs/${run}/log`, { instance, after: log.next });
    log.entries.push(...page.entries);
    log.next = page.next;
  } while (isLive && log.next !== null && log.entries.length < until);
  return log;
}

/** A slider over `chosen(entries)`; `show(entry)` makes what is shown of the values then. */
function moments({ run, log, instance, chosen = (entries) => entries, show }) {
  const entries = chosen(log.entries);
  if (!entries.length) return quiet("The log holds nothing of this.");
  const output = make("div", { class: "moment" });
  const told = make("p", { class: "told", role: "status" });
  const last = entries.length - 1;
  const slider = make("input", {
    type: "range",
    min: "0",
    max: String(last),
    step: "1",
    value: String(last),
    "aria-label": "Moment in the log",
  });
  const go = async () => {
    const at = Number(slider.value);
    const entry = entries[at];
    const id = make("code", { class: "id" }, entry.id);
    slider.setAttribute("aria-valuetext", `${at + 1} of ${entries.length}, message ${entry.id}`);
    refill(told, `${counted(at + 1)} of ${counted(entries.length)}: `, moment(entry.moment), " ", byWhom(entry), id);
    let shown;
    try {
      if (!entry.data) Object.assign(entry, (await ask(`runs/${run}/log`, { instance, at: entry.id })).entries[0]);
      shown = [await show(entry), forkHere(run, entry)];
    } catch (error) {
      shown = [refused(error), command(`acts show ${run}${laneOption(instance)} --at ${entry.id}`)];
    }
    if (entries[Number(slider.value)] === entry) refill(output, shown);
  };
  let asked = false;
  slider.addEventListener("input", () => {
    if (!asked) requestAnimationFrame(() => ((asked = false), go()));
    asked = true;
  });
  const step = (label, sign, by) => {
    const click = () => ((slider.value = String(Number(slider.value) + by)), go());
    return make("button", { type: "button", "aria-label": label, on: { click } }, sign);
  };
  go();
  const controls = make("div", { class: "slider" }, step("Earlier", "‹", -1), slider, step("Later", "›", 1));
  const whole = make("div", { class: "moments" }, controls, told);
  if (isLive && log.next !== null) {
    const more = async () =>
      whole.replaceWith(moments({ run, log: await logOf(run, instance, log), instance, chosen, show }));
    const button = make("button", { type: "button", on: { click: more } }, "Read on");
    whole.append(quiet(`These are the first ${counted(log.entries.length)} messages. `, button));
  }
  whole.append(output);
  return whole;
}

function byWhom({ undone, instance, call, tool, method }) {
  if (undone) return `calls ${undone.join(", ")} are done again: what they wrote counts no more. `;
  const who = call === null ? "given" : `by call ${call}${tool ? ` ${tool}` : ""}`;
  return `${instance === null ? "global, " : ""}${who}${method ? ` (${method})` : ""}. `;
}

/** What could not be applied until a moment. */
const misfits = (conflicts) =>
  conflicts.length
    ? notice(
        "error",
        make("p", {}, "What could not be applied:"),
        make(
          "ul",
          {},
          conflicts.map((one) => make("li", {}, one.message)),
        ),
      )
    : null;
