"use strict";

// A loop as a conversation, and exactly what a delegate was sent.

async function conversationView({ run, parts }) {
  const answer = await ask(`runs/${run}/conversation`, { tick: parts[0] });
  const ticks = answer.ticks ?? [];
  return {
    title: "Conversation",
    nodes: [
      heading("Conversation"),
      ticks.length
        ? make(
            "ol",
            { class: "conversation" },
            ticks.map((tick) => make("li", {}, tickPart(run, tick))),
          )
        : make("p", { class: "quiet" }, "The model has not been asked yet."),
    ],
  };
}

function tickPart(run, tick) {
  const usage = tick.usage
    ? [
        `${counted(tick.usage.input ?? 0)} tokens in`,
        tick.usage.cached && `${counted(tick.usage.cached)} cached`,
        `${counted(tick.usage.output ?? 0)} out`,
      ]
        .filter(Boolean)
        .join(", ")
    : null;
  const told = facts({
    model: tick.model,
    usage,
    cost: money(tick.cost),
    asked: tick.seconds === null || tick.seconds === undefined ? null : `for ${duration(tick.seconds)}`,
  });
  const asked = (tick.asked ?? []).map((message) => spoken(message));
  const calls = (tick.calls ?? []).map((call) =>
    make(
      "li",
      {},
      make(
        "div",
        { class: "row" },
        make("span", { class: "state" }, badge(call.status)),
        make("a", { class: "name", href: address("run", run, "call", call.index) }, callName(call)),
        call.child ? make("a", { href: address("run", call.child) }, "step into its run") : null,
      ),
    ),
  );
  const errors = (tick.errors ?? []).map((error) =>
    errorText(typeof error === "string" ? { type: "Error", message: error } : (error.error ?? error)),
  );
  return make(
    "article",
    { class: "tick", "aria-label": `Tick ${tick.tick}` },
    make("h3", {}, make("a", { href: address("run", run, "tick", tick.tick) }, `Tick ${tick.tick}`)),
    told,
    asked.length
      ? make(
          "div",
          { class: "asked" },
          make("h4", {}, tick.tick ? "What was added to the request" : "What was asked"),
          asked,
        )
      : null,
    make(
      "div",
      { class: "answered" },
      make("h4", {}, "What was answered"),
      tick.answer === null || tick.answer === undefined
        ? make("p", { class: "quiet" }, "Nothing yet.")
        : typeof tick.answer === "string"
          ? make("pre", { class: "said" }, tick.answer)
          : tree(tick.answer),
    ),
    errors.length ? make("div", { class: "notice error" }, make("h4", {}, "Errors"), errors) : null,
    calls.length
      ? make("div", {}, make("h4", {}, "What its calls brought"), make("ol", { class: "rows" }, calls))
      : null,
    tick.set_aside ? notice("", make("p", {}, `The output was set aside: ${tick.set_aside}`)) : null,
  );
}

const SHOWN_CHARACTERS = 600;

/** A message of a request: whose it is, and its text; a long one is folded. */
function spoken(message) {
  const content = message.content ?? message.text ?? message;
  const text = typeof content === "string" ? content : written(content);
  const role = message.role ?? message.type ?? "message";
  const body = make("pre", { class: "said", tabindex: "0" }, text);
  if (text.length <= SHOWN_CHARACTERS)
    return make(
      "div",
      { class: `message ${role === "assistant" ? "assistant" : ""}` },
      make("p", { class: "role" }, role),
      body,
    );
  return make(
    "details",
    { class: "message" },
    make(
      "summary",
      {},
      make("span", { class: "role" }, role),
      " ",
      make(
        "span",
        { class: "quiet" },
        `${counted(text.length)} characters: ${text.slice(0, 90).replace(/\s+/g, " ")} …`,
      ),
    ),
    body,
  );
}

async function sentView({ run, parts }) {
  const answer = await ask(`runs/${run}/sent`, { call: parts[0] });
  const part = (title, value) => (value === null || value === undefined ? null : section(title, tree(value)));
  return {
    title: "What was sent",
    nodes: [
      heading("What was sent: ", make("code", {}, parts[0])),
      make("p", { class: "quiet" }, "This, and nothing else of the run, was given to whoever carried the call out."),
      (answer.messages ?? []).length ? section("Messages", answer.messages.map(spoken)) : null,
      part("Parameters", answer.parameters),
      part("What its scopes gave it", answer.scopes),
      part("Schema of the answer", answer.schema),
    ],
  };
}
