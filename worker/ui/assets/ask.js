"use strict";

// Where data comes from: in a file from the page itself, live from the server that serves it.

/** What could not be had, and why, in a sentence. */
class Refusal extends Error {
  constructor(message, { type = "Refused", status = 0 } = {}) {
    super(message);
    this.type = type;
    this.status = status;
  }
}

/** A number as it was written, where JavaScript's numbers are too coarse for it. */
class Exact {
  constructor(source) {
    this.source = source;
  }
}

/** JSON, with numbers as exact as they are written. */
function parsed(text) {
  return JSON.parse(text, (key, value, context) => {
    const isCoarse = typeof value === "number" && context && Number.isInteger(value) && !Number.isSafeInteger(value);
    return isCoarse ? new Exact(context.source) : value;
  });
}

const isObject = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Exact);

/** A question's parts that were given, in their order. */
const asked = (query) =>
  Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");

const keyOfQuestion = (path, query) =>
  JSON.stringify([
    path,
    asked(query)
      .map((one) => one.map(String))
      .sort(),
  ]);

const queryOf = (query) => `?${new URLSearchParams(asked(query))}`;

const embedded = (() => {
  const element = document.getElementById("acts-data");
  if (element === null) return null;
  const data = parsed(element.textContent);
  data.found = new Map(data.answers.map(([path, query, answer]) => [keyOfQuestion(path, query), answer]));
  return data;
})();
const isLive = embedded === null;
const TOKEN = "acts-token";

/** The answer to a question of the page. Throws `Refusal`. */
async function ask(path, query = {}) {
  if (!isLive) {
    const answer = embedded.found.get(keyOfQuestion(path, query));
    if (answer !== undefined) return answer;
    throw new Refusal(
      ["This file does not hold this.", ...(embedded.sentences ?? []), "acts ui shows everything."].join(" "),
      { type: "NotInTheFile" },
    );
  }
  return answerOf(await fetched(pathInUrl(path) + (asked(query).length ? queryOf(query) : "")));
}

/** Do something to a run. Throws `Refusal`. */
async function act(run, deed, body = {}) {
  const headers = { "Content-Type": "application/json" };
  return answerOf(
    await fetched(pathInUrl(`runs/${run}/${deed}`), {
      method: "POST",
      headers,
      body: typeof body === "string" ? body : JSON.stringify(body),
    }),
  );
}

const pathInUrl = (path) => "api/" + path.split("/").map(encodeURIComponent).join("/");

async function fetched(url, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  try {
    return await fetch(url, { ...options, headers, cache: "no-store", credentials: "same-origin", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("The server does not answer.", { type: "Unreachable" });
  }
}

async function answerOf(response) {
  let answer = null;
  try {
    answer = parsed(await response.text());
  } catch {
    // Something between the server and here has answered in its own words.
  }
  if (response.ok && answer !== null) return answer;
  const said = answer?.error ?? {};
  const message = said.message ?? `The server answered ${response.status}, in a form that this page cannot read.`;
  throw new Refusal(message, { type: said.type ?? (response.ok ? "Unreadable" : "Refused"), status: response.status });
}

/**
 * The token that a link has brought is taken out of the address at once: it stays in this tab. Where the tab has another
 * one it is asked first: else a link of somebody's would have one decide under their name.
 */
function takeToken() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (found === null) return;
  const [known, given] = [sessionStorage.getItem(TOKEN), unescaped(found[1])];
  history.replaceState(null, "", "#/");
  if (known === null || known === given || confirm("Use the token of this link instead of the current one?"))
    sessionStorage.setItem(TOKEN, given);
}

/** A part of an address as it is meant; as it is where it was escaped wrongly. */
function unescaped(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * Follow a run: `changed(overview)` at each change, `gone()`, `state(sentence)` where the connection is lost ("" where
 * it is there). Returns what ends it.
 */
function follow(run, { changed, gone, state }) {
  const ending = new AbortController();
  const read = async () => {
    for (let tries = 0; !ending.signal.aborted; tries += 1) {
      try {
        const response = await fetched(`${pathInUrl(`runs/${run}/changes`)}`, {
          signal: ending.signal,
          headers: { Accept: "text/event-stream" },
        });
        if (response.status === 404) return gone();
        if (!response.ok) await answerOf(response);
        state("", tries > 0);
        tries = 0;
        for await (const event of events(response.body)) {
          if (ending.signal.aborted) return;
          if (event.event === "gone") return gone();
          if (event.event === "unavailable") state(`${parsed(event.data).error.message} Trying again.`);
          if (event.event === "changed") {
            state("");
            changed(parsed(event.data));
          }
        }
      } catch (error) {
        if (ending.signal.aborted) return;
        if (error.status === 401 || error.status === 403 || error.status === 404) return state(error.message);
        state(error.status ? `${error.message} Trying again.` : "Connection lost, trying again.");
      }
      await pause(Math.min(500 * 2 ** tries, 10_000), ending.signal);
    }
  };
  read();
  return () => ending.abort();
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

const LONGEST_EVENT = 4_000_000;

/** The events of a stream of server-sent events. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    if (text.length > LONGEST_EVENT) throw new Refusal("The server has sent an event that is too large.");
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const event = { event: "message", data: "" };
      for (const line of text.slice(0, end).split("\n")) {
        const [, name, content] = /^([a-z]*): ?(.*)$/s.exec(line) ?? [];
        if (name === "event") event.event = content;
        else if (name === "data") event.data += (event.data && "\n") + content;
      }
      text = text.slice(end + 2);
      yield event;
    }
  }
}
