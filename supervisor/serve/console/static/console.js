"use strict";
// Parts that all pages of the console share. Texts are set as text, never as markup.

const CSRF = document.querySelector('meta[name="csrf"]').content;

// Say a text to the user, also with a screen reader.
function announce(text) {
  document.getElementById("said").textContent = text;
}

// --- requests

// Send a request. Throws an error with a text for the user if the server does not answer.
async function request(url, options) {
  try {
    return await fetch(url, options);
  } catch {
    throw new Error("The server does not answer. This page tries again.");
  }
}

// Send JSON to the server. Throws an error with the server's own words.
async function post(path, body) {
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": CSRF };
  const answer = await request(path, { method: "POST", headers, body: JSON.stringify(body) });
  return read(answer);
}

// The JSON of an answer; null without content. Throws an error with the server's own words.
async function read(answer) {
  if (answer.ok) return answer.status === 204 ? null : answer.json();
  let detail = `${answer.status} ${answer.statusText}`;
  try {
    detail = (await answer.json()).detail;
  } catch {
    // not a problem document
  }
  throw new Error(detail);
}

// --- updates of the page

// Change only the nodes that differ: a click on a node that stays the same is never lost.
const isBlank = (node) => node.nodeType === Node.TEXT_NODE && !node.data.trim();
const nodesIn = (parent) => [...parent.childNodes].filter((node) => !isBlank(node));

function updateChildren(old, fresh) {
  const before = nodesIn(old);
  const after = nodesIn(fresh);
  if (before.length === after.length) before.forEach((node, n) => update(node, after[n]));
  else old.replaceChildren(...after);
}

function update(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  const isSameTag = old.cloneNode(false).isEqualNode(fresh.cloneNode(false));
  if (isSameTag && old.hasChildNodes()) updateChildren(old, fresh);
  else old.replaceWith(fresh);
}

// The document of HTML from the server, which has escaped all texts.
const parsed = (html) => new DOMParser().parseFromString(html, "text/html");

function updateFrom(html, part) {
  updateChildren(part, parsed(html).body);
}

// The user has the focus, presses a button of the mouse or selects text in this part.
function isInUse(part) {
  if (part.contains(document.activeElement) || part.matches(":active")) return true;
  const selection = getSelection();
  return !selection.isCollapsed && part.contains(selection.anchorNode);
}

// --- live parts

const LIVE_MS = 3000; // time between two updates of a part

// Replace a part of the page by its new state, unless the user works in this part.
async function refreshPart(part) {
  if (document.hidden || isInUse(part)) return;
  const answer = await request(part.dataset.live);
  if (!answer.ok) await read(answer); // throws the server's own words
  const html = await answer.text();
  if (!isInUse(part)) updateFrom(html, part);
}

function keepLive(part) {
  const refresh = async () => {
    try {
      await refreshPart(part);
    } catch (error) {
      announce(error.message);
    }
    setTimeout(refresh, LIVE_MS);
  };
  setTimeout(refresh, LIVE_MS);
}

for (const part of document.querySelectorAll("[data-live]")) keepLive(part);
