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

// Replace a part of the page by its new state, unless the user works in this part.
const LIVE_MS = 3000;
function keepLive(part) {
  const refresh = async () => {
    try {
      if (!document.hidden && !part.contains(document.activeElement)) {
        const answer = await fetch(part.dataset.live);
        if (!answer.ok) await read(answer);
        const text = await answer.text();
        if (!part.contains(document.activeElement)) part.replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.childNodes); // the server has escaped all texts
      }
    } catch (error) { announce(error.message); }
    setTimeout(refresh, LIVE_MS);
  };
  setTimeout(refresh, LIVE_MS);
}
for (const part of document.querySelectorAll("[data-live]")) keepLive(part);
