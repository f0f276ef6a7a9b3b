"use strict";

// The history of an instance, or of one value: a slider over the log, folded here at each moment.

const ENTRIES_AT_ONCE = 5_000;
const BYTES_AT_ONCE = 20_000_000;

/** The log as a reader in an instance sees it, page after page up to a bound; `next` where there is more. */
async function logOf(run, instance, log = { entries: [], next: null }) {
  let [after, count, size] = [log.next, 0, 0];
  do {
    const page = await ask(`runs/${run}/log`, { instance, after });
    log.entries.push(...page.entries);
    count += page.entries.length;
    for (const entry of page.entries) size += entry.bytes ?? 0;
    after = page.next ?? null;
  } while (after !== null && count < ENTRIES_AT_ONCE && size < BYTES_AT_ONCE);
  log.next = after;
  return log;
}

/**
 * A slider over the moments that change what is looked at. `show(kinds, entry)` makes what is shown of the state after
 * an entry; `concerns(entry)` says which entries are moments of their own.
 */
function moments({ run, log, instance, concerns, show, large = null }) {
  const shownAt = log.entries
    .map((entry, position) => [entry, position])
    .filter(([entry]) => entry.undone || concerns(entry));
  if (!shownAt.length) return quiet("The log holds nothing of this.");
  const output = make("div", { class: "moment" });
  const told = make("p", { class: "told", role: "status" });
  const last = shownAt.length - 1;
  const slider = make("input", {
    type: "range",
    min: "0",
    max: String(last),
    step: "1",
    value: String(last),
    "aria-label": "Moment in the log",
  });
  const go = () => {
    const [entry, position] = shownAt[Number(slider.value)];
    const until = log.entries.slice(0, position + 1);
    slider.setAttribute("aria-valuetext", `${Number(slider.value) + 1} of ${shownAt.length}, message ${entry.id}`);
    refill(
      told,
      `${counted(Number(slider.value) + 1)} of ${counted(shownAt.length)}: `,
      moment(entry.moment),
      " ",
      byWhom(entry),
      make("code", { class: "id" }, entry.id),
    );
    if (!isCut(until, instance)) return void refill(output, show(fold(until, instance), entry));
    refill(output, tooLarge(run, instance, entry));
    const isShown = () => shownAt[Number(slider.value)][0] === entry;
    large?.(entry).then(
      (nodes) => isShown() && refill(output, nodes),
      (error) => isShown() && refill(output, refused(error)),
    );
  };
  let asked = false;
  slider.addEventListener("input", () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => ((asked = false), go()));
  });
  const step = (by) => () => {
    slider.value = String(Number(slider.value) + by);
    go();
  };
  go();
  const controls = make(
    "div",
    { class: "slider" },
    make("button", { type: "button", "aria-label": "Earlier", on: { click: step(-1) } }, "‹"),
    slider,
    make("button", { type: "button", "aria-label": "Later", on: { click: step(1) } }, "›"),
  );
  const whole = make("div", { class: "moments" }, controls, told);
  if (log.next !== null) {
    const more = async () =>
      whole.replaceWith(moments({ run, log: await logOf(run, instance, log), instance, concerns, show, large }));
    whole.append(
      quiet(
        `These are the first ${counted(log.entries.length)} messages. `,
        make("button", { type: "button", on: { click: more } }, "Read on"),
      ),
    );
  }
  whole.append(output);
  return whole;
}

function tooLarge(run, instance, entry) {
  const lane = instance === null ? "" : ` --instance ${quoted(instance)}`;
  return notice(
    "quiet",
    make("p", {}, "A message until here is too large to be folded in this page."),
    command(`acts show ${run}${lane} --at ${entry.id}`),
  );
}

function byWhom(entry) {
  if (entry.undone) return `calls ${entry.undone.join(", ")} are done again: what they wrote counts no more. `;
  const { _call: call, _outputMethod: method } = entry.message ?? {};
  const who = entry.call === null ? "given" : `by call ${entry.call}${call?._tool ? ` ${call._tool}` : ""}`;
  return `${entry.instance === null ? "global, " : ""}${who}${method ? ` (${method})` : ""}. `;
}
