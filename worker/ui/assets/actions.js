"use strict";

// Doing something to a run. Each deed is a method of the client and a command: where the page may not do it, because it
// is a file or the token has no right to it, it shows the command.

let rights = new Set();
const mayDecide = () => rights.has("decide");
const mayControl = () => rights.has("control");

/** Ask in a dialog; `fields` stand above the buttons. `deed()` is what confirming does: it closes where that succeeds. */
function dialog({ title, fields, confirm, deed, kind = "" }) {
  const error = make("div.errors", { role: "alert" });
  const confirming = make("button", { type: "submit", class: `confirm ${kind}` }, confirm);
  const submit = async (event) => {
    event.preventDefault();
    confirming.disabled = true;
    refill(error);
    try {
      await deed();
      box.close();
    } catch (failure) {
      refill(error, wrap("p", failure.message));
    }
    confirming.disabled = false;
  };
  const buttons = wrap(
    "p.buttons",
    confirming,
    pushButton("Leave it", () => box.close()),
  );
  const box = popup(title, make("form", { on: { submit } }, wrap("h2", title), fields, error, buttons));
}

async function done(run, deed, body, sentence) {
  const answer = await act(run, deed, body);
  announce(sentence);
  refresh();
  return answer;
}

/** A button that asks in a dialog, and does a deed where that is confirmed. */
const asking = (label, run, deed, { body = () => ({}), said, selector, ...more }) =>
  pushButton(label, () => dialog({ ...more, deed: () => done(run, deed, body(), said) }), selector);

const laneOption = (instance) => (instance === null || instance === undefined ? "" : ` --instance ${quoted(instance)}`);

/** The way to mend a failed call: what a retry does again and what it leaves stale is shown before it is done. */
function mending(run, call) {
  const text = `acts retry ${run} --call ${call.index}${laneOption(call.instance)}`;
  const again = "Once the cause is fixed, retry the call and what was skipped because of it";
  const taken = "If its input was wrong, mark it as done with the value it should have returned";
  if (!mayControl())
    return wrap(
      "div.mend",
      wrap("p", `${again}:`),
      command(text),
      wrap("p", `${taken}, as JSON in place of VALUE:`),
      command(`${text} --skip VALUE`),
    );
  const buttons = wrap(
    "p.buttons",
    pushButton("Do it again …", () => openRetry(run, { call: call.index, instance: call.instance }), "button.primary"),
    skipping(run, call),
  );
  return wrap("div.mend", wrap("p", `${again}. ${taken}.`), buttons);
}

function openRetry(run, choice) {
  const reach = make("div.reach", { role: "status" }, "Reading what this does …");
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
    wrap("label.check", downstream, "also what has read what these write (--downstream)"),
    wrap("label.check", effects, "among that also calls with effects, and what was sent and forgotten (--effects)"),
  ];
  for (const box of [downstream, effects]) box.addEventListener("change", look);
  const title =
    choice.call === undefined
      ? "Retry failed calls"
      : `Retry call ${choice.call}${choice.instance ? ` in ${choice.instance}` : ""}`;
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
  const group = (name) => [`${plural(counts[name], "call")} ${words[name]}: `, wrap("code.ids", named(name))];
  return listed("ul", groups, group);
}

function skipping(run, { index, instance = null }) {
  const value = make("textarea", { rows: "4", spellcheck: "false" });
  value.value = "null";
  return asking("Take it as done …", run, "skip", {
    title: `Mark call ${index} as done`,
    fields: field("With this value, as JSON", value),
    confirm: "Take it as done",
    body: () => withJson({ call: index, instance }, "value", value.value),
    said: "Taken as done",
  });
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
  const simple = (deed, label, said) =>
    pushButton(label, () => done(run, deed, {}, said).catch((error) => dialogOf(error)));
  const canUndo = Boolean(overview.undo);
  const failed = (overview.counts?.failed ?? 0) > 0 && status !== "cancelled";
  if (!mayControl()) {
    const words = [
      failed && `acts retry ${run}`,
      ["paused", "scheduled"].includes(status) && `acts resume ${run}`,
      !isOver && `acts cancel ${run}`,
      canUndo && `acts cancel ${run} --undo`,
      `acts fork ${run}`,
    ].filter(Boolean);
    return wrap("details.commands", wrap("summary", "Commands for this run"), words.map(command));
  }
  return wrap(
    "p.buttons",
    failed ? pushButton("Retry failed calls …", () => openRetry(run, {})) : null,
    status === "running" ? simple("pause", "Pause", "Paused") : null,
    status === "paused" ? simple("resume", "Resume", "Resumed") : null,
    status === "scheduled" ? simple("resume", "Begin now", "Begun") : null,
    isOver ? null : pushButton("Cancel", () => openCancel(run, canUndo)),
    isOver && canUndo ? pushButton("Undo …", () => openUndo(run)) : null,
    overview.loop ? openTicks(run) : null,
    pushButton("Fork …", () => openFork(run, null)),
  );
}

