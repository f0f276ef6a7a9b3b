"use strict";

// Doing something to a run. Each deed is a method of the client and a command: where the page may not do it, because it
// is a file or the token has no right to it, it shows the command.

let rights = new Set();
const mayDecide = () => rights.has("decide");
const mayControl = () => rights.has("control");

/** Ask in a dialog; `fields` stand above the buttons. `deed()` is what confirming does: it closes where that succeeds. */
function dialog({ title, fields, confirm, deed, kind = "" }) {
  const error = make("div", { class: "errors", role: "alert" });
  const box = make("dialog", { class: "dialog", "aria-label": title });
  const run = async (event) => {
    event.preventDefault();
    const button = box.querySelector("button.confirm");
    button.disabled = true;
    refill(error);
    try {
      await deed();
      box.close();
    } catch (failure) {
      refill(error, make("p", {}, failure.message));
    }
    button.disabled = false;
  };
  const buttons = make(
    "p",
    { class: "buttons" },
    make("button", { type: "submit", class: `confirm ${kind}` }, confirm),
    make("button", { type: "button", on: { click: () => box.close() } }, "Leave it"),
  );
  box.append(make("form", { on: { submit: run } }, make("h2", {}, title), fields, error, buttons));
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  return box;
}

async function done(run, deed, body, sentence) {
  const answer = await act(run, deed, body);
  announce(sentence);
  refresh();
  return answer;
}

const laneOption = (instance) => (instance === null || instance === undefined ? "" : ` --instance ${quoted(instance)}`);

/** The way to mend a failed call: what a retry does again and what it leaves stale is shown before it is done. */
function mending(run, call) {
  const text = `acts retry ${run} --call ${call.index}${laneOption(call.instance)}`;
  const again = "When its cause is mended, do the call again, and what was skipped for it";
  const taken = "Where its input was wrong, take it as done with the value that it should have brought";
  if (!mayControl())
    return make(
      "div",
      { class: "mend" },
      make("p", {}, `${again}:`),
      command(text),
      make("p", {}, `${taken}, as JSON in place of VALUE:`),
      command(`${text} --skip VALUE`),
    );
  const buttons = make(
    "p",
    { class: "buttons" },
    make(
      "button",
      {
        type: "button",
        class: "primary",
        on: { click: () => openRetry(run, { call: call.index, instance: call.instance }) },
      },
      "Do it again …",
    ),
    skipping(run, call),
  );
  return make("div", { class: "mend" }, make("p", {}, `${again}. ${taken}.`), buttons);
}

function openRetry(run, choice) {
  const reach = make("div", { class: "reach", role: "status" }, "Reading what this does …");
  const downstream = make("input", { type: "checkbox" });
  const effects = make("input", { type: "checkbox" });
  const body = () => ({ ...choice, downstream: downstream.checked, effects: effects.checked && downstream.checked });
  const look = async () => {
    effects.disabled = !downstream.checked;
    try {
      refill(reach, retryReach(await act(run, "retry", { ...body(), dry: true })));
    } catch (error) {
      refill(reach, refused(error));
    }
  };
  const boxes = [
    make("label", { class: "check" }, downstream, "also what has read what these write (--downstream)"),
    make(
      "label",
      { class: "check" },
      effects,
      "among that also calls with effects, and what was sent and forgotten (--effects)",
    ),
  ];
  for (const box of [downstream, effects]) box.addEventListener("change", look);
  const title =
    choice.call === undefined
      ? "Do failed calls again"
      : `Do call ${choice.call} again${choice.instance ? ` in ${choice.instance}` : ""}`;
  dialog({
    title,
    fields: [reach, boxes],
    confirm: "Do it again",
    kind: "primary",
    deed: () => done(run, "retry", { ...body(), dry: false }, "Retried"),
  });
  look();
}

/** What a retry would do, by ids of calls: `counts` has all of them, the lists the first ones. */
function retryReach({ counts, ...lists }) {
  const words = {
    retried: "done again",
    reconsidered: "decided anew: skipped before",
    downstream: "done again, since they have read what these write",
    stale: "left stale: they have read what may change",
  };
  const named = (name) => `${lists[name].slice(0, 20).join(", ")}${counts[name] > 20 ? ", …" : ""}`;
  const groups = Object.keys(words).filter((name) => counts[name] > 0);
  return make(
    "ul",
    {},
    groups.map((name) =>
      make("li", {}, `${plural(counts[name], "call")} ${words[name]}: `, make("code", { class: "ids" }, named(name))),
    ),
  );
}

