"use strict";
// Draws a job from the block of data in its page. Texts of models, tools and the web are set as text, nowhere as markup.

const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const MOST_SIBLINGS = 8; // of one kind in the graph; more become one box
const LONG_IDLE = 0.25; // of the time in which something ran: a pause this long, for a person's answer say, is drawn short
const SHORT_IDLE = 0.05; // that short
const LONG_TEXT = 40; // characters of a cell that may be broken
const END = 10; // characters of a name that are never left out: its number is there
const MOST_OF_A_BOX = 25; // characters in the graph
const BETWEEN_TICKS = 6; // pixels
const WORDS = new Map(); // by row: what it is found by

function el(tag, className, ...inside) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...inside.filter((one) => one !== null && one !== undefined).map((one) => (one instanceof Node ? one : String(one))));
  return made;
}

function shape(tag, attributes, ...inside) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
}

function seconds(s) {
  if (Math.round(s * 10) < 600) return `${s.toFixed(1)} s`;
  const [whole, minutes] = [Math.round(s), Math.round(s / 60)];
  return whole < 3600 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
const figure = (n) => Number(n).toLocaleString("en");
const counted = (n, word) => `${figure(n)} ${word}${n === 1 ? "" : word.endsWith("s") ? "es" : "s"}`;
// As on the command line: four decimals, or as many as show two digits.
const decimalsOf = (usd) => Math.max(4, Math.min(6, 1 - Math.floor(Math.log10(usd))));
const money = (usd) => (usd === null || usd === undefined ? "price not known" : usd ? `$${usd.toFixed(decimalsOf(usd))}` : "$0");
const clock = (unix) => new Date(unix * 1000).toISOString().replace("T", " ").slice(0, 19);
const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
const isEmpty = (value) => value === null || value === undefined || value === "" || (typeof value === "object" && Object.keys(value).length === 0);

function once(make) {
  let made;
  return () => (made ??= make());
}

function folded(title, fill, open = false) {
  const summary = el("summary", "", title);
  const made = el("details", "", summary);
  made.open = open;
  if (open) fill(made); else summary.addEventListener("click", () => fill(made), { once: true });
  return made;
}

// --- time

function scaleOf(job) {
  const spans = job.bars.map((bar) => [bar.issued_at, bar.ended_at ?? job.ends_at]).sort((a, b) => a[0] - b[0]);
  const pieces = []; // [from, to, isBusy]
  let until = job.begins_at;
  for (const [from, to] of spans) {
    if (from > until) pieces.push([until, from, false]);
    if (to > Math.max(from, until)) pieces.push([Math.max(from, until), to, true]);
    until = Math.max(until, to);
  }
  if (job.ends_at > until) pieces.push([until, job.ends_at, false]);
  const busy = pieces.reduce((sum, [from, to, isBusy]) => sum + (isBusy ? to - from : 0), 0) || 1;
  const widths = pieces.map(([from, to, isBusy]) => (isBusy || to - from <= busy * LONG_IDLE ? to - from : busy * SHORT_IDLE));
  const whole = widths.reduce((sum, width) => sum + width, 0) || 1;
  const starts = [];
  widths.reduce((sum, width) => { starts.push(sum); return sum + width; }, 0);
  const isFolded = pieces.some(([from, to], n) => to - from > widths[n] + 1e-9);
  const at = (time) => {
    let [n, last] = [0, pieces.length];
    while (n < last) { // the first piece that has not ended by then
      const middle = (n + last) >> 1;
      if (pieces[middle][1] < time) n = middle + 1; else last = middle;
    }
    if (n === pieces.length) return 100;
    const [from, to] = pieces[n];
    const part = to > from ? Math.max(0, (time - from) / (to - from)) : 0;
    return ((starts[n] + part * widths[n]) / whole) * 100;
  };
  return { at, isFolded };
}

function axis(job, scale) {
  const made = el("div", "axis");
  const whole = job.ends_at - job.begins_at;
  for (let n = 0; n <= 5; n += 1) {
    const time = job.begins_at + (whole * n) / 5;
    const tick = el("span", "", seconds(time - job.begins_at));
    tick.dataset.at = scale.at(time);
    made.append(tick);
  }
  new ResizeObserver(() => placeTicks(made)).observe(made);
  return made;
}

// Each below its time, but inside of the axis, and none over another one: the first and the last are always there.
function placeTicks(axis) {
  const ticks = [...axis.children];
  for (const tick of ticks) tick.classList.remove("hidden");
  const places = ticks.map((tick) => {
    const width = tick.offsetWidth;
    const left = Math.max(0, Math.min(axis.clientWidth - width, (tick.dataset.at / 100) * axis.clientWidth - width / 2));
    return [left, left + width];
  });
  let until = -Infinity;
  ticks.forEach((tick, n) => {
    const fits = places[n][0] >= until && (n === 0 || n === ticks.length - 1 || places[n][1] + BETWEEN_TICKS <= places[ticks.length - 1][0]);
    tick.classList.toggle("hidden", !fits);
    tick.style.left = `${places[n][0]}px`;
    if (fits) until = places[n][1] + BETWEEN_TICKS;
  });
}

// --- a handoff

const nameOf = (bar) => `${bar.handoff_id} ${bar.who === bar.step_id ? "" : bar.who}`.trim();

// Where there is no room, its middle is left out.
function labelOf(bar) {
  const [id, who] = [bar.handoff_id, bar.who === bar.step_id ? "" : ` ${bar.who}`];
  return el("span", "label", el("span", "begin", id.slice(0, -END)), el("span", "end", id.slice(-END)), el("span", "who", who));
}

function piece(className, scale, from, to) {
  const made = el("i", className);
  made.style.left = `${scale.at(from)}%`;
  made.style.width = `${Math.max(0, scale.at(to) - scale.at(from))}%`;
  return made;
}

// When a process had it, when one that was lost, and when nobody: [from, to, what].
function spellsOf(job, bar) {
  const end = bar.ended_at ?? job.ends_at;
  return bar.stints.flatMap((one, n) => {
    const until = one.ended_at ?? end;
    const had = [one.began_at, until, one.left === "lost" ? "lost" : "worked"];
    const next = bar.stints[n + 1]?.began_at ?? end;
    return one.left && next > until ? [had, [until, next, "waited"]] : [had];
  });
}

const workedOf = (job, bar) => spellsOf(job, bar).reduce((sum, [from, to, what]) => sum + (what === "waited" ? 0 : to - from), 0);
const lossOf = (bar) => (bar.lost_claims ? `${counted(bar.lost_claims, "process")} ${bar.lost_claims === 1 ? "was" : "were"} lost` : "");
const LEFT = { lost: "lost", back: "handed it back", parked: "waited for its provider", held: "its role was paused" };

// Who had it before, and what came of that.
function beforeOf(job, bar) {
  const end = bar.ended_at ?? job.ends_at;
  return bar.stints.map((one, n) => one.left && `${one.worker}: ${seconds(one.ended_at - one.began_at)}, ${LEFT[one.left] ?? one.left}; then nobody for ${
    seconds(Math.max(0, (bar.stints[n + 1]?.began_at ?? end) - one.ended_at))}`).filter(Boolean).join("\n");
}

function claimsOf(bar) {
  if (bar.lost_claims) return `${bar.stints.length}: ${lossOf(bar)}`;
  return bar.claims > 1 ? `${bar.claims}: a process was lost` : ""; // of a version that did not count them
}

function rowOf(job, bar, scale) {
  const track = el("span", "track");
  const begun = bar.began_at ?? bar.ended_at ?? job.ends_at;
  if (begun > bar.issued_at) track.append(piece("waited", scale, bar.issued_at, begun));
  for (const [from, to, what] of spellsOf(job, bar)) track.append(piece(what === "worked" ? `worked ${bar.state}` : what, scale, from, to));
  const button = el("button", "", labelOf(bar), track);
  button.type = "button";
  button.setAttribute("aria-expanded", "false");
  button.setAttribute("aria-label", `${nameOf(bar)}, ${bar.state}${bar.lost_claims ? `, ${lossOf(bar)}` : ""}${bar.is_critical ? ", on the critical path" : ""}`);
  button.title = `${nameOf(bar)}: ${bar.state}${bar.lost_claims ? `, ${lossOf(bar)}` : ""}`;
  const row = el("div", bar.is_critical ? "row critical" : "row", button);
  row.id = `${job.id}/${bar.handoff_id}`;
  const names = [bar.handoff_id, bar.who, bar.state, bar.worker, ...bar.stints.map((one) => one.worker), lossOf(bar), bar.model ?? ""].join(" ").toLowerCase();
  WORDS.set(row, { names, all: once(() => `${names} ${JSON.parse(job.payloads[bar.payload]).task_description.toLowerCase()}`) });
  button.addEventListener("click", () => {
    const open = row.querySelector(".detail");
    if (open) open.remove(); else row.append(detailOf(job, bar));
    button.setAttribute("aria-expanded", String(!open));
  });
  return row;
}

function detailOf(job, bar) {
  const made = el("div", "detail");
  made.append(facts({
    State: bar.state + (bar.stop_reason && bar.stop_reason !== "finished" ? `, ${bar.stop_reason}` : ""),
    Waited: seconds(Math.max(0, (bar.began_at ?? bar.ended_at ?? job.ends_at) - bar.issued_at)),
    Worked: bar.began_at === null ? "not yet" : seconds(workedOf(job, bar)),
    Turns: bar.turns,
    Tokens: (bar.at_most ? "at most " : "") + figure(bar.tokens),
    Cost: (bar.at_most ? "at most " : "") + money(bar.usd),
    Worker: bar.worker || "nobody yet",
    Model: bar.model ?? "",
    Claims: claimsOf(bar),
    Before: beforeOf(job, bar),
    After: bar.after.join(", "),
    "Child job": bar.child && bar.child + (DATA.absent.includes(bar.child) ? ", which is not in this page" : ""),
  }));
  const payload = JSON.parse(job.payloads[bar.payload]);
  made.append(el("strong", "", "Asked"), el("pre", "", payload.task_description));
  for (const one of payload.feedback) made.append(el("div", "soft", `feedback, ${one.author}`), el("pre", "", one.text));
  if (bar.result) {
    const result = JSON.parse(job.payloads[bar.result]);
    made.append(el("strong", "", "Answered"));
    if (result.output !== null) made.append(el("pre", "", asText(result.output)));
    for (const [what, said] of [["error", result.error], ["needs", result.needs], ["notes", result.notes.join("\n")]])
      if (said) made.append(el("div", "soft", what), el("pre", "", said));
    if (result.claims.length) made.append(folded(counted(result.claims.length, "claim"), (into) => into.append(table(result.claims.map((one) => ({
      id: one.id, claim: one.text, sources: one.sources.map((source) => `${source.source}: \u201c${source.quote}\u201d`).join("\n"),
    }))))));
    made.append(folded("Result as JSON", (into) => into.append(el("pre", "", asText(result)))));
  }
  made.append(folded("Handoff as JSON", (into) => into.append(el("pre", "", asText(payload)))));
  const turns = job.turns[bar.handoff_id];
  if (turns) made.append(folded(`${counted(bar.turns, "turn")} with ${bar.turns === 1 ? "its" : "their"} tool calls`, (into) => turnsInto(into, turns)));
  return made;
}

function turnsInto(into, checkpoints) {
  let turn = 0;
  for (const one of checkpoints) {
    if (one.kind === "replied") {
      turn += 1;
      into.append(el("div", "soft", `turn ${turn}: ${one.model}, ${figure(one.usage.input_tokens)} tokens in, ${figure(one.usage.output_tokens)} out, ${one.stop_reason}`));
      for (const block of one.content) into.append(el("pre", "", block.type === "text" ? block.text : block.type === "tool_use" ? `${block.name} ${asText(block.input)}` : asText(block)));
    } else if (one.kind === "observed") into.append(el("div", one.is_error ? "failed" : "soft", one.is_error ? "tool: error" : "tool"), el("pre", "", one.text));
    else if (one.kind === "prompted") into.append(el("div", "soft", "told"), el("pre", "", one.text));
    else if (one.kind === "call_failed") { turn += 1; into.append(el("div", "failed", `turn ${turn}: the call failed`), el("pre", "", one.error)); }
  }
}

// --- tables and facts

function facts(pairs) {
  const made = el("dl", "facts");
  for (const [name, value] of Object.entries(pairs)) if (!isEmpty(value)) made.append(el("div", "", el("dt", "", name), el("dd", "", value)));
  return made;
}

function table(rows) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const isNumber = (name) => rows.every((row) => typeof row[name] === "number" || isEmpty(row[name]));
  const kind = (name) => (isNumber(name) ? "number" : rows.some((row) => asText(row[name] ?? "").length > LONG_TEXT) ? "text" : "");
  const cell = (row, name) => (isEmpty(row[name]) ? "" : typeof row[name] === "number" ? figure(row[name]) : asText(row[name]));
  const head = el("tr", "", ...names.map((name) => el("th", kind(name), name)));
  const body = rows.map((row) => el("tr", "", ...names.map((name) => el("td", kind(name), cell(row, name)))));
  return el("div", "scroll", el("table", "", el("thead", "", head), el("tbody", "", ...body)));
}

