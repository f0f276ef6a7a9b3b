"use strict";

// What waits for a person: exactly what will run, and deciding on it.

async function heldView({ run }) {
  const held = await ask(`runs/${run}/held`);
  const cards = held.map((one) => (one.plan ? planCard(run, one) : heldCard(run, one)));
  const nothing = quiet("Nothing waits for a person.");
  return { title: "Held", nodes: [heading("What waits for a person"), cards.length ? cards : nothing] };
}

function heldCard(run, one) {
  const owner = one.run ?? run; // a child run may hold it
  const hasScopes = Object.keys(one.scopes).length > 0;
  const where = one.instance ? [" in ", make("a", { href: instanceAddress(owner, one.instance) }, one.instance)] : null;
  const call = make("a", { href: address("run", owner, "call", one.index) }, `Call ${callName(one)}`);
  return make(
    "article",
    { class: "card", "aria-label": `Call ${callName(one)}` },
    make("h3", {}, badge("held"), " ", call, where),
    facts({ since: moment(one.since), "rejected by itself": one.until ? moment(one.until) : null }),
    make("h4", {}, one.question ? "What it asks" : "What it will be given"),
    fields(one.parameters),
    hasScopes ? [make("h4", {}, "What it will be shown"), fields(one.scopes)] : null,
    one.messages
      ? [make("h4", {}, "Messages"), Array.isArray(one.messages) ? one.messages.map(spoken) : tree(one.messages)]
      : null,
    "output" in one ? [make("h4", {}, "What it will write"), tree(one.output)] : null,
    mayDecide() ? decisions(run, one, hasScopes) : decisionCommands(run, one),
  );
}

function decisions(run, one, hasScopes) {
  const button = (label, open, kind = "") =>
    make("button", { type: "button", class: kind, on: { click: () => open(run, one) } }, label);
  if (one.question)
    return make(
      "p",
      { class: "buttons" },
      button("Answer …", openAnswer, "primary"),
      button("Reject …", openReject, "danger"),
    );
  return make(
    "p",
    { class: "buttons" },
    button("Approve as shown …", openApprove, "primary"),
    holdsCut(one.parameters)
      ? make("span", { class: "quiet" }, "Too large to be changed here.")
      : button("Change …", openChange),
    hasScopes && !isCutValue(one.scopes) ? button("Show it less …", openNarrow) : null,
    button("Reject …", openReject, "danger"),
  );
}

const holdsCut = (value) =>
  isCutValue(value) || ((isObject(value) || Array.isArray(value)) && Object.values(value).some(holdsCut));

function decisionCommands(run, one) {
  const call = quoted(String(one.call));
  const shown = `--shown ${one.shown}`;
  const approve = one.question
    ? `acts answer ${run} ${call} ${shown} --value JSON`
    : `acts approve ${run} ${call} ${shown}`;
  return [command(approve), command(`acts reject ${run} ${call} ${shown} --reason TEXT`)];
}

function planCard(run, one) {
  const deed = () => done(run, "approve_plan", { plan: one.plan }, "Approved");
  const about = make("p", {}, `${plural(one.calls.length, "call")}, as shown: plan ${one.plan}.`);
  const open = () =>
    dialog({
      title: "Let the calls of this plan run?",
      fields: about,
      confirm: "Approve the plan",
      kind: "primary",
      deed,
    });
  const tick = one.tick === null || one.tick === undefined ? null : ` of tick ${one.tick}`;
  const button = make("button", { type: "button", class: "primary", on: { click: open } }, "Approve the plan …");
  return make(
    "article",
    { class: "card", "aria-label": "Plan" },
    make("h3", {}, badge("held"), " The plan", tick),
    tree(one.calls),
    mayDecide() ? make("p", { class: "buttons" }, button) : command(`acts approve ${run} --plan ${one.plan}`),
  );
}

/** What a decision is about: the call, and what was shown of it. If another call waits there by then, it is refused. */
const about = (one) => ({ call: one.call, shown: one.shown });

function openApprove(run, one) {
  dialog({
    title: `Approve call ${callName(one)}?`,
    fields: make("p", {}, "It runs with exactly what was shown."),
    confirm: "Approve",
    kind: "primary",
    deed: () => done(run, "approve", about(one), "Approved"),
  });
}

function openChange(run, one) {
  const text = make("textarea", { rows: "12", spellcheck: "false" });
  text.value = written(one.parameters);
  dialog({
    title: `Approve call ${callName(one)} with other parameters`,
    fields: field("Parameters, as JSON", text),
    confirm: "Approve with these",
    kind: "primary",
    deed: () => done(run, "approve", withJson(about(one), "parameters", text.value), "Approved with other parameters"),
  });
}

function openAnswer(run, one) {
  const text = make("textarea", { rows: "6", spellcheck: "false" });
  dialog({
    title: `Answer call ${callName(one)}`,
    fields: field("Answer, as JSON (a text in quotes)", text),
    confirm: "Answer",
    kind: "primary",
    deed: () => done(run, "answer", withJson(about(one), "value", text.value), "Answered"),
  });
}

function openNarrow(run, one) {
  const boxes = Object.keys(one.scopes).map((kind) => [kind, make("input", { type: "checkbox", checked: true })]);
  const chosen = () => boxes.filter(([, box]) => box.checked).map(([kind]) => kind);
  const labels = boxes.map(([kind, box]) => make("label", { class: "check" }, box, kind));
  dialog({
    title: `Approve call ${callName(one)}, shown less`,
    fields: make("fieldset", {}, make("legend", {}, "What it is shown"), labels),
    confirm: "Approve with these",
    kind: "primary",
    deed: () => done(run, "approve", { ...about(one), scopes: chosen() }, "Approved, shown less"),
  });
}

function openReject(run, one) {
  const reason = make("input", { type: "text", autocomplete: "off" });
  dialog({
    title: `Reject call ${callName(one)}`,
    fields: field("Reason", reason),
    confirm: "Reject",
    kind: "danger",
    deed: async () => {
      const text = reason.value.trim();
      if (!text) throw new Refusal("Say why: the reason stands in the log, and whoever handles the error reads it.");
      await done(run, "reject", { ...about(one), reason: text }, "Rejected");
    },
  });
}
