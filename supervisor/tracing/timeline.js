// The timeline of a job: a row for each handoff on one axis of time, a zoom and a legend.
// Equal rows are folded, and pauses can be drawn short.

const SHORT_IDLE = 0.05; // width of a short pause, as a part of the time in which a process worked
const MAX_IDLE = 0.3; // width of all short pauses together, as a part of that time
const TICK_GAP = 6; // least pixels between two ticks
const TICKS = 5; // ticks of the axis at the smallest zoom, besides the one at the begin
const ZOOMS = [1, 2, 4, 8, 16, 32];
const LEGEND = [
  ["worked ok", "worked, ok"],
  ["worked partial", "partial, or needs input"],
  ["worked failed", "failed"],
  ["worked running", "running"],
  ["worked stopped", "given up"],
  ["waited", "waited"],
  ["lost", "its process was lost"],
];

// --- time

// The times in which a process worked, and the pauses between them: [from, to, isBusy].
function pausesOf(job) {
  const pieces = [];
  let until = job.begins_at;
  for (const [from, to] of claimedPeriodsOf(job, job.bars)) {
    if (from > until) pieces.push([until, from, false]);
    const begin = Math.max(from, until);
    if (to > begin) pieces.push([begin, to, true]);
    until = Math.max(until, to);
  }
  if (job.ends_at > until) pieces.push([until, job.ends_at, false]);
  return pieces;
}

const sumOf = (numbers) => numbers.reduce((sum, number) => sum + number, 0);
const lengthOf = ([from, to]) => to - from;

// The greatest width of a pause that is drawn short, in seconds of the axis.
function shortPause(busy, pauseCount) {
  return Math.min(busy * SHORT_IDLE, (busy * MAX_IDLE) / Math.max(1, pauseCount));
}

// The index of the first piece that ends at this time or later; the number of pieces without one.
function pieceAt(pieces, time) {
  let n = 0;
  let last = pieces.length;
  while (n < last) {
    const middle = (n + last) >> 1;
    if (pieces[middle][1] < time) n = middle + 1;
    else last = middle;
  }
  return n;
}

// The axis of time. `at` turns a time into a place in percent, and `timeAt` turns it back.
// `squeezes`: the pauses are longer than the work. `hidesIdle`: draw pauses short.
function scaleOf(job, hidesIdle) {
  const pieces = pausesOf(job);
  const pauses = pieces.filter(([, , isBusy]) => !isBusy);
  const idle = sumOf(pauses.map(lengthOf));
  const busy = sumOf(pieces.filter(([, , isBusy]) => isBusy).map(lengthOf));
  const short = hidesIdle && busy ? shortPause(busy, pauses.length) : Infinity;
  const widths = pieces.map((piece) => {
    const isBusy = piece[2];
    return isBusy ? lengthOf(piece) : Math.min(lengthOf(piece), short);
  });
  const whole = sumOf(widths) || 1;
  const starts = [];
  let start = 0;
  for (const width of widths) {
    starts.push(start);
    start += width;
  }
  const at = (time) => {
    const n = pieceAt(pieces, time);
    if (n === pieces.length) return 100;
    const [from, to] = pieces[n];
    const part = to > from ? Math.max(0, (time - from) / (to - from)) : 0;
    return ((starts[n] + part * widths[n]) / whole) * 100;
  };
  const timeAt = (percent) => {
    if (!pieces.length) return job.begins_at;
    const place = (percent / 100) * whole;
    const n = Math.max(0, starts.findLastIndex((begin) => begin <= place));
    const [from, to] = pieces[n];
    const part = widths[n] ? (place - starts[n]) / widths[n] : 0;
    return Math.min(to, from + part * (to - from));
  };
  return { at, timeAt, squeezes: busy > 0 && idle > busy };
}

function placePieces(root, scale) {
  for (const bar of root.querySelectorAll("i[data-from]")) {
    const left = scale.at(Number(bar.dataset.from));
    const right = scale.at(Number(bar.dataset.to));
    bar.style.left = `${left}%`;
    bar.style.width = `${Math.max(0, right - left)}%`;
  }
}