// --- the graph

function groupsOf(job) {
  // Of one kind are those of one specialist that came after handoffs of the same kinds: of thousands of chains, too, there are few.
  const [kinds, kindOf, names] = [new Map(), new Map(), new Map()];
  for (const bar of job.bars) {
    const behind = [...new Set(bar.after.map((id) => kindOf.get(id)))].sort((a, b) => a - b);
    const name = `${bar.who}|${behind.join(" ")}`;
    if (!names.has(name)) names.set(name, names.size);
    kindOf.set(bar.handoff_id, names.get(name));
    if (!kinds.has(name)) kinds.set(name, []);
    kinds.get(name).push(bar);
  }
  const groups = [];
  for (const bars of kinds.values()) {
    if (bars.length > MOST_SIBLINGS) groups.push({ bars, text: `${bars[0].who} \u00d7 ${bars.length}` });
    else for (const bar of bars) groups.push({ bars: [bar], text: nameOf(bar) });
  }
  const of = new Map(groups.flatMap((group) => group.bars.map((bar) => [bar.handoff_id, group])));
  for (const group of groups) group.after = [...new Set(group.bars.flatMap((bar) => bar.after).map((id) => of.get(id)).filter(Boolean))];
  return job.bars.map((bar) => of.get(bar.handoff_id)).filter((group, n, all) => all.indexOf(group) === n);
}

