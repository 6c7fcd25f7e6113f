"use strict";
// Shows what the kernel process makes of a terminal, row by row, as text; keys go back. Nothing here takes text for markup.

// As pyte names them, one of them with a letter of its own.
const COLOURS = {
  black: "#000000", red: "#d75f5f", green: "#6fae5a", brown: "#c9a227", blue: "#5f87d7", magenta: "#b079c7",
  cyan: "#4fb0b0", white: "#c8c8c8", brightblack: "#767676", brightred: "#ff8787", brightgreen: "#97d77f",
  brightbrown: "#ffd75f", brightyellow: "#ffd75f", brightblue: "#87afff", brightmagenta: "#d7a1ea", bfightmagenta: "#d7a1ea",
  brightcyan: "#7fdede", brightwhite: "#ffffff",
};
const [INK, PAPER] = ["#e4e4e4", "#161616"];
const MOST_PAST = 5000;
const KEYS = {
  Enter: "\r", Backspace: "\x7f", Tab: "\t", Escape: "\x1b", Delete: "\x1b[3~", Insert: "\x1b[2~",
  PageUp: "\x1b[5~", PageDown: "\x1b[6~",
  F1: "\x1bOP", F2: "\x1bOQ", F3: "\x1bOR", F4: "\x1bOS", F5: "\x1b[15~", F6: "\x1b[17~",
  F7: "\x1b[18~", F8: "\x1b[19~", F9: "\x1b[20~", F10: "\x1b[21~", F11: "\x1b[23~", F12: "\x1b[24~",
};
const ARROWS = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", Home: "H", End: "F" };

const view = document.getElementById("view");
const past = document.getElementById("past");
const screen = document.getElementById("screen");
const keys = document.getElementById("keys");
const note = document.getElementById("note");
let modes = { app_keys: false, paste: false };
let socket = null;

function colour(name, fallback) {
  if (name === "default") return fallback;
  return COLOURS[name] || (/^[0-9a-f]{6}$/.test(name) ? `#${name}` : fallback);
}

function dress(element, style) {
  const words = style.split(" ");
  let ink = colour((words.find((each) => each.startsWith("fg-")) || "fg-default").slice(3), INK);
  let paper = colour((words.find((each) => each.startsWith("bg-")) || "bg-default").slice(3), PAPER);
  if (words.includes("reverse")) [ink, paper] = [paper, ink];
  if (ink !== INK) element.style.color = ink;
  if (paper !== PAPER) element.style.background = paper;
  if (words.includes("bold")) element.style.fontWeight = "bold";
  if (words.includes("italics")) element.style.fontStyle = "italic";
  const lines = [words.includes("underscore") && "underline", words.includes("strikethrough") && "line-through"];
  if (words.includes("cursor")) element.className = "cursor";
  element.style.textDecoration = lines.filter(Boolean).join(" ");
}

function makeRow(runs) {
  const row = document.createElement("div");
  for (const [text, style] of runs) {
    const piece = document.createElement("span");
    piece.textContent = text;
    if (style) dress(piece, style);
    row.append(piece);
  }
  return row;
}

function apply(patch) {
  const isAtEnd = view.scrollTop + view.clientHeight >= view.scrollHeight - 4;
  modes = { app_keys: patch.app_keys, paste: patch.paste };
  for (const runs of patch.scrolled) past.append(makeRow(runs));
  while (past.childElementCount > MOST_PAST) past.firstChild.remove();
  while (screen.childElementCount > patch.lines) screen.lastChild.remove();
  while (screen.childElementCount < patch.lines) screen.append(makeRow([]));
  for (const [number, runs] of Object.entries(patch.rows)) screen.children[number].replaceWith(makeRow(runs));
  if (isAtEnd) view.scrollTop = view.scrollHeight;
}

function say(text) {
  note.textContent = text;
  note.hidden = !text;
}

function send(what) {
  if (socket !== null && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(what));
}

function type(text) {
  for (let at = 0; at < text.length; at += 16384) send({ keys: text.slice(at, at + 16384) });
  view.scrollTop = view.scrollHeight;
}

function measure() {
  const box = document.getElementById("probe").getBoundingClientRect();
  const style = getComputedStyle(view);
  const width = view.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  const height = view.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
  send({ size: [Math.floor(width / (box.width / 10)), Math.floor(height / box.height)] });
}

function keyOf(event) {
  if (event.key in ARROWS) {
    const held = 1 + event.shiftKey + 2 * event.altKey + 4 * event.ctrlKey;
    if (held > 1) return `\x1b[1;${held}${ARROWS[event.key]}`;
    return (modes.app_keys ? "\x1bO" : "\x1b[") + ARROWS[event.key];
  }
  if (event.key === "Tab" && event.shiftKey) return "\x1b[Z";
  if (event.key in KEYS) return (event.altKey ? "\x1b" : "") + KEYS[event.key];
  if (event.key.length === 1 && event.ctrlKey && !event.altKey) {
    const code = event.key.toUpperCase().charCodeAt(0);
    if (code >= 64 && code < 96) return String.fromCharCode(code - 64);
    if (event.key === " ") return "\x00";
  }
  if (event.key.length === 1 && event.altKey && !event.ctrlKey) return `\x1b${event.key}`;
  return null;
}

keys.addEventListener("keydown", (event) => {
  if (event.isComposing || event.metaKey) return;
  const isCopy = event.ctrlKey && event.key.toLowerCase() === "c" && String(getSelection());
  if (isCopy) {
    navigator.clipboard.writeText(String(getSelection()));
    event.preventDefault();
    return;
  }
  if (event.ctrlKey && event.key.toLowerCase() === "v") return; // the browser pastes
  if (event.shiftKey && (event.key === "PageUp" || event.key === "PageDown")) {
    view.scrollBy(0, (event.key === "PageUp" ? -0.9 : 0.9) * view.clientHeight);
    event.preventDefault();
    return;
  }
  const text = keyOf(event);
  if (text !== null) {
    type(text);
    event.preventDefault();
  }
});
keys.addEventListener("input", (event) => {
  if (event.isComposing) return;
  type(keys.value);
  keys.value = "";
});
keys.addEventListener("compositionend", () => {
  type(keys.value);
  keys.value = "";
});
keys.addEventListener("paste", (event) => {
  const text = event.clipboardData.getData("text").replace(/\x1b/g, "").replace(/\r?\n/g, "\r");
  type(modes.paste ? `\x1b[200~${text}\x1b[201~` : text);
  event.preventDefault();
});
keys.addEventListener("focus", () => document.body.classList.add("focused"));
keys.addEventListener("blur", () => document.body.classList.remove("focused"));
view.addEventListener("mouseup", () => {
  if (!String(getSelection())) keys.focus({ preventScroll: true });
});
addEventListener("resize", measure);

socket = new WebSocket(`ws://${location.host}${location.pathname}/io`);
socket.addEventListener("open", measure);
socket.addEventListener("message", (event) => {
  const told = JSON.parse(event.data);
  if ("over" in told) say(told.over);
  else apply(told);
  if (told.notes) say(told.notes.join("; "));
});
socket.addEventListener("close", () => {
  if (note.hidden) say("the kernel has gone: run %terminal again");
});
keys.focus();