const UNDO = "its finished calls are undone, the newest first, by the activities that they name";

function openCancel(run, canUndo) {
  const undo = make("input", { type: "checkbox" });
  dialog({
    title: "Cancel this run? Later results do not count.",
    fields: canUndo ? wrap("label.check", undo, `also undo: ${UNDO} (--undo)`) : [],
    confirm: "Cancel",
    kind: "danger",
    deed: () => (undo.checked ? undone(run, "Cancelled") : done(run, "cancel", {}, "Cancelled")),
  });
}

function openUndo(run) {
  dialog({
    title: "Undo this run?",
    fields: wrap("p", `In a new run ${UNDO}. Calls that were undone before are not undone again.`),
    confirm: "Undo",
    kind: "danger",
    deed: async () => {
      const { undo, not_undone: left } = await undone(run, "Undone by another run");
      if (undo && !left.length) location.hash = address("run", undo);
    },
  });
}

/** Undo a run, and say what is left. */
async function undone(run, sentence) {
  const answer = await done(run, "cancel", { undo: true }, sentence);
  const fields = listed("ul", answer.not_undone, (line) => line);
  if (answer.not_undone.length) dialog({ title: "Not undone", fields, confirm: "Good", deed: async () => {} });
  return answer;
}

function dialogOf(error) {
  dialog({ title: "This was not done", fields: wrap("p", error.message), confirm: "Good", deed: async () => {} });
}

function openTicks(run) {
  const ticks = make("input", { type: "number", min: "1", value: "4" });
  return asking("More ticks …", run, "resume", {
    title: "More ticks",
    fields: field("How many more times the model may be asked", ticks),
    confirm: "Go on",
    body: () => ({ ticks: Number(ticks.value) }),
    said: "Resumed",
  });
}

/** A fork from the moment of an entry of the log. */
function forkHere(run, entry) {
  if (!mayControl()) return command(`acts fork ${run} --at ${entry.id}`);
  return wrap(
    "p",
    pushButton("Fork here …", () => openFork(run, entry.id)),
  );
}

/** A new run that goes on from a moment of this one. */
function openFork(run, at) {
  dialog({
    title: at === null ? "Fork this run" : `Fork this run at ${at}`,
    fields: wrap("p", "A new run continues from there. Calls that had ended do not run again; all others do."),
    confirm: "Fork",
    kind: "primary",
    deed: async () => {
      const answer = await act(run, "fork", at === null ? {} : { at });
      location.hash = address("run", answer.run);
    },
  });
}

// What waits for a person: exactly what will run, and deciding on it.

async function heldView({ run }) {
  const asked = ["held", "questions", "rules"].map((what) => ask(`runs/${run}/${what}`));
  const [held, questions, rules] = await Promise.all(asked);
  const shown = new Map(held.map((one) => [one.call, one]));
  const together = new Set(questions.flatMap((question) => Object.keys(question.calls)));
  const alone = held.filter((one) => one.plan || !together.has(one.call));
  const cards = [
    ...questions.map((question) => questionCard(run, question, shown)),
    ...alone.map((one) => (one.plan ? planCard(run, one) : heldCard(run, one))),
  ];
  const nothing = quiet("Nothing waits for a person.");
  const given = rules.length > 0 ? [heading("Rules of this run"), rules.map((rule) => ruleCard(run, rule))] : null;
  return { title: "Held", nodes: [heading("What waits for a person"), cards.length ? cards : nothing, given] };
}