function shortened(text) {
  return text.length > MOST_OF_A_BOX ? `${text.slice(0, MOST_OF_A_BOX - END - 1)}\u2026${text.slice(-END)}` : text;
}

function graphOf(job) {
  const groups = groupsOf(job);
  const [width, height, gapX, gapY] = [176, 30, 56, 14];
  for (const group of groups) group.level = 1 + Math.max(-1, ...group.after.map((one) => one.level ?? -1));
  const filled = new Map();
  for (const group of groups) {
    const place = filled.get(group.level) ?? 0;
    filled.set(group.level, place + 1);
    [group.x, group.y] = [4 + group.level * (width + gapX), 4 + place * (height + gapY)];
    group.isCritical = group.bars.some((bar) => bar.is_critical);
  }
  const [wide, high] = [Math.max(...groups.map((one) => one.x)) + width + 8, Math.max(...groups.map((one) => one.y)) + height + 8];
  const picture = shape("svg", { width: wide, height: high, role: "img", "aria-label": "which handoff came after which" });
  for (const group of groups) for (const one of group.after) {
    const [x1, y1, x2, y2] = [one.x + width, one.y + height / 2, group.x, group.y + height / 2];
    picture.append(shape("path", { class: one.isCritical && group.isCritical ? "edge critical" : "edge", d: `M${x1} ${y1} C${x1 + gapX / 2} ${y1} ${x2 - gapX / 2} ${y2} ${x2} ${y2}` }));
  }
  for (const group of groups) {
    const worst = group.bars.find((bar) => bar.state !== "ok") ?? group.bars[0];
    const label = shortened(group.text.length > MOST_OF_A_BOX && group.bars.length === 1 ? group.bars[0].handoff_id : group.text);
    const node = shape("g", { class: `${worst.state}${group.isCritical ? " critical" : ""}` },
      shape("rect", { x: group.x, y: group.y, width, height, rx: 6 }), shape("text", { x: group.x + 8, y: group.y + 19 }, label));
    node.append(shape("title", {}, `${group.text}: ${worst.state}`));
    node.addEventListener("click", () => show(job, group.bars[0]));
    picture.append(node);
  }
  return el("div", "scroll", picture);
}

