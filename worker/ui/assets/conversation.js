"use strict";

// A loop as a conversation, and exactly what a call was given.

async function conversationView({ run, parts }) {
  const answer = await ask(`runs/${run}/conversation`, { tick: parts[0] });
  const ticks = answer.ticks.length
    ? listed("ol.conversation", answer.ticks, (tick) => tickPart(run, tick))
    : quiet("The model has not been asked yet.");
  return { title: "Conversation", nodes: [heading("Conversation"), ticks, answer.ended && ending(answer.ended)] };
}

function ending({ status, reason }) {
  return notice(status === "failed" ? "error" : "", wrap("p", badge(status), reason ? [": ", reason] : null));
}

function tickPart(run, tick) {
  const { input, cached, output } = tick.usage ?? {};
  const usage = [
    input && `${counted(input)} tokens in`,
    cached && `${counted(cached)} cached`,
    output && `${counted(output)} out`,
  ];
  const told = facts({
    model: tick.model,
    usage: usage.filter(Boolean).join(", "),
    cost: money(tick.cost),
    "asked for": tick.seconds === null ? null : duration(tick.seconds),
  });
  return make(
    "article.tick",
    { "aria-label": `Tick ${tick.tick}` },
    wrap("h3", anchor(address("run", run, "tick", tick.tick), `Tick ${tick.tick}`)),
    told,
    wrap("h4", tick.tick ? "What was added to the request" : "What was asked"),
    tick.asked.length ? tick.asked.map(spoken) : quiet("Nothing."),
    wrap("h4", "What was answered"),
    answered(tick),
    tick.set_aside ? notice("", wrap("p", `The output was not accepted: ${tick.set_aside}`)) : null,
    tickErrors(tick.errors),
    tick.calls.length ? [wrap("h4", "What its calls brought"), tickCalls(run, tick)] : null,
  );
}

function answered(tick) {
  if (tick.answer !== null && tick.answer !== undefined) return fields(tick.answer);
  if (tick.writing === undefined) return quiet("Nothing yet.");
  const text = typeof tick.writing === "string" ? tick.writing : written(tick.writing);
  return [quiet("It is being written:"), make("pre.said", { tabindex: "0" }, text)];
}

function tickErrors(errors) {
  if (!Array.isArray(errors)) return tree(errors);
  if (!errors.length) return null;
  return notice(
    "error",
    wrap("h4", "Errors"),
    errors.map((error) => errorText(error.error ?? error)),
  );
}

function tickCalls(run, tick) {
  const one = (call) =>
    statusRow(
      call.status,
      address("run", run, "call", call.index),
      callName(call),
      call.child ? anchor(address("run", call.child), "step into its run") : null,
    );
  return [
    rows(tick.calls, one),
    tick.more ? quiet(`${plural(tick.more, "more call")}: see the tick in the plan.`) : null,
  ];
}

const SHOWN_CHARACTERS = 600;

/** A message of a request: whose it is, and its text; a long one is folded. */
function spoken(message) {
  if (Object.hasOwn(message, CUT)) return tree(message);
  const content = message.content ?? message;
  const text = typeof content === "string" ? content : written(content);
  const role = wrap("span.role", message.role ?? message.type ?? "message");
  const body = make("pre.said", { tabindex: "0" }, text);
  if (text.length <= SHOWN_CHARACTERS) return wrap("div.message", wrap("p", role), body);
  const start = `${counted(text.length)} characters: ${text.slice(0, 90).replace(/\s+/g, " ")} …`;
  return wrap("details.message", wrap("summary", role, " ", wrap("span.quiet", start)), body);
}

async function sentView({ run, parts }) {
  const answer = await ask(`runs/${run}/sent`, { call: parts[0] });
  const hasSome = (value) => value !== null && value !== undefined && !(isObject(value) && !Object.keys(value).length);
  const piece = (title, value) => (hasSome(value) ? section(title, fields(value)) : null);
  return {
    title: "Input",
    nodes: [
      heading("What call ", wrap("code", parts[0]), " was given"),
      quiet(answer.note ?? "This is all it received from the run."),
      answer.child ? wrap("p", anchor(address("run", answer.child), "Step into its run")) : null,
      answer.messages.length ? section("Messages", answer.messages.map(spoken)) : null,
      piece("Parameters", answer.parameters),
      piece("What its scopes gave it", answer.scopes),
      piece("Schema of the answer", answer.schema),
    ],
  };
}
