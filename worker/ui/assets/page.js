"use strict";

// Which view is shown where: everything has an address, so links, the back button and a reload lead to it.

const VIEWS = {
  plan: runView,
  tick: runView,
  call: callView,
  instances: instancesView,
  instance: instanceView,
  global: instanceView,
  value: valueView,
  conversation: conversationView,
  sent: sentView,
  held: heldView,
  audit: auditView,
};
const FOLDERS = { workflows: workflowsView, workflow: workflowView }; // what is no run
const MAPPED = new Set(["plan", "tick", "call", "instance", "global"]);
const RUNS_AGAIN_MS = 5_000;
const READ_AGAIN_MS = 1_000;
const part = (id) => document.getElementById(id);

let turn = 0; // of several views that are asked for, the last one is shown
let underWay = 0; // the turn whose answers are waited for
let isOld = false; // news have come meanwhile
let again = null;
let isTouched = false; // then what a person opened, wrote or chose is not replaced by itself
const followed = { run: null, overview: null, isGone: false, stop: () => {} };
const mapped = { key: null, tick: null, answer: null };

function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [first, run = null, view = "plan", ...parts] = path.split("/").filter(Boolean).map(unescaped);
  if (isLive && Object.hasOwn(FOLDERS, first ?? ""))
    return { run: null, view: first, parts: run === null ? [] : [run], query: new URLSearchParams(query) };
  return {
    run: first === "run" ? run : null,
    view: Object.hasOwn(VIEWS, view) ? view : "plan",
    parts,
    query: new URLSearchParams(query),
  };
}

/** Show what the address says. `isQuiet`: it is shown already, and its data may have changed. */
async function render({ isQuiet = false } = {}) {
  const mine = (underWay = ++turn);
  isOld = false;
  clearTimeout(again);
  const asked = route();
  if (!isQuiet) part("main").setAttribute("aria-busy", "true");
  let view;
  try {
    if (asked.run !== null) await hold(asked.run, mine);
    else letGo();
    if (mine !== turn) return;
    if (followed.isGone)
      throw new Refusal(`Run ${asked.run} is gone: it was deleted, or it expired.`, { status: 404 });
    const context = { ...asked, overview: followed.overview };
    const shows = asked.run === null ? (FOLDERS[asked.view] ?? runsView) : VIEWS[asked.view];
    view = await shows(context);
    if (mine === turn && asked.run !== null) await showMap(asked, view.current ?? null);
  } catch (error) {
    if (!(error instanceof Refusal)) console.error(error);
    view = trouble(error, asked);
  }
  if (mine !== turn) return;
  underWay = 0;
  showView(asked, view, isQuiet);
  if (isOld) refreshBySelf();
}

function showView(asked, view, isQuiet) {
  const scrolled = scrollY;
  document.title = [view.title, asked.run && followed.overview ? (followed.overview.name ?? asked.run) : null, "acts"]
    .filter(Boolean)
    .join(" · ");
  document.body.dataset.view = asked.run === null && !FOLDERS[asked.view] ? "runs" : asked.view;
  showTop(asked);
  refill(part("detail"), view.nodes);
  isTouched = false;
  part("main").removeAttribute("aria-busy");
  if (isQuiet) scrollTo(0, scrolled);
  else {
    const target = part("detail").querySelector("h2[tabindex]") ?? part("main");
    if (mapWasAsked(asked)) scrollTo(0, 0);
    else target.scrollIntoView({ block: "nearest" });
    if (turn > 1) target.focus({ preventScroll: true });
  }
  const isReading = view.isReading || (!part("map").hidden && mapped.answer?.reading);
  if (isLive && (view.isFresh || isReading))
    again = setTimeout(refreshBySelf, isReading ? READ_AGAIN_MS : RUNS_AGAIN_MS);
}

const mapWasAsked = (asked) => asked.view === "plan" || asked.view === "tick";

/** Above the view: the way here, and the run. */
function showTop(asked) {
  const crumbs = [isLive ? make("a.brand", { href: "#/" }, "acts") : wrap("span.brand", "acts")];
  if (isLive && asked.run === null) crumbs.push(anchor("#/", "Runs"), anchor("#/workflows", "Workflows"));
  if (asked.run !== null) crumbs.push(anchor(address("run", asked.run), followed.overview?.name ?? asked.run));
  if (asked.run !== null && !mapWasAsked(asked))
    crumbs.push(make("span", { "aria-current": "page" }, [asked.view, ...asked.parts.slice(0, 1)].join(" ")));
  refill(
    part("crumbs"),
    listed("ol", crumbs, (one) => one),
  );
  const { overview } = followed;
  refill(part("top"), asked.run && overview ? runTop(overview, asked.view === "tick" ? "plan" : asked.view) : []);
}

