"use strict";
// The page of a job: draws it with `drawing.js` and `timeline.js`, and draws it again when it changes.

const LEAST_MS = 1000; // least time between two drawings
const POLL_MS = 3000; // a claim of a worker is no event, so the page also asks
const TIMES = 5; // a drawing takes at most this part of the time
const MOST_IN_THE_GRAPH = 60; // boxes of a graph that is open at first
const live = document.getElementById("live");
const JOB_URL = `/jobs/${encodeURIComponent(live.dataset.job)}`;
const known = { payloads: {}, turns: {}, contexts: {} }; // the handoffs that the user opened
let drawn = "";
let graphIsOpen = null;

// Load the message, the result and the turns of a handoff. An ended handoff is loaded once.
async function load(bar) {
  if (known.payloads[bar.payload] && (!bar.result || known.payloads[bar.result])) return;
  const all = await read(await request(`${JOB_URL}/handoffs/${encodeURIComponent(bar.handoff_id)}`));
  known.payloads[bar.payload] = JSON.stringify({ feedback: [], ...all.handoff });
  if (bar.result && all.result) known.payloads[bar.result] = JSON.stringify(all.result);
  if (all.turns.length) known.turns[bar.handoff_id] = all.turns;
  known.contexts[bar.handoff_id] = all.context;
}

function show(job, bar) {
  const row = document.getElementById(`${job.id}/${bar.handoff_id}`);
  row.opensGroup?.();
  if (!row.querySelector(".detail")) row.querySelector("button").click();
  row.querySelector("button").focus({ preventScroll: true });
  row.scrollIntoView({ block: "center" });
}

const nodesOf = (job) => table(job.bars.map((bar) => ({
  handoff: bar.handoff_id, specialist: bar.who, state: bar.state, turns: bar.turns, tokens: bar.tokens, cost: (bar.at_most ? "at most " : "") + money(bar.usd),
  worked: bar.began_at === null ? "" : seconds(workedOf(job, bar)), critical: bar.is_critical ? "yes" : "",
})));

function draw(job) {
  const [stamp, boxes] = [JSON.stringify([job.bars, job.planned, job.is_over]), job.bars.length + job.planned.length];
  if (stamp === drawn || !boxes) return;
  drawn = stamp;
  Object.assign(job, known, { load: (bar) => load(bar).catch((error) => { announce(error.message); throw error; }) });
  const opened = [...document.querySelectorAll("#timeline .row:not(.group) > [aria-expanded=true]")].map((button) => button.parentElement.id);
  const focused = document.activeElement?.closest("#timeline .row")?.id;
  const focusedBox = document.activeElement?.closest("#graph [data-handoff]")?.dataset.handoff;
  const nodesAreOpen = document.querySelector("#nodes details")?.open ?? false;
  if (graphIsOpen === null) graphIsOpen = boxes <= MOST_IN_THE_GRAPH;
  const title = counted(job.bars.length, "handoff") + (job.planned.length ? `, ${counted(job.planned.length, "step")} without a handoff` : "");
  const graph = folded(title, (to) => to.append(graphOf(job, (bar) => show(job, bar))), graphIsOpen);
  graph.addEventListener("toggle", () => { graphIsOpen = graph.open; });
  document.getElementById("graph").replaceChildren(graph);
  if (!job.bars.length) return;
  document.getElementById("timeline").replaceChildren(timelineOf(job));
  document.getElementById("nodes").replaceChildren(folded("Tokens and money of each handoff", (to) => to.append(nodesOf(job)), nodesAreOpen));
  for (const id of opened) document.getElementById(id)?.querySelector("button").click();
  if (focusedBox) document.querySelector(`#graph [data-handoff="${CSS.escape(focusedBox)}"]`)?.focus({ preventScroll: true });
  if (focused) document.getElementById(focused)?.querySelector("button").focus();
}

function showStatus(status) {
  const isOver = !["queued", "running", "waiting"].includes(status);
  const kinds = live.querySelector("[data-kinds]").dataset.kinds.split(" ");
  for (const form of document.querySelectorAll("[data-when]")) form.hidden = !form.dataset.when.split(" ").some((kind) => kinds.includes(kind));
  const asked = live.querySelector("[data-question]")?.dataset.question ?? ""; // a decision is for the question that is on the page
  for (const input of document.querySelectorAll("input[name=question]")) input.value = asked;
  if (live.dataset.status !== status) announce(`The job is now: ${status}.`);
  live.dataset.status = status;
  return isOver;
}

let timer = 0;
let wanted = false; // an event came during a refresh
let isRefreshing = false;
let isOver = false;

async function refresh() {
  clearTimeout(timer);
  if (document.hidden || isRefreshing) return;
  isRefreshing = true;
  wanted = false;
  const began = performance.now();
  try {
    const answer = await read(await request(`${JOB_URL}/live`));
    if (!isInUse(live)) updateFrom(answer.html, live);
    isOver = showStatus(answer.status);
    draw(answer.drawing);
    follow(answer.version);
  } catch (error) { announce(error.message); }
  isRefreshing = false;
  const took = performance.now() - began;
  if (!isOver) timer = setTimeout(refresh, Math.max(wanted ? LEAST_MS : POLL_MS, TIMES * took));
}

// Follow the events of the job. Each event asks for a refresh. A hidden page gives its connection back: a browser has
// six for all pages of a server.
let source = null;
function follow(version) {
  if (isOver || document.hidden) { source?.close(); source = null; return; }
  if (source) return;
  source = new EventSource(`${JOB_URL}/events?after=${version}`);
  const hear = () => {
    if (wanted) return;
    wanted = true;
    if (!isRefreshing) { clearTimeout(timer); timer = setTimeout(refresh, LEAST_MS); }
  };
  source.addEventListener("message", hear);
}

document.addEventListener("visibilitychange", () => { if (document.hidden) follow(0); else if (!isOver) refresh(); });
refresh();