/** A rule, what it let start, and the way to revoke it. */
function ruleCard(run, { rule, text, given, by, revoked, revoked_by: revoker, calls }) {
  const revoke = () =>
    asking("Revoke …", run, "revoke", {
      title: "Revoke this rule? Calls like it are held again from now on.",
      fields: wrap("p", text),
      confirm: "Revoke",
      kind: "danger",
      body: () => ({ rule }),
      said: "Revoked",
    });
  return make(
    "article.card",
    { "aria-label": `Rule ${rule}` },
    wrap("p", text),
    facts({
      rule,
      given: moment(given),
      by,
      revoked: revoked ? moment(revoked) : null,
      "revoked by": revoker,
      "let start": calls.length > 0 ? `call ${calls.join(", ")}` : null,
    }),
    revoked ? null : mayDecide() ? wrap("p.buttons", revoke()) : command(`acts revoke ${run} ${rule}`),
  );
}

function heldCard(run, one) {
  const owner = one.run ?? run; // a child run may hold it
  const hasScopes = Object.keys(one.scopes).length > 0;
  const where = one.instance ? [" in ", anchor(instanceAddress(owner, one.instance), one.instance)] : null;
  const call = anchor(address("run", owner, "call", one.index), `Call ${callName(one)}`);
  return make(
    "article.card",
    { "aria-label": `Call ${callName(one)}` },
    wrap("h3", badge(one.unknown ? "unknown" : "held"), " ", call, where),
    facts({ since: moment(one.since), "rejected by itself": one.until ? moment(one.until) : null }),
    one.unknown ? evidence(one.unknown) : null,
    wrap("h4", one.question ? "Question" : "Input"),
    fields(one.parameters),
    hasScopes ? [wrap("h4", "What it will see"), fields(one.scopes)] : null,
    one.messages
      ? [wrap("h4", "Messages"), Array.isArray(one.messages) ? one.messages.map(spoken) : tree(one.messages)]
      : null,
    "output" in one ? [wrap("h4", "What it will write"), tree(one.output)] : null,
    mayDecide() ? decisions(run, one, hasScopes) : decisionCommands(run, one),
  );
}

/** Calls that wait for the same source, decided together: what they have alike, and a table of what differs. */
function questionCard(run, question, shown) {
  const number = plural(question.rows.length, "call");
  const sources = Object.entries(question.untrusted.parameters).map(([name, labels]) => [name, labels.join(", ")]);
  const chosen = question.untrusted.chosen.length > 0 ? [["whether it runs", question.untrusted.chosen.join(", ")]] : [];
  const row = ({ call, instance, differs }) =>
    wrap(
      "tr",
      wrap("td", instance ? `${call} in ${instance}` : call),
      question.columns.map((at) => wrap("td", at in differs ? tree(differs[at]) : quiet("none"))),
    );
  const ones = question.rows.map(({ call }) => shown.get(call)).filter(Boolean);
  const columns = ["Call", ...question.columns];
  return make(
    "article.card",
    { "aria-label": `${number} of ${question.tool}` },
    wrap("h3", badge("held"), ` ${number} of ${question.tool}`),
    wrap("p", "Others would decide on them in the same way:"),
    facts(Object.fromEntries([...sources, ...chosen])),
    Object.keys(question.same).length > 0 ? [wrap("h4", "All of them"), fields(question.same)] : null,
    wrap("h4", "What differs"),
    wrap(
      "div.differs",
      wrap(
        "table",
        wrap("thead", wrap("tr", columns.map((name) => wrap("th", name)))),
        wrap("tbody", question.rows.map(row)),
      ),
    ),
    mayDecide() ? decidingTogether(run, question, number) : decideTogetherCommands(run, question),
    wrap("details", wrap("summary", "Decide one by one"), ones.map((one) => heldCard(run, one))),
  );
}