function show(job, bar) {
  const row = document.getElementById(`${job.id}/${bar.handoff_id}`);
  if (!row.querySelector(".detail")) row.querySelector("button").click();
  row.scrollIntoView({ block: "center" });
}

// --- a job

// What of it is known: nothing, before there were jobs to tell from; and no cost, of a model without a price.
function quoteOf(quote) {
  const known = [quote?.cost && money(quote.cost.likely_usd), quote?.time && seconds(quote.time.likely_s)].filter(Boolean);
  return known.length ? `likely ${known.join(", ")}` : "";
}

function headOf(job) {
  const usage = job.usage;
  const chain = job.bars.filter((bar) => bar.is_critical);
  const busy = chain.reduce((sum, bar) => sum + workedOf(job, bar), 0);
  const wall = job.ends_at - job.begins_at;
  return facts({
    Wall: seconds(wall) + (job.is_over ? "" : " so far"),
    "Critical path": chain.length ? `${seconds(busy)} of work in ${counted(chain.length, "handoff")}` : "",
    Turns: figure(usage.turns ?? 0),
    Tokens: (usage.cut?.calls ? "at most " : "") + figure((usage.input_tokens ?? 0) + (usage.output_tokens ?? 0)),
    Cost: (usage.cut?.calls ? "at most " : "") + money(usage.cost_usd),
    Quote: quoteOf(job.quote),
    Mode: job.mode,
    Begun: `${clock(job.begins_at)} UTC`,
  });
}

