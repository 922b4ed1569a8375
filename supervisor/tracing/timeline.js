// The timeline of a job: a row for each handoff on one axis of time, a zoom and a legend.
// Equal rows are folded, and pauses can be drawn short.

const SHORT_IDLE = 0.05; // the width of a short pause, as a part of the time in which a process worked
const MOST_IDLE = 0.3; // the width of all short pauses together, as a part of that time
const BETWEEN_TICKS = 6; // least pixels between two ticks
const TICKS = 5;
const ZOOMS = [1, 2, 4, 8, 16, 32];
const LEGEND = [
  ["worked ok", "worked, ok"], ["worked partial", "partial, or needs input"], ["worked failed", "failed"], ["worked running", "running"],
  ["worked stopped", "given up"], ["waited", "waited"], ["lost", "its process was lost"],
];

// --- time

// The times in which a process worked, and the pauses between them: [from, to, isBusy].
function pausesOf(job) {
  const spans = job.bars.flatMap((bar) => spellsOf(job, bar)).filter(([, , what]) => what !== "waited").sort((a, b) => a[0] - b[0]);
  const pieces = [];
  let until = job.begins_at;
  for (const [from, to] of spans) {
    if (from > until) pieces.push([until, from, false]);
    if (to > Math.max(from, until)) pieces.push([Math.max(from, until), to, true]);
    until = Math.max(until, to);
  }
  if (job.ends_at > until) pieces.push([until, job.ends_at, false]);
  return pieces;
}

// Functions from a time to its place on the axis in percent, and back. `hidesIdle`: draw pauses short.
function scaleOf(job, hidesIdle) {
  const pieces = pausesOf(job);
  const sum = (wanted) => pieces.reduce((all, [from, to, isBusy]) => all + (isBusy === wanted ? to - from : 0), 0);
  const [busy, idle] = [sum(true), sum(false)];
  const pauses = pieces.filter(([, , isBusy]) => !isBusy).length;
  const short = hidesIdle && busy ? Math.min(busy * SHORT_IDLE, (busy * MOST_IDLE) / Math.max(1, pauses)) : Infinity;
  const widths = pieces.map(([from, to, isBusy]) => (isBusy ? to - from : Math.min(to - from, short)));
  const whole = widths.reduce((all, width) => all + width, 0) || 1;
  const starts = [];
  widths.reduce((all, width) => { starts.push(all); return all + width; }, 0);
  const at = (time) => {
    let [n, last] = [0, pieces.length];
    while (n < last) { // find the first piece that ends at this time or later
      const middle = (n + last) >> 1;
      if (pieces[middle][1] < time) n = middle + 1; else last = middle;
    }
    if (n === pieces.length) return 100;
    const [from, to] = pieces[n];
    const part = to > from ? Math.max(0, (time - from) / (to - from)) : 0;
    return ((starts[n] + part * widths[n]) / whole) * 100;
  };
  const timeAt = (percent) => {
    const place = (percent / 100) * whole;
    const n = Math.max(0, starts.findLastIndex((start) => start <= place));
    if (!pieces.length) return job.begins_at;
    const [from, to] = pieces[n];
    return Math.min(to, from + (widths[n] ? ((place - starts[n]) / widths[n]) * (to - from) : 0));
  };
  return { at, timeAt, squeezes: busy > 0 && idle > busy };
}

function placePieces(root, scale) {
  for (const bar of root.querySelectorAll("i[data-from]")) {
    const [left, right] = [scale.at(Number(bar.dataset.from)), scale.at(Number(bar.dataset.to))];
    bar.style.left = `${left}%`;
    bar.style.width = `${Math.max(0, right - left)}%`;
  }
}

// A time below an hour in words, else as 10:00:45: ticks can be seconds apart if pauses are drawn short.
function tickOf(s) {
  if (s < 3600) return seconds(s);
  const whole = Math.round(s);
  const two = (n) => String(n).padStart(2, "0");
  return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
}

function axisInto(axis, job, scale, zoom) {
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

// Put each tick below its time, inside of the axis. Hide ticks that would overlap, but never the first or the last.
function placeTicks(axis) {
  const ticks = [...axis.children];
  const wide = axis.clientWidth;
  if (!wide) return;
  for (const tick of ticks) tick.classList.remove("hidden");
  const places = ticks.map((tick) => {
    const width = tick.offsetWidth;
    const left = Math.max(0, Math.min(wide - width, (tick.dataset.at / 100) * wide - width / 2));
    return [left, left + width];
  });
  let until = -Infinity;
  ticks.forEach((tick, n) => {
    const fits = places[n][0] >= until && (n === 0 || n === ticks.length - 1 || places[n][1] + BETWEEN_TICKS <= places[ticks.length - 1][0]);
    tick.classList.toggle("hidden", !fits);
    tick.style.left = `${(100 * places[n][0]) / wide}%`;
    if (fits) until = places[n][1] + BETWEEN_TICKS;
  });
}

function legend() {
  return el("ul", "legend", ...LEGEND.map(([className, text]) => el("li", "", el("i", className), text)), el("li", "", el("b", "mark", "\u25C6"), "on the critical path"));
}

// --- rows

// Groups of more than `MOST_SIBLINGS` handoffs with one kind and one state. A handoff with a lost claim or a child job is in no group.
function equalOf(job) {
  const large = [];
  for (const bars of kindsOf(job.bars)) {
    const byState = new Map();
    for (const bar of bars) {
      const isPlain = !bar.lost_claims && !bar.child;
      const key = isPlain ? bar.state : bar.handoff_id;
      if (!byState.has(key)) byState.set(key, []);
      byState.get(key).push(bar);
    }
    large.push(...[...byState.values()].filter((some) => some.length > MOST_SIBLINGS));
  }
  return large;
}

function mergedOf(job, bars) {
  const merged = [];
  for (const [from, to] of bars.flatMap((bar) => spellsOf(job, bar)).filter(([, , what]) => what !== "waited").sort((a, b) => a[0] - b[0])) {
    const last = merged.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], to); else merged.push([from, to]);
  }
  return merged;
}