/** The buttons for several calls: exactly those that were shown, whatever is held since. */
function decidingTogether(run, { calls }, number) {
  const reason = make("input", { type: "text", autocomplete: "off" });
  const rejected = () => {
    if (!reason.value.trim()) throw new Refusal("Give a reason; the log keeps it.");
    return { calls, reason: reason.value.trim() };
  };
  return wrap(
    "p.buttons",
    asking(`Approve ${number} as shown …`, run, "approve_together", {
      title: `Approve ${number}?`,
      fields: wrap("p", "They run with exactly what was shown. Calls that are held since are not among them."),
      confirm: "Approve",
      kind: "primary",
      body: () => ({ calls }),
      said: "Approved",
      selector: "button.primary",
    }),
    asking(`Reject ${number} …`, run, "reject_together", {
      title: `Reject ${number}`,
      fields: field("Reason", reason),
      confirm: "Reject",
      kind: "danger",
      body: rejected,
      said: "Rejected",
      selector: "button.danger",
    }),
  );
}

const decideTogetherCommands = (run, { question }) => [
  command(`acts approve ${run} --question ${question}`),
  command(`acts reject ${run} --question ${question} --reason TEXT`),
];

/** What is known of a call that was begun and whose end is not known. */
function evidence(known) {
  return facts({
    "its end is not known": known.said,
    "begun by": known.worker ?? null,
    at: known.since ? moment(known.since) : null,
    attempt: known.attempt ?? null,
    "idempotency key": known.key ?? null,
  });
}

/** The buttons for a call whose end is not known: it has happened, it begins again, or it has failed. */
function settling(run, one, about) {
  const button = (label, outcome, more) =>
    asking(label, run, "settle", { ...more, body: more.body ?? (() => ({ ...about, outcome })) });
  const value = Object.assign(make("textarea", { rows: "6", spellcheck: "false" }), { value: "null" });
  const reason = make("input", { type: "text", autocomplete: "off" });
  const failed = () => {
    if (!reason.value.trim()) throw new Refusal("Give a reason; the log keeps it.");
    return { ...about, outcome: "failed", reason: reason.value.trim() };
  };
  return wrap(
    "p.buttons",
    button("It is done …", "done", {
      title: `Call ${callName(one)} has happened`,
      fields: field("Its result, as JSON", value),
      confirm: "Done",
      kind: "primary",
      body: () => withJson({ ...about, outcome: "done" }, "value", value.value),
      said: "Settled",
      selector: "button.primary",
    }),
    button("Begin it again …", "again", {
      title: `Begin call ${callName(one)} again?`,
      fields: wrap("p", "Only if it did not happen: it runs a second time, with the same input."),
      confirm: "Begin again",
      kind: "danger",
      said: "It begins again",
    }),
    button("It has failed …", "failed", {
      title: `Call ${callName(one)} has failed`,
      fields: field("Reason", reason),
      confirm: "Failed",
      kind: "danger",
      body: failed,
      said: "Settled",
    }),
  );
}

/** The moment that a call waits for, and the way to move it. */
function moving(run, one) {
  const until = wrap("p.reason", "it ends at ", moment(one.until));
  if (!mayDecide()) return wrap("div", until, command(`acts move ${run} ${quoted(one.id)} UNTIL`));
  const text = make("input", { type: "text", autocomplete: "off", value: one.until });
  const button = asking("Move …", run, "move", {
    title: `Let call ${one.id} end at another moment`,
    fields: field("Moment, in ISO 8601 with its offset from UTC", text),
    confirm: "Move",
    kind: "primary",
    body: () => ({ call: one.id, until: text.value.trim() }),
    said: "Moved",
  });
  return wrap("div", until, wrap("p.buttons", button));
}