/** Follow the run that is looked at, and no other: not one that was left before its answer has come. */
async function hold(run, mine) {
  if (followed.run === run) return;
  letGo();
  const overview = await ask(`runs/${run}`);
  if (mine !== turn) return;
  Object.assign(followed, { run, overview });
  if (!isLive) return;
  followed.stop = follow(run, {
    changed: (news) => {
      const before = followed.overview;
      followed.overview = news;
      if (before.status !== news.status) announce(`The run is ${news.status}`);
      if (before.log !== news.log || before.status !== news.status || before.held !== news.held)
        ((mapped.key = null), refreshBySelf());
    },
    gone: () => {
      followed.isGone = true;
      render({ isQuiet: true });
    },
    state: (sentence, isBack) => {
      connection(sentence);
      if (isBack) refreshBySelf();
    },
  });
}

function letGo() {
  followed.stop();
  Object.assign(followed, { run: null, overview: null, isGone: false, stop: () => {} });
  Object.assign(mapped, { key: null, tick: null });
  connection("");
  part("map").hidden = true;
}

function connection(sentence) {
  if (part("connection").textContent !== sentence) part("connection").textContent = sentence;
}

/** Show news where nobody is at work on the view; else offer them. What is asked for is shown before it is asked again. */
function refreshBySelf() {
  if (underWay) return void (isOld = true);
  const isAtWork = isTouched || document.querySelector("dialog[open]") !== null;
  if (!isAtWork) return void render({ isQuiet: true });
  if (part("newer") !== null) return;
  showTop(route());
  part("detail").prepend(
    make(
      "p",
      { id: "newer", class: "notice quiet" },
      "This has changed. ",
      make("button", { type: "button", on: { click: () => render({ isQuiet: true }) } }, "Show it as it is now"),
    ),
  );
  announce("This has changed");
}

/** After an action of this user. */
const refresh = () => ((mapped.key = null), render({ isQuiet: true }));

/** The plan beside the view: drawn once for a run, and again where its counts change. */
async function showMap(asked, current) {
  const map = part("map");
  map.hidden = !MAPPED.has(asked.view);
  if (map.hidden) return;
  const { run } = asked;
  const tick = asked.view === "tick" ? asked.parts[0] : mapped.tick;
  const key = JSON.stringify([run, tick]);
  if (mapped.key !== key) {
    const address = location.hash;
    const answer = await ask(`runs/${run}/plan`, { tick });
    if (location.hash !== address) return;
    Object.assign(mapped, { key: answer.reading ? null : key, tick, answer });
  }
  const focused = document.activeElement?.closest?.("#map [data-call]")?.dataset.call;
  const go = (call, status) => (location.hash = address("run", run, "call", call, ...(status ? [status] : [])));
  const { svg, calls, ticks = [], more } = mapped.answer;
  const choice = ticks.length > 1 ? tickChoice(run, ticks, mapped.answer.tick) : null;
  const drawn = calls.length ? planPicture(svg, current ?? asked.parts[0], go) : quiet("The plan has no calls.");
  const said = more ? quiet(`The picture has ${plural(more, "more call")} than can be listed.`) : null;
  refill(map, choice, reading(mapped.answer), make("div.plan", { tabindex: "-1" }, drawn), said);
  if (focused !== undefined)
    map.querySelector(`[data-call="${CSS.escape(focused)}"][tabindex]`)?.focus({ preventScroll: true });
}

function tickChoice(run, ticks, tick) {
  const link = (number) => choice(address("run", run, "tick", number), number, number === tick);
  const links = listed("ul.inline", ticks.slice(-200), link);
  return make("nav.ticks", { "aria-label": "Ticks" }, wrap("span", "Tick "), links);
}

