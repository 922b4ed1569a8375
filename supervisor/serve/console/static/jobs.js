"use strict";
// The table of jobs: counts, live rows, keys and actions on many jobs.

const REFRESH_MS = 3000;
const COUNT_AFTER_MS = 500; // the counts read the whole list: the rows come first
const COUNT_PAUSE_FACTOR = 10; // a pause is this many times as long as the count before it
const MAX_BATCH = 50; // most jobs of one request
const MIN_UPDATES = 10; // least updates of the progress of an action that has so many jobs
const MAX_PROBLEMS = 20; // most problems of an action that are shown
// The statuses that an action can change.
const STATUSES_OF = {
  cancel: ["queued", "running", "waiting"],
  retry: ["partial", "failed", "cancelled"],
  approve: ["waiting"],
};
const table = document.querySelector("#jobs tbody");
const filter = document.getElementById("filter");
const query = location.search;
const chosen = new Set();
let isBusy = false; // an action runs
let nextCount = 0; // earliest time of the next count, as `performance.now()`

// --- filter

// An empty field is left out, which keeps the URL short.
filter.addEventListener("submit", () => {
  for (const field of filter.elements) {
    if (field.name && !field.value) field.disabled = true;
  }
});
filter.addEventListener("change", () => filter.requestSubmit());
addEventListener("pageshow", () => {
  for (const field of filter.elements) field.disabled = false;
});

const figure = (n) => n.toLocaleString("en");

async function count() {
  const began = performance.now();
  const counts = await read(await request(`/jobs/counts${query}`));
  for (const place of document.querySelectorAll("[data-count]")) {
    place.textContent = figure(counts[place.dataset.count] ?? 0);
  }
  const ended = performance.now();
  nextCount = ended + COUNT_PAUSE_FACTOR * (ended - began);
}

// --- live rows

async function refresh() {
  const jobs = [...table.rows].map((row) => `job=${encodeURIComponent(row.id)}`);
  if (!jobs.length) return;
  const answer = await request(`/jobs/rows?${jobs.join("&")}`);
  if (!answer.ok) return;
  const fresh = parsed(`<table>${await answer.text()}</table>`);
  for (const row of fresh.querySelectorAll("tr")) {
    const old = document.getElementById(row.id);
    if (old) updateRow(old, row);
  }
}

function updateRow(old, fresh) {
  const status = fresh.dataset.status;
  if (old.dataset.status !== status) announce(`${fresh.id}: ${status}`);
  old.dataset.status = status;
  [...fresh.cells].forEach((cell, n) => {
    if (!isInUse(old.cells[n])) update(old.cells[n], cell);
  });
}

async function refreshAndCount() {
  if (document.hidden) return;
  const updates = [refresh()];
  if (performance.now() >= nextCount) updates.push(count());
  await Promise.all(updates);
}

async function live() {
  try {
    await refreshAndCount();
  } catch (error) {
    announce(error.message);
  }
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
  const text = matching.checked ? "all jobs that match" : `${chosen.size} selected`;
  document.getElementById("chosen").textContent = text;
  const isNothingChosen = !matching.checked && !chosen.size;
  for (const button of buttons) button.disabled = isBusy || isNothingChosen;
}

function clearChosen() {
  chosen.clear();
  for (const box of [all, matching, ...table.querySelectorAll(".choose")]) box.checked = false;
  showChosen();
}

// The ids of all jobs that match the filter. Without a status in the filter, these are only jobs
// that the action can change.
async function matchingIds(action) {
  const params = new URLSearchParams(query);
  params.delete("cursor");
  if (!params.has("status")) {
    for (const status of STATUSES_OF[action]) params.append("status", status);
  }
  const ids = [];
  let cursor = "";
  while (cursor !== null) {
    if (cursor) params.set("cursor", cursor);
    const page = await read(await request(`/jobs/ids?${params}`));
    ids.push(...page.jobs);
    cursor = page.next_cursor;
  }
  return ids;
}

// The progress of an action, with the first problems. Returns a function that shows a new state.
function showProgress(action, total) {
  const place = document.getElementById("progress");
  const [bar, text, list] = place.children;
  place.hidden = false;
  list.replaceChildren();
  bar.max = total;
  let failed = 0;
  return (done, problems) => {
    for (const [id, problem] of Object.entries(problems)) {
      failed += 1;
      if (failed > MAX_PROBLEMS) continue;
      const item = document.createElement("li");
      item.textContent = `${id}: ${problem}`;
      list.append(item);
    }
    bar.value = done;
    text.textContent = `${action}: ${figure(done)} of ${figure(total)}, ${failed} failed`;
    return text.textContent;
  };
}

// Ask the user, and then do an action on the chosen jobs in batches.
async function act(action) {
  const ids = matching.checked ? await matchingIds(action) : [...chosen];
  if (!ids.length) {
    announce(`There are no jobs to ${action}`);
    return;
  }
  const verb = action[0].toUpperCase() + action.slice(1);
  if (!confirm(`${verb} ${figure(ids.length)} jobs?`)) return;
  const show = showProgress(action, ids.length);
  let text = show(0, {});
  const batch = Math.min(MAX_BATCH, Math.ceil(ids.length / MIN_UPDATES));
  for (let first = 0; first < ids.length; first += batch) {
    const part = ids.slice(first, first + batch);
    const problems = await post("/jobs/actions", { action, jobs: part });
    text = show(first + part.length, problems);
  }
  clearChosen();
  announce(text);
  await Promise.all([refresh(), count()]);
}

// Do an action. No second action can start before the end of the first.
async function start(action) {
  isBusy = true;
  showChosen();
  try {
    await act(action);
  } catch (error) {
    announce(error.message);
  }
  isBusy = false;
  showChosen();
}

// Add the job of a checkbox to the chosen jobs, or take it away.
function choose(box) {
  if (box.checked) chosen.add(box.value);
  else chosen.delete(box.value);
}

// A user without the right to operate has no checkboxes.
if (all) {
  table.addEventListener("change", (event) => {
    if (!event.target.matches(".choose")) return;
    choose(event.target);
    showChosen();
  });
  all.addEventListener("change", () => {
    for (const box of table.querySelectorAll(".choose")) {
      box.checked = all.checked;
      choose(box);
    }
    showChosen();
  });
  matching.addEventListener("change", showChosen);
  for (const button of buttons) {
    button.addEventListener("click", () => start(button.dataset.action));
  }
}

setTimeout(() => count().catch((error) => announce(error.message)), COUNT_AFTER_MS);
setTimeout(live, REFRESH_MS);