/** The buttons for a call. A decision names what was shown: if another call waits there by then, it is refused. */
function decisions(run, one, hasScopes) {
  const about = { call: one.call, shown: one.shown };
  if (one.unknown) return settling(run, one, about);
  const kind = "primary";
  const json = (rows, value = "") => Object.assign(make("textarea", { rows, spellcheck: "false" }), { value });
  const rejecting = () => {
    const reason = make("input", { type: "text", autocomplete: "off" });
    const body = () => {
      if (!reason.value.trim())
        throw new Refusal("Give a reason: it is kept in the log, and the call that handles the error reads it.");
      return { ...about, reason: reason.value.trim() };
    };
    const title = `Reject call ${callName(one)}`;
    const more = { title, fields: field("Reason", reason), confirm: "Reject", kind: "danger", body, said: "Rejected" };
    return asking("Reject …", run, "reject", { ...more, selector: "button.danger" });
  };
  const answering = () => {
    const text = json("6");
    return asking("Answer …", run, "answer", {
      title: `Answer call ${callName(one)}`,
      fields: field("Answer, as JSON (a text in quotes)", text),
      confirm: "Answer",
      body: () => withJson(about, "value", text.value),
      kind,
      said: "Answered",
      selector: "button.primary",
    });
  };
  const approving = () =>
    asking("Approve as shown …", run, "approve", {
      title: `Approve call ${callName(one)}?`,
      fields: wrap("p", "It runs with exactly what was shown."),
      confirm: "Approve",
      body: () => about,
      kind,
      said: "Approved",
      selector: "button.primary",
    });
  const ruling = () => {
    const said = Object.keys(one.untrusted.parameters).map((name) => [name, "shown"]);
    const text = json("6", JSON.stringify(Object.fromEntries(said), null, 2));
    const help =
      'What each parameter may be: "shown", "words" (in the user\'s own words), "any", {"one_of": […]} or {"at_most": 50}.';
    return asking("Approve all like it …", run, "approve", {
      title: `Approve call ${callName(one)}, and later calls like it`,
      fields: [wrap("p", help), field("Rule, as JSON", text)],
      confirm: "Approve, and give the rule",
      body: () => withJson(about, "rule", text.value),
      kind,
      said: "Approved, with a rule",
    });
  };
  const changing = () => {
    const text = json("12", written(one.parameters));
    return asking("Change …", run, "approve", {
      title: `Approve call ${callName(one)} with other parameters`,
      fields: field("Parameters, as JSON", text),
      confirm: "Approve with these",
      body: () => withJson(about, "parameters", text.value),
      kind,
      said: "Approved with other parameters",
    });
  };
  const narrowing = () => {
    const boxes = Object.keys(one.scopes).map((name) => [name, make("input", { type: "checkbox", checked: true })]);
    const labels = boxes.map(([name, box]) => wrap("label.check", box, name));
    const scopes = () => boxes.filter(([, box]) => box.checked).map(([name]) => name);
    return asking("Show it less …", run, "approve", {
      title: `Approve call ${callName(one)}, shown less`,
      fields: wrap("fieldset", wrap("legend", "What it is shown"), labels),
      confirm: "Approve with these",
      body: () => ({ ...about, scopes: scopes() }),
      kind,
      said: "Approved, shown less",
    });
  };
  if (one.question) return wrap("p.buttons", answering(), rejecting());
  return wrap(
    "p.buttons",
    approving(),
    one.untrusted ? ruling() : null,
    holdsCut(one.parameters) ? wrap("span.quiet", "Too large to change here.") : changing(),
    hasScopes && !isCutValue(one.scopes) ? narrowing() : null,
    rejecting(),
  );
}

const holdsCut = (value) =>
  isCutValue(value) || ((isObject(value) || Array.isArray(value)) && Object.values(value).some(holdsCut));

function decisionCommands(run, one) {
  const call = quoted(String(one.call));
  const shown = `--shown ${one.shown}`;
  if (one.unknown)
    return ["--done --value JSON", "--again", "--failed REASON"].map((how) =>
      command(`acts settle ${run} ${call} ${shown} ${how}`),
    );
  const approve = one.question
    ? `acts answer ${run} ${call} ${shown} --value JSON`
    : `acts approve ${run} ${call} ${shown}`;
  return [command(approve), command(`acts reject ${run} ${call} ${shown} --reason TEXT`)];
}

function planCard(run, { plan, calls, tick }) {
  const approve = asking("Approve the plan …", run, "approve_plan", {
    title: "Let the calls of this plan run?",
    fields: wrap("p", `${plural(calls.length, "call")}, as shown: plan ${plan}.`),
    confirm: "Approve the plan",
    body: () => ({ plan }),
    kind: "primary",
    said: "Approved",
    selector: "button.primary",
  });
  return make(
    "article.card",
    { "aria-label": "Plan" },
    wrap("h3", badge("held"), " The plan", (tick ?? null) === null ? null : ` of tick ${tick}`),
    tree(calls),
    mayDecide() ? wrap("p.buttons", approve) : command(`acts approve ${run} --plan ${plan}`),
  );
}