// The repeated step if all handoffs are of its copies, or else the specialist.
function commonName(bars) {
  const names = new Set(bars.map((bar) => bar.step_id.replace(/_\d{4,}$/, "")));
  return names.size === 1 ? [...names][0] : bars[0].who;
}

// A row in place of equal rows. A click shows and hides the equal rows.
function groupOf(job, bars, rows) {
  const track = el("span", "track");
  const begun = Math.min(...bars.map((bar) => bar.began_at ?? bar.ended_at ?? job.ends_at));
  const issued = Math.min(...bars.map((bar) => bar.issued_at));
  if (begun > issued) track.append(piece("waited", issued, begun));
  for (const [from, to] of mergedOf(job, bars)) track.append(piece(`worked ${bars[0].state}`, from, to));
  const text = `${commonName(bars)} \u00d7 ${bars.length}`;
  const about = `${bars[0].handoff_id} to ${bars.at(-1).handoff_id}`;
  const button = el("button", "", el("span", "label", el("span", "begin", text), el("span", "who", ` ${bars[0].state}${bars[0].who === commonName(bars) ? "" : ` ${bars[0].who}`}`)), track);
  button.type = "button";
  button.title = `${text}, ${bars[0].state}: ${about}`;
  button.setAttribute("aria-label", `${button.title}: equal rows`);
  button.setAttribute("aria-expanded", "false");
  button.addEventListener("click", () => {
    const opens = button.getAttribute("aria-expanded") === "false";
    button.setAttribute("aria-expanded", String(opens));
    for (const row of rows) row.classList.toggle("folded", !opens);
  });
  return el("div", bars.some((bar) => bar.is_critical) ? "row group critical" : "row group", button);
}

function rowsInto(into, job) {
  const rows = new Map(job.bars.map((bar) => [bar.handoff_id, rowOf(job, bar)]));
  const groups = new Map(equalOf(job).map((bars) => [bars[0].handoff_id, bars]));
  const grouped = new Set([...groups.values()].flat().map((bar) => bar.handoff_id));
  for (const bar of job.bars) {
    const bars = groups.get(bar.handoff_id);
    if (bars) {
      const members = bars.map((bar) => rows.get(bar.handoff_id));
      const head = groupOf(job, bars, members);
      for (const row of members) {
        row.classList.add("folded");
        row.opensGroup = () => { if (row.classList.contains("folded")) head.querySelector("button").click(); };
      }
      into.append(head, ...members);
    } else if (!grouped.has(bar.handoff_id)) into.append(rows.get(bar.handoff_id));
  }
}

// --- the whole

// A timeline with its legend and its controls.
function timelineOf(job) {
  const axis = el("div", "axis");
  const area = el("div", "timeline", axis);
  area.tabIndex = 0;
  area.setAttribute("role", "group");
  area.setAttribute("aria-label", "Timeline");
  rowsInto(area, job);
  const hides = el("input");
  hides.type = "checkbox";
  hides.checked = scaleOf(job, false).squeezes;
  let zoom = 1;
  const draw = () => {
    const scale = scaleOf(job, hides.checked);
    placePieces(area, scale);
    axisInto(axis, job, scale, zoom);
  };
  const zoomTo = (times) => {
    zoom = times;
    draw();
  };
  hides.addEventListener("change", draw);
  new ResizeObserver(() => placeTicks(axis)).observe(axis);
  draw();
  const hasPauses = pausesOf(job).some(([, , isBusy]) => !isBusy);
  const controls = el("div", "controls", zoomOf(area, zoomTo), hasPauses ? el("label", "", hides, "hide idle time") : null);
  return el("div", "", controls, legend(), area);
}

// Buttons that change the width of a timeline and keep its middle in place. `changed` is called with the new zoom.
function zoomOf(area, changed) {
  let zoom = 0;
  const shown = el("output", "", "1\u00d7");
  const button = (text, name, change) => {
    const made = el("button", "", text);
    made.type = "button";
    made.setAttribute("aria-label", name);
    made.addEventListener("click", () => {
      const middle = (area.scrollLeft + area.clientWidth / 2) / area.scrollWidth;
      zoom = Math.max(0, Math.min(ZOOMS.length - 1, change(zoom)));
      area.style.setProperty("--zoom", ZOOMS[zoom]);
      area.scrollLeft = middle * area.scrollWidth - area.clientWidth / 2;
      shown.textContent = `${ZOOMS[zoom]}\u00d7`;
      changed(ZOOMS[zoom]);
    });
    return made;
  };
  return el("span", "zoom", button("\u2212", "Zoom out", (n) => n - 1), shown, button("+", "Zoom in", (n) => n + 1), button("Whole", "Show the whole time", () => 0));
}