/** What is shown where a view could not be had. */
function trouble(error, asked) {
  if (error.status === 401) return { title: "Token", nodes: tokenForm(error) };
  const isGone = error.status === 404 && asked.run !== null;
  if (error.type === "Unreachable" && isLive) {
    connection("Connection lost, trying again.");
    again = setTimeout(() => render({ isQuiet: true }), READ_AGAIN_MS * 2);
  }
  const said =
    error instanceof Refusal ? error.message : `This page could not show the answer: ${error.message}`;
  return {
    title: "Not shown",
    nodes: [
      heading(isGone ? "Not found" : "This could not be shown"),
      notice("error", wrap("p", said)),
      isLive ? wrap("p", anchor("#/", "All runs")) : null,
    ],
  };
}

function tokenForm(error) {
  const token = make("input", { type: "password", autocomplete: "off", name: "token" });
  const had = sessionStorage.getItem(TOKEN) !== null;
  const take = (event) => {
    event.preventDefault();
    sessionStorage.setItem(TOKEN, token.value.trim());
    start();
  };
  return [
    heading("A token is needed"),
    notice(
      had ? "error" : "",
      wrap(
        "p",
        had
          ? error.message
          : "acts ui has printed a link that holds it; tokens for others are made with ACTS_UI_TOKENS.",
      ),
    ),
    make(
      "form.filter",
      { on: { submit: take } },
      field("Token", token),
      make("button", { type: "submit", class: "primary" }, "Go on"),
    ),
    quiet("It stays in this tab until you close it, and is sent only to this server."),
  ];
}

// Theme, keys, start

const THEMES = ["system", "light", "dark"];

function theme(name) {
  const chosen = THEMES.includes(name) ? name : "system";
  document.documentElement.dataset.theme = chosen;
  part("theme").textContent = `Theme: ${chosen}`;
  try {
    localStorage.setItem("acts-theme", chosen);
  } catch {
    // A file may not be allowed to keep anything.
  }
}

function keptTheme() {
  try {
    return localStorage.getItem("acts-theme");
  } catch {
    return null;
  }
}

const KEYS = {
  "?": ["these keys", () => showKeys()],
  p: ["the plan", () => followed.run && (location.hash = address("run", followed.run))],
  i: ["the instances", () => followed.run && (location.hash = address("run", followed.run, "instances"))],
  h: ["what is held", () => followed.run && (location.hash = address("run", followed.run, "held"))],
  r: ["all runs", () => isLive && (location.hash = "#/")],
  "/": ["search", () => document.querySelector("input[type=search]")?.focus()],
};

function showKeys() {
  const rows = [
    ...Object.entries(KEYS).map(([key, [what]]) => [key, what]),
    ["Tab, arrows", "through the plan, from call to call"],
    ["Enter", "opens a call"],
    ["Escape", "closes a dialog"],
  ].map(([key, what]) => wrap("div", wrap("dt", wrap("kbd", key)), wrap("dd", what)));
  const close = wrap(
    "p.buttons",
    pushButton("Close", () => box.close()),
  );
  const box = popup("Keys", wrap("h2", "Keys"), wrap("dl.facts.keys", rows), close);
}

function onKey(event) {
  const isWriting = event.target.closest("input, textarea, select, dialog[open]");
  if (isWriting || event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key][1]();
}

/** Learn what the token may, and show the view. */
async function start() {
  takeToken();
  if (isLive) {
    try {
      const me = await ask("me");
      rights = new Set(me.may);
      const forget = () => (sessionStorage.removeItem(TOKEN), location.reload());
      refill(
        part("foot"),
        wrap(
          "p",
          `${me.name ? me.name + " may " : "You may "}${me.may.join(", ")}. `,
          sessionStorage.getItem(TOKEN) ? pushButton("Forget the token", forget) : null,
        ),
      );
    } catch {
      // The view says what is wrong.
    }
  } else refill(part("foot"), wrap("p", "Written ", moment(embedded.made), ". ", (embedded.sentences ?? []).join(" ")));
  await render();
}

part("theme").addEventListener("click", () =>
  theme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]),
);
part("help").addEventListener("click", showKeys);
part("skip").addEventListener("click", (event) => {
  event.preventDefault();
  (part("detail").querySelector("h2[tabindex]") ?? part("main")).focus();
});
for (const name of ["input", "toggle", "click"]) {
  part("detail").addEventListener(
    name,
    (event) => (isTouched ||= name !== "click" || event.target.matches(".next, .toggle, textarea, select")),
    { capture: true },
  );
}
document.addEventListener("keydown", onKey);
addEventListener("hashchange", () => (takeToken(), render()));
theme(keptTheme());
start();