function skipping(run, call) {
  const value = make("textarea", { rows: "4", spellcheck: "false" });
  value.value = "null";
  const body = () => withJson({ call: call.index, instance: call.instance ?? null }, "value", value.value);
  const open = () =>
    dialog({
      title: `Take call ${call.index} as done`,
      fields: field("With this value, as JSON", value),
      confirm: "Take it as done",
      deed: () => done(run, "skip", body(), "Taken as done"),
    });
  return make("button", { type: "button", on: { click: open } }, "Take it as done …");
}

/** A body with one more part that a person wrote as JSON: that is handed on as it is written. */
function withJson(body, name, text) {
  try {
    JSON.parse(text);
  } catch (error) {
    throw new Refusal(`This is not JSON: ${error.message}`);
  }
  return `${JSON.stringify(body).slice(0, -1)},${JSON.stringify(name)}:${text}}`;
}

/** What can be done to a whole run now. */
function runDeeds(overview) {
  const { run, status } = overview;
  const isOver = ["completed", "failed", "cancelled"].includes(status);
  const simple = (deed, label, sentence, confirm = null) => {
    const go = () => done(run, deed, {}, sentence);
    const open = () =>
      confirm
        ? dialog({
            title: confirm,
            fields: [],
            confirm: label,
            kind: deed === "cancel" ? "danger" : "primary",
            deed: go,
          })
        : go().catch((error) => dialogOf(error));
    return make("button", { type: "button", on: { click: open } }, label);
  };
  const failed = (overview.counts?.failed ?? 0) > 0 && status !== "cancelled";
  if (!mayControl()) {
    const words = [
      failed && `acts retry ${run}`,
      status === "paused" && `acts resume ${run}`,
      !isOver && `acts cancel ${run}`,
      `acts fork ${run}`,
    ].filter(Boolean);
    return make("details", { class: "commands" }, make("summary", {}, "Commands for this run"), words.map(command));
  }
  const forks = make("button", { type: "button", on: { click: () => openFork(run, null) } }, "Fork …");
  return make(
    "p",
    { class: "buttons" },
    failed
      ? make("button", { type: "button", on: { click: () => openRetry(run, {}) } }, "Do failed calls again …")
      : null,
    status === "running" ? simple("pause", "Pause", "Paused") : null,
    status === "paused" ? simple("resume", "Resume", "Resumed") : null,
    isOver ? null : simple("cancel", "Cancel", "Cancelled", "Cancel this run? Results that come later do not count."),
    overview.loop ? openTicks(run) : null,
    forks,
  );
}

function dialogOf(error) {
  dialog({ title: "This was not done", fields: make("p", {}, error.message), confirm: "Good", deed: async () => {} });
}

function openTicks(run) {
  const ticks = make("input", { type: "number", min: "1", value: "4" });
  const open = () =>
    dialog({
      title: "More ticks",
      fields: field("So many times more the model may be asked", ticks),
      confirm: "Go on",
      deed: () => done(run, "resume", { ticks: Number(ticks.value) }, "Resumed"),
    });
  return make("button", { type: "button", on: { click: open } }, "More ticks …");
}

/** A fork from the moment of an entry of the log. */
function forkHere(run, entry) {
  if (!mayControl()) return command(`acts fork ${run} --at ${entry.id}`);
  const open = () => openFork(run, entry.id);
  return make("p", {}, make("button", { type: "button", on: { click: open } }, "Fork here …"));
}

/** A new run that goes on from a moment of this one. */
function openFork(run, at) {
  dialog({
    title: at === null ? "Fork this run" : `Fork this run at ${at}`,
    fields: make("p", {}, "A new run goes on from there. Calls that had ended are not done again; all others are."),
    confirm: "Fork",
    kind: "primary",
    deed: async () => {
      const answer = await act(run, "fork", at === null ? {} : { at });
      location.hash = address("run", answer.run);
    },
  });
}
