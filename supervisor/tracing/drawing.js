"use strict";
// Draws the handoffs of jobs: rows, graph and tables. Another page with the same data can use it.
// Texts of models, tools and the web are set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const MOST_SIBLINGS = 8; // most handoffs of one kind with a box each in the graph; more become one box
const LONG_TEXT = 40; // characters; a column with a longer text may break its lines
const END = 10; // last characters of a name, which are always shown: they hold the number of a copy
const MOST_OF_A_BOX = 25; // most characters in a box of the graph
const WORDS = new Map(); // row -> the texts that the search looks in

function el(tag, className, ...inside) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (tag === "pre") made.tabIndex = 0; // a long text scrolls, also with the keyboard
  made.append(...inside.filter((node) => node !== null && node !== undefined).map((node) => (node instanceof Node ? node : String(node))));
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
// Four decimals, or up to six for two significant digits, as on the command line.
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

// --- a handoff

const PLANNED = { "not begun": "planned", "given up": "stopped", skipped: "stopped", failed: "failed", kept: "ok" }; // looks of a step without a handoff
const isPlanned = (bar) => bar.handoff_id.startsWith("plan/");
const idOf = (bar) => (isPlanned(bar) ? bar.step_id : bar.handoff_id);
const nameOf = (bar) => `${idOf(bar)} ${bar.who === bar.step_id ? "" : bar.who}`.trim();

// The name of a handoff. If there is no room, the middle of the id is left out.
function labelOf(bar) {
  const [id, who] = [bar.handoff_id, bar.who === bar.step_id ? "" : ` ${bar.who}`];
  return el("span", "label", el("span", "begin", id.slice(0, -END)), el("span", "end", id.slice(-END)), el("span", "who", who));
}

// A part of a bar. `placePieces` sets its place and width.
function piece(className, from, to) {
  const made = el("i", className);
  [made.dataset.from, made.dataset.to] = [from, to];
  return made;
}

// The times of a handoff: [from, to, "worked" | "lost" | "waited"]. "lost": the process was lost.
function spellsOf(job, bar) {
  const end = bar.ended_at ?? job.ends_at;
  return bar.past_claims.flatMap((claim, n) => {
    const until = claim.ended_at ?? end;
    const had = [claim.began_at, until, claim.left === "lost" ? "lost" : "worked"];
    const next = bar.past_claims[n + 1]?.began_at ?? end;
    return claim.left && next > until ? [had, [until, next, "waited"]] : [had];
  });
}

const workedOf = (job, bar) => spellsOf(job, bar).reduce((sum, [from, to, what]) => sum + (what === "waited" ? 0 : to - from), 0);
const lossOf = (bar) => (bar.lost_claims ? `${counted(bar.lost_claims, "process")} ${bar.lost_claims === 1 ? "was" : "were"} lost` : "");
const LEFT = { lost: "lost", released: "handed it back", deferred: "waited for its provider", paused: "its role was paused", asked: "asked a person about a tool call" };

// Each claim that ended without a result: the worker, how long, why it ended, and the wait after it.
function beforeOf(job, bar) {
  const end = bar.ended_at ?? job.ends_at;
  return bar.past_claims.map((claim, n) => claim.left && `${claim.worker}: ${seconds(claim.ended_at - claim.began_at)}, ${LEFT[claim.left] ?? claim.left}; then nobody for ${
    seconds(Math.max(0, (bar.past_claims[n + 1]?.began_at ?? end) - claim.ended_at))}`).filter(Boolean).join("\n");
}

function claimsOf(bar) {
  if (bar.lost_claims) return `${bar.past_claims.length}: ${lossOf(bar)}`;
  return bar.claims > 1 ? `${bar.claims}: a process was lost` : ""; // a record of a version without `lost_claims`
}

