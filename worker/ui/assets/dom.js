"use strict";

// Making elements. Whatever comes from a run becomes a text or the value of one of a few attributes: it is never markup.

const ATTRIBUTES = new Set(
  (
    "class id href type value name for title lang role tabindex open hidden disabled checked rows placeholder datetime download min max step " +
    "spellcheck autocomplete rel colspan scope selected multiple readonly inputmode maxlength"
  ).split(" "),
);
const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes (`on` holds listeners), and children: nodes, texts, lists of them; null is nothing. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  fill(element, children);
  return element;
}

function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
  else if (name === "href" && !/^(#|blob:)/.test(value)) throw new Error(`a link to ${value}`);
  else if (ATTRIBUTES.has(name) || /^(aria|data)-[a-z-]+$/.test(name))
    element.setAttribute(name, value === true ? "" : visible(String(value)));
  else throw new Error(`the attribute ${name}`);
}

function fill(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : visible(String(child)));
  }
}

/** Put other children in place of those of an element. */
function refill(element, ...children) {
  element.replaceChildren();
  fill(element, children);
  return element;
}

/** A part of a picture; its attributes are numbers and classes that the page itself makes. */
function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  fill(element, children);
  return element;
}

/** A text whose control characters, and those that turn the direction of writing, can be seen. */
function visible(text) {
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g,
    (character) => {
      const code = character.codePointAt(0);
      return code < 0x20
        ? String.fromCodePoint(0x2400 + code)
        : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
    },
  );
}

// Numbers and times for people

const counted = (number) => Number(number).toLocaleString("en");

/** "1 call", "3 calls" */
const plural = (number, word, words = word + "s") => `${counted(number)} ${number === 1 ? word : words}`;

function bytes(number) {
  const units = ["bytes", "kB", "MB", "GB"];
  let unit = 0;
  while (number >= 1000 && unit < units.length - 1) [number, unit] = [number / 1000, unit + 1];
  return `${unit && number < 100 ? number.toFixed(1) : Math.round(number)} ${units[unit]}`;
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  const rest = Math.floor(seconds % 60);
  if (minutes < 60) return `${minutes} min${minutes < 10 && rest ? ` ${rest} s` : ""}`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

/** A moment in the reader's own time; what is exact stands in its title. */
function moment(iso, { only = "" } = {}) {
  if (!iso) return "–";
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return String(iso);
  const two = (number, places = 2) => String(number).padStart(places, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  const shown = only === "time" ? `${time}.${two(date.getMilliseconds(), 3)}` : `${day} ${time}`;
  return make("time", { datetime: iso, title: iso }, shown);
}

function money(cost) {
  if (!cost) return null;
  if (cost.money === null || cost.money === undefined) return "price not known";
  return `${Number(cost.money).toFixed(cost.money < 0.01 ? 5 : 2)} ${cost.currency ?? "USD"}`;
}

/** Where the page is: each part of the address is a text. */
const address = (...parts) => "#/" + parts.map((part) => encodeURIComponent(String(part))).join("/");