// A time below an hour in words, else as 10:00:45: ticks can be seconds apart beside short pauses.
function tickOf(s) {
  if (s < 3600) return seconds(s);
  const whole = Math.round(s);
  const twoDigits = (n) => String(n).padStart(2, "0");
  const minutes = twoDigits(Math.floor(whole / 60) % 60);
  return `${Math.floor(whole / 3600)}:${minutes}:${twoDigits(whole % 60)}`;
}

function fillAxis(axis, job, scale, zoom) {
  axis.replaceChildren();
  const count = TICKS * zoom;
  for (let n = 0; n <= count; n += 1) {
    const percent = (100 * n) / count;
    const tick = el("span", "", tickOf(scale.timeAt(percent) - job.begins_at));
    tick.dataset.at = percent;
    axis.append(tick);
  }
  placeTicks(axis);
}

// Put each tick below its time, inside of the axis. Hide ticks that would overlap, but never the
// first or the last.
function placeTicks(axis) {
  const ticks = [...axis.children];
  const axisWidth = axis.clientWidth;
  if (!axisWidth) return;
  for (const tick of ticks) tick.classList.remove("hidden");
  const places = ticks.map((tick) => {
    const width = tick.offsetWidth;
    const centred = (tick.dataset.at / 100) * axisWidth - width / 2;
    const left = Math.max(0, Math.min(axisWidth - width, centred));
    return { left, right: left + width };
  });
  const last = ticks.length - 1;
  let until = -Infinity;
  ticks.forEach((tick, n) => {
    const { left, right } = places[n];
    const leavesLast = n === 0 || n === last || right + TICK_GAP <= places[last].left;
    const fits = left >= until && leavesLast;
    tick.classList.toggle("hidden", !fits);
    tick.style.left = `${(100 * left) / axisWidth}%`;
    if (fits) until = right + TICK_GAP;
  });
}

function legend() {
  const entries = LEGEND.map(([className, text]) => el("li", "", el("i", className), text));
  const critical = el("li", "", el("b", "mark", "\u25C6"), "on the critical path");
  return el("ul", "legend", ...entries, critical);
}

// --- rows

// Groups of more than `MAX_SIBLINGS` handoffs with one kind and one state. A handoff with a lost
// claim or a child job is in no group.
function equalBarsOf(job) {
  const groups = [];
  for (const bars of kindsOf(job.bars)) {
    const byState = new Map();
    for (const bar of bars) {
      const isPlain = !bar.lost_claims && !bar.child;
      const key = isPlain ? bar.state : bar.handoff_id;
      if (!byState.has(key)) byState.set(key, []);
      byState.get(key).push(bar);
    }
    groups.push(...byState.values());
  }
  return groups.filter((bars) => bars.length > MAX_SIBLINGS);
}

// The periods in which a process worked on one of the handoffs: [from, to], without overlaps.
function mergedPeriodsOf(job, bars) {
  const merged = [];
  for (const [from, to] of claimedPeriodsOf(job, bars)) {
    const last = merged.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else merged.push([from, to]);
  }
  return merged;
}

// The repeated step if all handoffs are of its copies, or else the specialist.
function commonName(bars) {
  const names = new Set(bars.map((bar) => bar.step_id.replace(/_\d{4,}$/, "")));
  return names.size === 1 ? [...names][0] : bars[0].agent;
}

function groupTrack(job, bars) {
  const track = el("span", "track");
  const begun = Math.min(...bars.map((bar) => beginOf(job, bar)));
  const issued = Math.min(...bars.map((bar) => bar.issued_at));
  if (begun > issued) track.append(piece("waited", issued, begun));
  for (const [from, to] of mergedPeriodsOf(job, bars)) {
    track.append(piece(`worked ${bars[0].state}`, from, to));
  }
  return track;
}

// A row in place of equal rows. A click shows and hides the equal rows.
function groupOf(job, bars, rows) {
  const { state, agent } = bars[0];
  const name = commonName(bars);
  const text = `${name} \u00d7 ${bars.length}`;
  const suffix = el("span", "agent", ` ${state}${agent === name ? "" : ` ${agent}`}`);
  const label = el("span", "label", el("span", "begin", text), suffix);
  const button = el("button", "", label, groupTrack(job, bars));
  button.type = "button";
  button.title = `${text}, ${state}: ${bars[0].handoff_id} to ${bars.at(-1).handoff_id}`;
  button.setAttribute("aria-label", `${button.title}: equal rows`);
  button.setAttribute("aria-expanded", "false");
  button.addEventListener("click", () => {
    const opens = button.getAttribute("aria-expanded") === "false";
    button.setAttribute("aria-expanded", String(opens));
    for (const row of rows) row.classList.toggle("folded", !opens);
  });
  const isCritical = bars.some((bar) => bar.is_critical);
  return el("div", isCritical ? "row group critical" : "row group", button);
}