function jobInto(into, job, isFirst) {
  const scale = scaleOf(job);
  const made = el("section", "");
  if (!isFirst) made.append(el("h2", "", `${job.id} `, el("span", `pill ${job.status}`, job.status), ` ${job.title}`), headOf(job));
  made.append(el("h2", "", "Timeline"));
  if (scale.isFolded) made.append(el("div", "soft", "Long pauses, in which nothing was in the air, are drawn short."));
  made.append(axis(job, scale), ...job.bars.map((bar) => rowOf(job, bar, scale)));
  if (job.bars.length) made.append(folded("Graph", (to) => to.append(graphOf(job)), job.bars.length <= 60));
  made.append(folded("Specialists", (to) => to.append(table(job.specialists.map((one) => ({
    specialist: one.who, handoffs: one.handoffs, turns: one.turns, tokens: one.at_most ? `at most ${figure(one.tokens)}` : one.tokens, cost: (one.at_most ? "at most " : "") + money(one.usd),
    worked: seconds(one.busy_s), waited: seconds(one.waited_s),
  })))), isFirst));
  if (!isEmpty(job.answer)) made.append(folded("Answer", (to) => to.append(el("pre", "answer", asText(job.answer))), isFirst));
  for (const [name, said] of Object.entries(job.told)) {
    if (isEmpty(said)) continue;
    const isTable = Array.isArray(said) && said.every((one) => typeof one === "object");
    made.append(folded(`${name[0].toUpperCase()}${name.slice(1)}${Array.isArray(said) ? ` (${said.length})` : ""}`, (to) =>
      to.append(isTable ? table(said) : el("pre", "", Array.isArray(said) ? said.join("\n") : asText(said)))));
  }
  made.append(folded(`Events (${job.story.length})`, (to) => to.append(table(job.story.map(([at, text]) => ({ after: seconds(at - job.begins_at), what: text }))))));
  into.append(made);
}

// To the parts of the first job, which may stand far below its rows, and to each job below it.
function linksTo(sections) {
  const [first, ...below] = sections;
  const parts = [...first.children].filter((one) => one.matches("h2, details")).map((one) => [one, (one.querySelector("summary") ?? one).textContent]);
  const links = [...parts, ...below.map((section) => [section.querySelector("h2"), section.querySelector("h2").firstChild.textContent.trim()])];
  return el("div", "links", ...links.map(([place, text], n) => {
    place.id = `part-${n}`;
    const link = el("a", "", text);
    link.href = `#${place.id}`;
    link.addEventListener("click", (event) => {
      event.preventDefault();
      if (place.matches("details:not([open])")) place.querySelector("summary").click();
      place.scrollIntoView();
    });
    return link;
  }));
}

function tools() {
  const search = el("input");
  search.type = "search";
  search.placeholder = "Find a step, specialist, state, worker or task";
  search.setAttribute("aria-label", search.placeholder);
  const only = el("input");
  only.type = "checkbox";
  const filter = () => {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const has = (text) => wanted.every((word) => text.includes(word));
    const rows = [...WORDS.keys()];
    const named = rows.filter((row) => has(WORDS.get(row).names)); // a task may name all things that others are about
    const found = new Set(named.length ? named : rows.filter((row) => has(WORDS.get(row).all())));
    for (const row of rows) row.classList.toggle("hidden", !found.has(row) || (only.checked && !row.classList.contains("critical")));
  };
  search.addEventListener("input", filter);
  only.addEventListener("change", filter);
  document.getElementById("tools").append(search, el("label", "", only, "critical path"));
}

const FIRST = DATA.jobs[0];
document.getElementById("head").append(
  el("h1", "", `${FIRST.title} `, el("span", `pill ${FIRST.status}`, FIRST.status)),
  el("div", "soft mono", `${FIRST.id}, as of ${clock(DATA.at)} UTC, ${DATA.made_by}`), headOf(FIRST),
  ...(DATA.absent.length ? [el("div", "soft", `Not in this page: ${counted(DATA.absent.length, "child job")} of it.`)] : []));
tools();
DATA.jobs.forEach((job, n) => jobInto(document.getElementById("jobs"), job, n === 0));
document.getElementById("tools").append(linksTo([...document.querySelectorAll("#jobs > section")]));
const belowTools = () => document.documentElement.style.setProperty("--tools", `${document.getElementById("tools").offsetHeight}px`);
new ResizeObserver(belowTools).observe(document.getElementById("tools"));
