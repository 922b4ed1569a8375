"use strict";
// Parts that all pages of the console share. Texts are set as text, never as markup.

const CSRF = document.querySelector('meta[name="csrf"]').content;

// Say a text to the user, also with a screen reader.
function announce(text) {
  document.getElementById("said").textContent = text;
}

// Send JSON to the server. Throws an error with the server's own words.
async function post(path, body) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json", "X-CSRF-Token": CSRF }, body: JSON.stringify(body) });
  return read(answer);
}

async function read(answer) {
  if (answer.ok) return answer.status === 204 ? null : answer.json();
  let detail = `${answer.status} ${answer.statusText}`;
  try { ({ detail } = await answer.json()); } catch { /* not a problem document */ }
  throw new Error(detail);
}