function addRows(parent, job) {
  const rows = new Map(job.bars.map((bar) => [bar.handoff_id, rowOf(job, bar)]));
  const groups = new Map(); // first handoff of a group -> its handoffs
  const grouped = new Set();
  for (const bars of equalBarsOf(job)) {
    groups.set(bars[0].handoff_id, bars);
    for (const bar of bars) grouped.add(bar.handoff_id);
  }
  for (const bar of job.bars) {
    const bars = groups.get(bar.handoff_id);
    if (bars) addGroup(parent, job, bars, rows);
    else if (!grouped.has(bar.handoff_id)) parent.append(rows.get(bar.handoff_id));
  }
}

function addGroup(parent, job, bars, rows) {
  const members = bars.map((bar) => rows.get(bar.handoff_id));
  const head = groupOf(job, bars, members);
  for (const row of members) {
    row.classList.add("folded");
    row.opensGroup = () => {
      if (row.classList.contains("folded")) head.querySelector("button").click();
    };
  }
  parent.append(head, ...members);
}

// Open the row of a handoff, and scroll to it.
function show(job, bar) {
  const row = document.getElementById(`${job.id}/${bar.handoff_id}`);
  const button = row.querySelector("button");
  row.opensGroup?.();
  if (!row.querySelector(".detail")) button.click();
  button.focus({ preventScroll: true });
  row.scrollIntoView({ block: "center" });
}

// --- the whole

// A timeline with its legend and its controls.
function timelineOf(job) {
  const axis = el("div", "axis");
  const area = el("div", "timeline", axis);
  area.tabIndex = 0;
  area.setAttribute("role", "group");
  area.setAttribute("aria-label", "Timeline");
  addRows(area, job);
  const hidesIdle = el("input");
  hidesIdle.type = "checkbox";
  hidesIdle.checked = scaleOf(job, false).squeezes;
  let zoom = 1;
  const draw = () => {
    const scale = scaleOf(job, hidesIdle.checked);
    placePieces(area, scale);
    fillAxis(axis, job, scale, zoom);
  };
  const zoomTo = (factor) => {
    zoom = factor;
    draw();
  };
  hidesIdle.addEventListener("change", draw);
  new ResizeObserver(() => placeTicks(axis)).observe(axis);
  draw();
  const controls = el("div", "controls", zoomOf(area, zoomTo));
  const hasPauses = pausesOf(job).some(([, , isBusy]) => !isBusy);
  if (hasPauses) controls.append(el("label", "", hidesIdle, "hide idle time"));
  return el("div", "", controls, legend(), area);
}

// Buttons that change the width of a timeline and keep its middle in place. `changed` is called
// with the new zoom.
function zoomOf(area, changed) {
  let level = 0;
  const shown = el("output", "", "1\u00d7");
  const setLevel = (wanted) => {
    const middle = (area.scrollLeft + area.clientWidth / 2) / area.scrollWidth;
    level = Math.max(0, Math.min(ZOOMS.length - 1, wanted));
    const zoom = ZOOMS[level];
    area.style.setProperty("--zoom", zoom);
    area.scrollLeft = middle * area.scrollWidth - area.clientWidth / 2;
    shown.textContent = `${zoom}\u00d7`;
    changed(zoom);
  };
  const button = (text, name, act) => {
    const element = el("button", "", text);
    element.type = "button";
    element.setAttribute("aria-label", name);
    element.addEventListener("click", act);
    return element;
  };
  const out = button("\u2212", "Zoom out", () => setLevel(level - 1));
  const closer = button("+", "Zoom in", () => setLevel(level + 1));
  const whole = button("Whole", "Show the whole time", () => setLevel(0));
  return el("span", "zoom", out, shown, closer, whole);
}
