"use strict";
// Parts that all pages of the console share. Texts are set as text, never as markup.

const CSRF = document.querySelector('meta[name="csrf"]').content;

// Say a text to the user, also with a screen reader.
function announce(text) {
  document.getElementById("said").textContent = text;
}

// Send a request. Throws an error with a text for the user if the server does not answer.
async function request(url, options) {
  try { return await fetch(url, options); } catch { throw new Error("The server does not answer. This page tries again."); }
}

// Send JSON to the server. Throws an error with the server's own words.
async function post(path, body) {
  const answer = await request(path, { method: "POST", headers: { "Content-Type": "application/json", "X-CSRF-Token": CSRF }, body: JSON.stringify(body) });
  return read(answer);
}

async function read(answer) {
  if (answer.ok) return answer.status === 204 ? null : answer.json();
  let detail = `${answer.status} ${answer.statusText}`;
  try { ({ detail } = await answer.json()); } catch { /* not a problem document */ }
  throw new Error(detail);
}

// Change only the nodes that differ: a click on a node that stays the same is never lost.
const isBlank = (node) => node.nodeType === Node.TEXT_NODE && !node.data.trim();
const nodesIn = (parent) => [...parent.childNodes].filter((node) => !isBlank(node));

function updateChildren(old, fresh) {
  const [before, after] = [nodesIn(old), nodesIn(fresh)];
  if (before.length === after.length) before.forEach((node, n) => update(node, after[n]));
  else old.replaceChildren(...after);
}

function update(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  const isSameTag = old.hasChildNodes() && old.cloneNode(false).isEqualNode(fresh.cloneNode(false));
  if (isSameTag) updateChildren(old, fresh);
  else old.replaceWith(fresh);
}

function updateFrom(html, part) {
  updateChildren(part, new DOMParser().parseFromString(html, "text/html").body); // the server has escaped all texts
}

// The user has the focus, presses a button of the mouse or selects text in this part.
function isInUse(part) {
  const selection = getSelection();
  return part.contains(document.activeElement) || part.matches(":active") || (!selection.isCollapsed && part.contains(selection.anchorNode));
}

// Replace a part of the page by its new state, unless the user works in this part.
const LIVE_MS = 3000;
function keepLive(part) {
  const refresh = async () => {
    try {
      if (!document.hidden && !isInUse(part)) {
        const answer = await request(part.dataset.live);
        if (!answer.ok) await read(answer);
        const text = await answer.text();
        if (!isInUse(part)) updateFrom(text, part);
      }
    } catch (error) { announce(error.message); }
    setTimeout(refresh, LIVE_MS);
  };
  setTimeout(refresh, LIVE_MS);
}
for (const part of document.querySelectorAll("[data-live]")) keepLive(part);