function rowOf(job, bar) {
  const track = el("span", "track");
  const begun = bar.began_at ?? bar.ended_at ?? job.ends_at;
  if (begun > bar.issued_at) track.append(piece("waited", bar.issued_at, begun));
  for (const [from, to, what] of spellsOf(job, bar)) track.append(piece(what === "worked" ? `worked ${bar.state}` : what, from, to));
  const button = el("button", "", labelOf(bar), track);
  button.type = "button";
  button.setAttribute("aria-expanded", "false");
  button.setAttribute("aria-label", `${nameOf(bar)}, ${bar.state}${bar.lost_claims ? `, ${lossOf(bar)}` : ""}${bar.is_critical ? ", on the critical path" : ""}`);
  button.title = `${nameOf(bar)}: ${bar.state}${bar.lost_claims ? `, ${lossOf(bar)}` : ""}`;
  const row = el("div", bar.is_critical ? "row critical" : "row", button);
  row.id = `${job.id}/${bar.handoff_id}`;
  const names = [bar.handoff_id, bar.who, bar.state, bar.worker, ...bar.past_claims.map((claim) => claim.worker), lossOf(bar), bar.model ?? ""].join(" ").toLowerCase();
  WORDS.set(row, { names, all: once(() => `${names} ${JSON.parse(job.payloads[bar.payload]).task_description.toLowerCase()}`) });
  button.addEventListener("click", () => {
    const open = row.querySelector(".detail");
    const append = () => { if (button.getAttribute("aria-expanded") === "true") row.append(detailOf(job, bar)); };
    if (open) open.remove(); else if (job.load) job.load(bar).then(append); // a page without all payloads has `load`
    else row.append(detailOf(job, bar));
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
    Context: job.contexts[bar.handoff_id],
    Claims: claimsOf(bar),
    Before: beforeOf(job, bar),
    After: bar.after.join(", "),
    "Child job": bar.child && bar.child + (job.absent.includes(bar.child) ? ", which is not in this page" : ""),
  }));
  const payload = JSON.parse(job.payloads[bar.payload]);
  made.append(el("strong", "", "Asked"), el("pre", "", payload.task_description));
  for (const note of payload.feedback) made.append(el("div", "soft", `feedback, ${note.author}`), el("pre", "", note.text));
  if (bar.result) {
    const result = JSON.parse(job.payloads[bar.result]);
    made.append(el("strong", "", "Answered"));
    if (result.output !== null) made.append(el("pre", "", asText(result.output)));
    for (const [what, text] of [["error", result.error], ["needs", result.needs], ["notes", result.notes.join("\n")]])
      if (text) made.append(el("div", "soft", what), el("pre", "", text));
    if (result.claims.length) made.append(folded(counted(result.claims.length, "claim"), (into) => into.append(table(result.claims.map((claim) => ({
      id: claim.id, claim: claim.text, sources: claim.sources.map((source) => `${source.source}: \u201c${source.quote}\u201d`).join("\n"),
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
  for (const checkpoint of checkpoints) {
    if (checkpoint.kind === "replied") {
      turn += 1;
      into.append(el("div", "soft", `turn ${turn}: ${checkpoint.model}, ${figure(checkpoint.usage.input_tokens)} tokens in${checkpoint.usage.cache_read_tokens ? ` (${figure(checkpoint.usage.cache_read_tokens)} cached)` : ""}, ${figure(checkpoint.usage.output_tokens)} out, ${checkpoint.stop_reason}`));
      for (const block of checkpoint.content) into.append(el("pre", "", block.type === "text" ? block.text : block.type === "tool_use" ? `${block.name} ${asText(block.input)}` : asText(block)));
    } else if (checkpoint.kind === "observed") into.append(el("div", checkpoint.is_error ? "failed" : "soft", checkpoint.is_error ? "tool: error" : "tool"), el("pre", "", checkpoint.text));
    else if (checkpoint.kind === "user_prompted") into.append(el("div", "soft", `said at turn ${turn + 1}`), el("pre", "", checkpoint.text));
    else if (checkpoint.kind === "cleared") into.append(el("div", "soft", `before turn ${turn + 1}: ${counted(checkpoint.tool_use_ids.length, "result")} cleared, about ${figure(checkpoint.tokens)} tokens`));
    else if (checkpoint.kind === "compacted") into.append(el("div", "soft", `before turn ${turn + 1}: a summary replaced the earlier turns, about ${figure(checkpoint.tokens)} tokens`), el("pre", "", checkpoint.summary));
    else if (checkpoint.kind === "prompted") into.append(el("div", "soft", "told"), el("pre", "", checkpoint.text));
    else if (checkpoint.kind === "call_failed") { turn += 1; into.append(el("div", "failed", `turn ${turn}: the call failed`), el("pre", "", checkpoint.error)); }
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
  const head = el("tr", "", ...names.map((name) => Object.assign(el("th", kind(name), name), { scope: "col" })));
  const body = rows.map((row) => el("tr", "", ...names.map((name) => el("td", kind(name), cell(row, name)))));
  return el("div", "scroll", el("table", "", el("thead", "", head), el("tbody", "", ...body)));
}

// --- groups

// Handoffs by kind. Handoffs of one kind have one specialist, and predecessors of the same kinds.
function kindsOf(bars) {
  const [kinds, kindOf, names] = [new Map(), new Map(), new Map()];
  for (const bar of bars) {
    const behind = [...new Set(bar.after.map((id) => kindOf.get(id)))].sort((a, b) => a - b);
    const name = `${bar.who}|${isPlanned(bar) ? bar.state : ""}|${behind.join(" ")}`;
    if (!names.has(name)) names.set(name, names.size);
    kindOf.set(bar.handoff_id, names.get(name));
    if (!kinds.has(name)) kinds.set(name, []);
    kinds.get(name).push(bar);
  }
  return [...kinds.values()];
}

// --- the graph

// The handoffs, and the steps of the plan without a handoff.
function groupsOf(job) {
  const [groups, nodes] = [[], [...job.bars, ...(job.planned ?? [])]];
  for (const bars of kindsOf(nodes)) {
    if (bars.length > MOST_SIBLINGS) groups.push({ bars, text: `${bars[0].who} \u00d7 ${bars.length}` });
    else for (const bar of bars) groups.push({ bars: [bar], text: nameOf(bar) });
  }
  const of = new Map(groups.flatMap((group) => group.bars.map((bar) => [bar.handoff_id, group])));
  for (const group of groups) group.after = [...new Set(group.bars.flatMap((bar) => bar.after).map((id) => of.get(id)).filter(Boolean))];
  return nodes.map((bar) => of.get(bar.handoff_id)).filter((group, n, all) => all.indexOf(group) === n);
}

function shortened(text) {
  return text.length > MOST_OF_A_BOX ? `${text.slice(0, MOST_OF_A_BOX - END - 1)}\u2026${text.slice(-END)}` : text;
}

// `show` is called with the first handoff of a box that was clicked, or that got the key Enter or Space.
// A box of steps without a handoff does nothing.
function graphOf(job, show) {
  const groups = groupsOf(job);
  const [width, height, gapX, gapY] = [176, 30, 56, 14];
  for (const group of groups) group.level = 1 + Math.max(-1, ...group.after.map((before) => before.level ?? -1));
  const filled = new Map();
  for (const group of groups) {
    const place = filled.get(group.level) ?? 0;
    filled.set(group.level, place + 1);
    [group.x, group.y] = [4 + group.level * (width + gapX), 4 + place * (height + gapY)];
    group.isCritical = group.bars.some((bar) => bar.is_critical);
  }
  const [wide, high] = [Math.max(...groups.map((box) => box.x)) + width + 8, Math.max(...groups.map((box) => box.y)) + height + 8];
  const picture = shape("svg", { width: wide, height: high, role: "group", "aria-label": "which handoff came after which" });
  for (const group of groups) for (const before of group.after) {
    const [x1, y1, x2, y2] = [before.x + width, before.y + height / 2, group.x, group.y + height / 2];
    picture.append(shape("path", { class: before.isCritical && group.isCritical ? "edge critical" : "edge", d: `M${x1} ${y1} C${x1 + gapX / 2} ${y1} ${x2 - gapX / 2} ${y2} ${x2} ${y2}` }));
  }
  for (const group of groups) {
    const worst = group.bars.find((bar) => bar.state !== "ok") ?? group.bars[0];
    const label = shortened(group.text.length > MOST_OF_A_BOX && group.bars.length === 1 ? idOf(group.bars[0]) : group.text);
    const description = `${group.text}: ${worst.state}${worst.why ? `, ${worst.why}` : ""}`;
    const [first, look] = [group.bars[0], isPlanned(worst) ? PLANNED[worst.state] : worst.state];
    const use = isPlanned(first) ? { role: "img", "data-step": first.step_id } : { role: "button", tabindex: 0, "data-handoff": first.handoff_id };
    const node = shape("g", { class: `${look}${group.isCritical ? " critical" : ""}`, "aria-label": description, ...use },
      shape("rect", { x: group.x, y: group.y, width, height, rx: 6 }), shape("text", { x: group.x + 8, y: group.y + 19 }, label));
    node.append(shape("title", {}, description));
    picture.append(node);
    if (isPlanned(first)) continue;
    node.addEventListener("click", () => show(first));
    node.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      show(first);
    });
  }
  return el("div", "scroll", picture);
}
