"use strict";
// The table of jobs: counts, live rows, keys and actions on many jobs.

const REFRESH_MS = 3000;
const COUNT_AFTER_MS = 500; // the counts read the whole list: the rows come first
const COUNT_PART = 10; // the counts take at most one part of this many parts of the time
const MOST_BATCH = 50; // most jobs of one request
const UPDATES = 10; // least changes of the progress of an action, if the action has so many jobs
const USUAL = { cancel: ["queued", "running", "waiting"], retry: ["partial", "failed", "cancelled"], finish: ["partial"], approve: ["waiting"] }; // statuses that an action can change
const MOST_PROBLEMS = 20; // most problems of an action that are shown
const table = document.querySelector("#jobs tbody");
const filter = document.getElementById("filter");
const query = location.search;
const chosen = new Set();
let isBusy = false; // an action runs
let nextCount = 0; // earliest time of the next refresh of the counts, as `performance.now()`

// --- filter

filter.addEventListener("submit", () => {
  for (const field of filter.elements) if (field.name && !field.value) field.disabled = true; // keeps the URL short
});
filter.addEventListener("change", () => filter.requestSubmit());
addEventListener("pageshow", () => { for (const field of filter.elements) field.disabled = false; });

async function count() {
  const began = performance.now();
  const counts = await read(await request(`/jobs/counts${query}`));
  for (const place of document.querySelectorAll("[data-count]")) place.textContent = (counts[place.dataset.count] ?? 0).toLocaleString("en");
  nextCount = performance.now() + COUNT_PART * (performance.now() - began);
}

// --- live rows

async function refresh() {
  const names = [...table.rows].map((row) => `job=${encodeURIComponent(row.id)}`);
  if (!names.length) return;
  const answer = await request(`/jobs/rows?${names.join("&")}`);
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(`<table>${await answer.text()}</table>`, "text/html"); // the server has escaped all texts
  for (const row of fresh.querySelectorAll("tr")) {
    const old = document.getElementById(row.id);
    if (!old) continue;
    if (old.dataset.status !== row.dataset.status) announce(`${row.id}: ${row.dataset.status}`);
    old.dataset.status = row.dataset.status;
    [...row.cells].forEach((cell, n) => { if (!isInUse(old.cells[n])) update(old.cells[n], cell); });
  }
}

async function live() {
  try { if (!document.hidden) await Promise.all([refresh(), performance.now() < nextCount ? null : count()]); } catch (error) { announce(error.message); }
  setTimeout(live, REFRESH_MS);
}

// --- keys: the arrows move between rows, and / goes to the search

table.addEventListener("keydown", (event) => {
  const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  const row = step && event.target.closest("tr")[step];
  if (!row) return;
  event.preventDefault();
  row.querySelector("a").focus();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.matches("input, select, textarea")) return;
  event.preventDefault();
  filter.elements.text.focus();
});

// --- actions

const all = document.getElementById("all");
const matching = document.getElementById("matching");
const buttons = [...document.querySelectorAll("[data-action]")];

function showChosen() {
  document.getElementById("chosen").textContent = matching.checked ? "all jobs that match" : `${chosen.size} selected`;
  for (const button of buttons) button.disabled = isBusy || (!matching.checked && !chosen.size);
}

function clearChosen() {
  chosen.clear();
  for (const box of [all, matching, ...table.querySelectorAll(".choose")]) box.checked = false;
  showChosen();
}

// Without a status in the filter, the jobs are only the jobs that the action can change.
async function* matchingIds(action) {
  const params = new URLSearchParams(query);
  params.delete("cursor");
  if (!params.has("status")) for (const status of USUAL[action]) params.append("status", status);
  for (let cursor = ""; cursor !== null;) {
    if (cursor) params.set("cursor", cursor);
    const page = await read(await request(`/jobs/ids?${params}`));
    yield* page.jobs;
    cursor = page.next_cursor;
  }
}

async function act(action) {
  const names = [];
  if (matching.checked) for await (const name of matchingIds(action)) names.push(name); else names.push(...chosen);
  if (!names.length) {
    announce(`There are no jobs to ${action}`);
    return;
  }
  if (!confirm(`${action[0].toUpperCase()}${action.slice(1)} ${names.length.toLocaleString("en")} jobs?`)) return;
  const place = document.getElementById("progress");
  const [bar, text, list] = place.children;
  place.hidden = false;
  list.replaceChildren();
  bar.max = names.length;
  bar.value = 0;
  const batch = Math.min(MOST_BATCH, Math.ceil(names.length / UPDATES));
  let failed = 0;
  const show = (done) => {
    bar.value = done;
    text.textContent = `${action}: ${done.toLocaleString("en")} of ${names.length.toLocaleString("en")}, ${failed} failed`;
  };
  show(0);
  for (let done = 0; done < names.length;) {
    const part = names.slice(done, done + batch);
    const problems = await post("/jobs/actions", { action, jobs: part });
    done += part.length;
    for (const [name, problem] of Object.entries(problems)) {
      failed += 1;
      const item = document.createElement("li");
      item.textContent = `${name}: ${problem}`;
      if (failed <= MOST_PROBLEMS) list.append(item);
    }
    show(done);
  }
  clearChosen();
  announce(text.textContent);
  await Promise.all([refresh(), count()]);
}

// Do an action. No second action can start before the end of the first.
async function start(action) {
  isBusy = true;
  showChosen();
  try { await act(action); } catch (error) { announce(error.message); }
  isBusy = false;
  showChosen();
}

if (all) {
  table.addEventListener("change", (event) => {
    if (!event.target.matches(".choose")) return;
    if (event.target.checked) chosen.add(event.target.value); else chosen.delete(event.target.value);
    showChosen();
  });
  all.addEventListener("change", () => {
    for (const box of table.querySelectorAll(".choose")) {
      box.checked = all.checked;
      if (all.checked) chosen.add(box.value); else chosen.delete(box.value);
    }
    showChosen();
  });
  matching.addEventListener("change", showChosen);
  for (const button of buttons) button.addEventListener("click", () => start(button.dataset.action));
}

setTimeout(() => count().catch((error) => announce(error.message)), COUNT_AFTER_MS);
setTimeout(live, REFRESH_MS);
