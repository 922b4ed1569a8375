"use strict";
// The page of a job: draws it with `drawing.js` and `timeline.js`, and again when it changes.

const MIN_REFRESH_MS = 1000; // least time between two refreshes
const POLL_MS = 3000; // a claim of a worker is not an event, so the page also asks
const PAUSE_FACTOR = 5; // a pause is at least this many times as long as the refresh before it
const MAX_OPEN_GRAPH = 60; // most boxes of a graph that is open at first
const OPEN_STATUSES = ["queued", "running", "waiting"];
const live = document.getElementById("live");
const JOB_URL = `/jobs/${encodeURIComponent(live.dataset.job)}`;
const loaded = { payloads: {}, turns: {}, contexts: {} }; // of the handoffs that the user opened
let drawn = ""; // the data of the last drawing, as JSON
let graphIsOpen = null; // null before the first drawing

// Load the message, the result and the turns of a handoff. An ended handoff is loaded once.
async function load(bar) {
  const hasResult = !bar.result || loaded.payloads[bar.result];
  if (loaded.payloads[bar.payload] && hasResult) return;
  const url = `${JOB_URL}/handoffs/${encodeURIComponent(bar.handoff_id)}`;
  const { handoff, result, turns, context } = await read(await request(url));
  loaded.payloads[bar.payload] = JSON.stringify({ feedback: [], ...handoff });
  if (bar.result && result) loaded.payloads[bar.result] = JSON.stringify(result);
  if (turns.length) loaded.turns[bar.handoff_id] = turns;
  loaded.contexts[bar.handoff_id] = context;
}

// Load a handoff as `load`, and also tell the user about a failure.
async function loadOrAnnounce(bar) {
  try {
    await load(bar);
  } catch (error) {
    announce(error.message);
    throw error;
  }
}

// --- the drawing

function handoffRow(job, bar) {
  return {
    handoff: bar.handoff_id,
    specialist: bar.agent,
    state: bar.state,
    turns: bar.turns,
    tokens: bar.tokens,
    cost: costOf(bar),
    worked: bar.began_at === null ? "" : seconds(workedOf(job, bar)),
    critical: bar.is_critical ? "yes" : "",
  };
}

function drawGraph(job) {
  const boxCount = job.bars.length + job.planned.length;
  if (graphIsOpen === null) graphIsOpen = boxCount <= MAX_OPEN_GRAPH;
  let title = counted(job.bars.length, "handoff");
  if (job.planned.length) title += `, ${counted(job.planned.length, "step")} without a handoff`;
  const addGraph = (to) => to.append(graphOf(job, (bar) => show(job, bar)));
  const graph = folded(title, addGraph, graphIsOpen);
  graph.addEventListener("toggle", () => {
    graphIsOpen = graph.open;
  });
  document.getElementById("graph").replaceChildren(graph);
}

function drawHandoffTable(job) {
  const parent = document.getElementById("nodes");
  const isOpen = parent.querySelector("details")?.open ?? false;
  const rows = () => job.bars.map((bar) => handoffRow(job, bar));
  const addTable = (to) => to.append(table(rows()));
  parent.replaceChildren(folded("Tokens and money of each handoff", addTable, isOpen));
}

// What the user has opened in the drawing, and the element with the focus.
function openedParts() {
  const buttons = document.querySelectorAll("#timeline .row:not(.group) > [aria-expanded=true]");
  const focused = document.activeElement;
  return {
    rows: [...buttons].map((button) => button.parentElement.id),
    focusedRow: focused?.closest("#timeline .row")?.id,
    focusedBox: focused?.closest("#graph [data-handoff]")?.dataset.handoff,
  };
}

function reopenParts({ rows, focusedRow, focusedBox }) {
  for (const id of rows) document.getElementById(id)?.querySelector("button").click();
  if (focusedBox) {
    const box = document.querySelector(`#graph [data-handoff="${CSS.escape(focusedBox)}"]`);
    box?.focus({ preventScroll: true });
  }
  if (focusedRow) document.getElementById(focusedRow)?.querySelector("button").focus();
}

// Draw a job. The parts that the user has opened stay open.
function draw(job) {
  const data = JSON.stringify([job.bars, job.planned, job.is_over]);
  const isEmptyPlan = !job.bars.length && !job.planned.length;
  if (data === drawn || isEmptyPlan) return;
  drawn = data;
  Object.assign(job, loaded, { load: loadOrAnnounce });
  const opened = openedParts();
  drawGraph(job);
  if (!job.bars.length) return;
  document.getElementById("timeline").replaceChildren(timelineOf(job));
  drawHandoffTable(job);
  reopenParts(opened);
}

// --- the status

// Show the forms that the state of the job allows. `live` must be up to date.
function showForms() {
  const kinds = live.querySelector("[data-kinds]").dataset.kinds.split(" ");
  for (const form of document.querySelectorAll("[data-when]")) {
    form.hidden = !form.dataset.when.split(" ").some((kind) => kinds.includes(kind));
  }
  // A decision is for the question that is on the page.
  const question = live.querySelector("[data-question]")?.dataset.question ?? "";
  for (const input of document.querySelectorAll("input[name=question]")) input.value = question;
}

function showStatus(status) {
  if (live.dataset.status !== status) announce(`The job is now: ${status}.`);
  live.dataset.status = status;
}

// --- refreshes

let timer = 0;
let isWanted = false; // an event came after the begin of the last refresh
let isRefreshing = false;
let isOver = false;

async function refresh() {
  clearTimeout(timer);
  if (document.hidden || isRefreshing) return;
  isRefreshing = true;
  isWanted = false;
  const began = performance.now();
  try {
    const answer = await read(await request(`${JOB_URL}/live`));
    if (!isInUse(live)) updateFrom(answer.html, live);
    showForms();
    showStatus(answer.status);
    isOver = !OPEN_STATUSES.includes(answer.status);
    draw(answer.drawing);
    follow(answer.version);
  } catch (error) {
    announce(error.message);
  }
  isRefreshing = false;
  if (isOver) return;
  const took = performance.now() - began;
  const pause = isWanted ? MIN_REFRESH_MS : POLL_MS;
  timer = setTimeout(refresh, Math.max(pause, PAUSE_FACTOR * took));
}

// Ask for a refresh. During a refresh, its end sets the timer.
function wantRefresh() {
  if (isWanted) return;
  isWanted = true;
  if (isRefreshing) return;
  clearTimeout(timer);
  timer = setTimeout(refresh, MIN_REFRESH_MS);
}

let source = null; // the connection for events

function unfollow() {
  source?.close();
  source = null;
}

// Follow the events of the job after a version of its journal. Each event asks for a refresh.
// A hidden page gives its connection back: a browser has six for all pages of a server.
function follow(version) {
  if (isOver || document.hidden) {
    unfollow();
    return;
  }
  if (source) return;
  source = new EventSource(`${JOB_URL}/events?after=${version}`);
  source.addEventListener("message", wantRefresh);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) unfollow();
  else if (!isOver) refresh();
});
refresh();
