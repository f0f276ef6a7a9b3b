"use strict";

// What waits for a person: exactly what will run, and deciding on it.

async function heldView({ run }) {
  const held = await ask(`runs/${run}/held`);
  const list = Array.isArray(held) ? held : (held.held ?? []);
  const cards = list.map((one) => (one.plan ? planCard(run, one) : heldCard(run, one)));
  return {
    title: "Held",
    nodes: [
      heading("What waits for a person"),
      cards.length ? cards : make("p", { class: "quiet" }, "Nothing waits for a person."),
    ],
  };
}

function heldCard(run, one) {
  const about = { call: one.call, ...(one.shown ? { shown: one.shown } : {}) };
  const deeds = mayDecide()
    ? make(
        "p",
        { class: "buttons" },
        make(
          "button",
          { type: "button", class: "primary", on: { click: () => openApprove(run, one, about) } },
          "Approve as shown …",
        ),
        make("button", { type: "button", on: { click: () => openChange(run, one, about) } }, "Change …"),
        Object.keys(one.scopes ?? {}).length
          ? make("button", { type: "button", on: { click: () => openNarrow(run, one, about) } }, "Show it less …")
          : null,
        make(
          "button",
          { type: "button", class: "danger", on: { click: () => openReject(run, one, about) } },
          "Reject …",
        ),
      )
    : [
        command(`acts approve ${run} ${quoted(String(one.call))}`),
        command(`acts reject ${run} ${quoted(String(one.call))} --reason TEXT`),
      ];
  return make(
    "article",
    { class: "card", "aria-label": `Call ${callName(one)}` },
    make(
      "h3",
      {},
      badge("held"),
      " ",
      make("a", { href: address("run", run, "call", one.index) }, `Call ${callName(one)}`),
      one.instance ? [" in ", make("a", { href: instanceAddress(run, one.instance) }, one.instance)] : null,
    ),
    facts({ since: moment(one.since), "because of": one.why }),
    make("h4", {}, "What it will be given"),
    fields(one.parameters ?? {}),
    Object.keys(one.scopes ?? {}).length ? [make("h4", {}, "What it will be shown"), fields(one.scopes)] : null,
    deeds,
  );
}

function planCard(run, one) {
  const deed = () => done(run, "approve_plan", { plan: one.plan }, "Approved");
  const open = () =>
    dialog({
      title: "Let the calls of this plan run?",
      fields: make("p", {}, `${plural(one.calls.length, "call")}, as shown: plan ${one.plan}.`),
      confirm: "Approve the plan",
      kind: "primary",
      deed,
    });
  return make(
    "article",
    { class: "card" },
    make(
      "h3",
      {},
      badge("held"),
      " The plan",
      one.tick === null || one.tick === undefined ? null : ` of tick ${one.tick}`,
    ),
    tree(one.calls),
    mayDecide()
      ? make(
          "p",
          { class: "buttons" },
          make("button", { type: "button", class: "primary", on: { click: open } }, "Approve the plan …"),
        )
      : command(`acts approve ${run} --plan ${one.plan}`),
  );
}

function openApprove(run, one, about) {
  dialog({
    title: `Approve call ${callName(one)}?`,
    fields: make("p", {}, "It runs with exactly what was shown."),
    confirm: "Approve",
    kind: "primary",
    deed: () => done(run, "approve", about, "Approved"),
  });
}

function openChange(run, one, about) {
  const text = make("textarea", { rows: "12", spellcheck: "false" });
  text.value = written(one.parameters ?? {});
  const body = () => `${JSON.stringify(about).slice(0, -1)},"parameters":${checkedJson(text.value)}}`;
  dialog({
    title: `Approve call ${callName(one)} with other parameters`,
    fields: field("Parameters, as JSON", text),
    confirm: "Approve with these",
    kind: "primary",
    deed: () => done(run, "approve", body(), "Approved with other parameters"),
  });
}

function openNarrow(run, one, about) {
  const boxes = Object.keys(one.scopes).map((kind) => [kind, make("input", { type: "checkbox", checked: true })]);
  const chosen = () => boxes.filter(([, box]) => box.checked).map(([kind]) => kind);
  const fields = make(
    "fieldset",
    {},
    make("legend", {}, "What it is shown"),
    boxes.map(([kind, box]) => make("label", { class: "check" }, box, kind)),
  );
  dialog({
    title: `Approve call ${callName(one)}, shown less`,
    fields,
    confirm: "Approve with these",
    kind: "primary",
    deed: () => done(run, "approve", { ...about, scopes: chosen() }, "Approved, shown less"),
  });
}

function openReject(run, one, about) {
  const reason = make("input", { type: "text", autocomplete: "off" });
  const deed = () => {
    if (!reason.value.trim())
      throw new Refusal("Say why: the reason stands in the log, and whoever handles the error reads it.");
    return done(run, "reject", { ...about, reason: reason.value.trim() }, "Rejected");
  };
  dialog({
    title: `Reject call ${callName(one)}`,
    fields: field("Reason", reason),
    confirm: "Reject",
    kind: "danger",
    deed: async () => deed(),
  });
}
