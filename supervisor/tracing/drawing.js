"use strict";
// Draws the handoffs of jobs: rows, graph and tables. Another page with the same data can use it.
// Texts of models, tools and the web are set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const MAX_SIBLINGS = 8; // most handoffs of one kind with a box each; more become one box
const LONG_TEXT = 40; // characters; a column with a longer text may break its lines
const END_CHARS = 10; // last characters of a name, always shown: they hold the number of a copy
const MAX_BOX_CHARS = 25; // most characters in a box of the graph
const SEARCH_TEXTS = new Map(); // row -> the texts that the search looks in

function el(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (tag === "pre") element.tabIndex = 0; // a long text scrolls, also with the keyboard
  for (const child of children) {
    if (child === null || child === undefined) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

function shape(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// --- figures and texts

function seconds(s) {
  if (Math.round(s * 10) < 600) return `${s.toFixed(1)} s`;
  const whole = Math.round(s);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.round(s / 60);
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const figure = (n) => Number(n).toLocaleString("en");

function counted(n, word) {
  if (n === 1) return `${figure(n)} ${word}`;
  return `${figure(n)} ${word}${word.endsWith("s") ? "es" : "s"}`;
}

// Four decimals, or up to six for two significant digits, as on the command line.
const decimalsOf = (usd) => Math.max(4, Math.min(6, 1 - Math.floor(Math.log10(usd))));

function money(usd) {
  if (usd === null || usd === undefined) return "price not known";
  return usd ? `$${usd.toFixed(decimalsOf(usd))}` : "$0";
}

const clock = (unix) => new Date(unix * 1000).toISOString().replace("T", " ").slice(0, 19);
const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
const capitalized = (text) => text[0].toUpperCase() + text.slice(1);

function isEmpty(value) {
  if (value === null || value === undefined || value === "") return true;
  return typeof value === "object" && Object.keys(value).length === 0;
}

function once(make) {
  let made;
  return () => (made ??= make());
}

// A section that a click opens. `fill(section)` adds its content when it is opened first.
function folded(title, fill, open = false) {
  const summary = el("summary", "", title);
  const section = el("details", "", summary);
  section.open = open;
  if (open) fill(section);
  else summary.addEventListener("click", () => fill(section), { once: true });
  return section;
}

// --- a handoff

// The class of a box for a step without a handoff, by the state of the step.
const PLANNED_CLASSES = {
  "not begun": "planned",
  "given up": "stopped",
  skipped: "stopped",
  failed: "failed",
  kept: "ok",
};
const isPlanned = (bar) => bar.handoff_id.startsWith("plan/");
const idOf = (bar) => (isPlanned(bar) ? bar.step_id : bar.handoff_id);
const agentOf = (bar) => (bar.agent === bar.step_id ? "" : bar.agent);
const nameOf = (bar) => `${idOf(bar)} ${agentOf(bar)}`.trim();
const atMost = (isUpperBound) => (isUpperBound ? "at most " : "");
const costOf = (bar) => atMost(bar.at_most) + money(bar.usd);

// The name of a handoff. If there is no room, the middle of the id is left out.
function labelOf(bar) {
  const id = bar.handoff_id;
  const begin = el("span", "begin", id.slice(0, -END_CHARS));
  const end = el("span", "end", id.slice(-END_CHARS));
  const agent = el("span", "agent", agentOf(bar) && ` ${agentOf(bar)}`);
  return el("span", "label", begin, end, agent);
}

// A part of a bar. `placePieces` sets its place and width.
function piece(className, from, to) {
  const element = el("i", className);
  element.dataset.from = from;
  element.dataset.to = to;
  return element;
}

const endOf = (job, bar) => bar.ended_at ?? job.ends_at;
const beginOf = (job, bar) => bar.began_at ?? endOf(job, bar);

// The time at which the next claim began, or the end of the handoff after the last claim.
const nextBeginOf = (job, bar, n) => bar.past_claims[n + 1]?.began_at ?? endOf(job, bar);

// The periods of a handoff: [from, to, "worked" | "lost" | "waited"]. "lost": the process was lost.
function periodsOf(job, bar) {
  return bar.past_claims.flatMap((claim, n) => {
    const until = claim.ended_at ?? endOf(job, bar);
    const next = nextBeginOf(job, bar, n);
    const claimed = [claim.began_at, until, claim.left === "lost" ? "lost" : "worked"];
    return claim.left && next > until ? [claimed, [until, next, "waited"]] : [claimed];
  });
}

// The periods in which a process had a claim on one of the handoffs, by their begin.
function claimedPeriodsOf(job, bars) {
  return bars
    .flatMap((bar) => periodsOf(job, bar))
    .filter(([, , kind]) => kind !== "waited")
    .sort((a, b) => a[0] - b[0]);
}

function workedOf(job, bar) {
  return claimedPeriodsOf(job, [bar]).reduce((sum, [from, to]) => sum + to - from, 0);
}

// The lost claims in words; "" without a lost claim.
function lossOf(bar) {
  if (!bar.lost_claims) return "";
  return `${counted(bar.lost_claims, "process")} ${bar.lost_claims === 1 ? "was" : "were"} lost`;
}

// Why a claim ended without a result, in words.
const CLAIM_ENDS = {
  lost: "lost",
  released: "handed it back",
  deferred: "waited for its provider",
  paused: "its role was paused",
  asked: "asked a person about a tool call",
};

// A line for each claim that ended without a result: who, how long, why it ended, and the wait.
function beforeOf(job, bar) {
  const lines = [];
  bar.past_claims.forEach((claim, n) => {
    if (!claim.left) return;
    const worked = seconds(claim.ended_at - claim.began_at);
    const waited = seconds(Math.max(0, nextBeginOf(job, bar, n) - claim.ended_at));
    const why = CLAIM_ENDS[claim.left] ?? claim.left;
    lines.push(`${claim.worker}: ${worked}, ${why}; then nobody for ${waited}`);
  });
  return lines.join("\n");
}

function claimsOf(bar) {
  if (bar.lost_claims) return `${bar.past_claims.length}: ${lossOf(bar)}`;
  // a record of a version without `lost_claims`
  return bar.claims > 1 ? `${bar.claims}: a process was lost` : "";
}

function trackOf(job, bar) {
  const track = el("span", "track");
  const begun = beginOf(job, bar);
  if (begun > bar.issued_at) track.append(piece("waited", bar.issued_at, begun));
  for (const [from, to, kind] of periodsOf(job, bar)) {
    track.append(piece(kind === "worked" ? `worked ${bar.state}` : kind, from, to));
  }
  return track;
}

// The texts of a row in which the search looks, in lower case. `all` also has the task.
function searchTextsOf(job, bar) {
  const workers = bar.past_claims.map((claim) => claim.worker);
  const names = [bar.handoff_id, bar.agent, bar.state, bar.worker, ...workers, lossOf(bar)];
  const text = [...names, bar.model ?? ""].join(" ").toLowerCase();
  const task = () => JSON.parse(job.payloads[bar.payload]).task_description.toLowerCase();
  return { names: text, all: once(() => `${text} ${task()}`) };
}

// A row of the timeline. A click on its button shows and hides the details of the handoff.
function rowOf(job, bar) {
  const loss = lossOf(bar) && `, ${lossOf(bar)}`;
  const critical = bar.is_critical ? ", on the critical path" : "";
  const button = el("button", "", labelOf(bar), trackOf(job, bar));
  button.type = "button";
  button.setAttribute("aria-expanded", "false");
  button.setAttribute("aria-label", `${nameOf(bar)}, ${bar.state}${loss}${critical}`);
  button.title = `${nameOf(bar)}: ${bar.state}${loss}`;
  const row = el("div", bar.is_critical ? "row critical" : "row", button);
  row.id = `${job.id}/${bar.handoff_id}`;
  SEARCH_TEXTS.set(row, searchTextsOf(job, bar));
  button.addEventListener("click", () => toggleDetail(job, bar, row, button));
  return row;
}

// Show or hide the details of a row. A page without all payloads loads them first, by `job.load`.
function toggleDetail(job, bar, row, button) {
  const detail = row.querySelector(".detail");
  button.setAttribute("aria-expanded", String(!detail));
  if (detail) {
    detail.remove();
    return;
  }
  if (!job.load) {
    row.append(detailOf(job, bar));
    return;
  }
  job.load(bar).then(() => {
    const isStillOpen = button.getAttribute("aria-expanded") === "true";
    if (isStillOpen) row.append(detailOf(job, bar));
  });
}

function childOf(job, bar) {
  return job.absent.includes(bar.child) ? `${bar.child}, which is not in this page` : bar.child;
}

function factsOf(job, bar) {
  const isUnusualStop = bar.stop_reason && bar.stop_reason !== "finished";
  return facts({
    State: bar.state + (isUnusualStop ? `, ${bar.stop_reason}` : ""),
    Waited: seconds(Math.max(0, beginOf(job, bar) - bar.issued_at)),
    Worked: bar.began_at === null ? "not yet" : seconds(workedOf(job, bar)),
    Turns: bar.turns,
    Tokens: atMost(bar.at_most) + figure(bar.tokens),
    Cost: costOf(bar),
    Worker: bar.worker || "nobody yet",
    Model: bar.model ?? "",
    Context: job.contexts[bar.handoff_id],
    Claims: claimsOf(bar),
    Before: beforeOf(job, bar),
    After: bar.after.join(", "),
    "Child job": bar.child && childOf(job, bar),
  });
}

const NO_TURNS =
  "The messages and tool calls of this handoff are not stored." +
  " Workers keep them with HANDOFF_KEEP_TURNS=true.";

// The details of a handoff: facts, task, answer, and the turns that the store still has.
function detailOf(job, bar) {
  const detail = el("div", "detail", factsOf(job, bar));
  const payload = JSON.parse(job.payloads[bar.payload]);
  detail.append(el("strong", "", "Asked"), el("pre", "", payload.task_description));
  for (const note of payload.feedback) addText(detail, `feedback, ${note.author}`, note.text);
  if (bar.result) addResult(detail, JSON.parse(job.payloads[bar.result]));
  detail.append(foldedJson("Handoff as JSON", payload));
  const checkpoints = job.turns[bar.handoff_id];
  if (checkpoints) {
    const whose = bar.turns === 1 ? "its" : "their";
    const title = `${counted(bar.turns, "turn")} with ${whose} tool calls`;
    detail.append(folded(title, (section) => addTurns(section, checkpoints)));
  } else if (bar.turns && bar.ended_at) {
    detail.append(el("div", "soft", NO_TURNS));
  }
  return detail;
}

const foldedJson = (title, value) =>
  folded(title, (section) => section.append(el("pre", "", asText(value))));

// Add a text with a heading in the style `className`.
function addText(parent, heading, text, className = "soft") {
  parent.append(el("div", className, heading), el("pre", "", text));
}

function addResult(parent, result) {
  parent.append(el("strong", "", "Answered"));
  if (result.output !== null) parent.append(el("pre", "", asText(result.output)));
  if (result.error) addText(parent, "error", result.error);
  if (result.needs) addText(parent, "needs", result.needs);
  const notes = result.notes.join("\n");
  if (notes) addText(parent, "notes", notes);
  if (result.claims.length) {
    const title = counted(result.claims.length, "claim");
    parent.append(folded(title, (section) => section.append(table(result.claims.map(claimRow)))));
  }
  parent.append(foldedJson("Result as JSON", result));
}

function claimRow(claim) {
  const sources = claim.sources.map((source) => `${source.source}: \u201c${source.quote}\u201d`);
  return { id: claim.id, claim: claim.text, sources: sources.join("\n") };
}

// --- turns

function addTurns(parent, checkpoints) {
  let turn = 0;
  for (const checkpoint of checkpoints) {
    if (checkpoint.kind === "replied" || checkpoint.kind === "call_failed") turn += 1;
    addCheckpoint(parent, checkpoint, turn);
  }
}

// Add one checkpoint. `turn`: the number of the turn that ended with it, or that it follows.
function addCheckpoint(parent, checkpoint, turn) {
  const before = `before turn ${turn + 1}`;
  const about = `about ${figure(checkpoint.tokens ?? 0)} tokens`;
  const by = checkpoint.by_provider ? " by the provider" : "";
  switch (checkpoint.kind) {
    case "replied":
      parent.append(el("div", "soft", replyHeading(checkpoint, turn)));
      for (const block of checkpoint.content) parent.append(el("pre", "", blockText(block)));
      break;
    case "observed":
      if (checkpoint.is_error) addText(parent, "tool: error", checkpoint.text, "failed");
      else addText(parent, "tool", checkpoint.text);
      break;
    case "user_prompted":
      addText(parent, `said at turn ${turn + 1}`, checkpoint.text);
      break;
    case "cleared": {
      const results = counted(checkpoint.tool_use_ids.length, "result");
      parent.append(el("div", "soft", `${before}: ${results} cleared${by}, ${about}`));
      break;
    }
    case "compacted": {
      const heading = `${before}: a summary${by} replaced the earlier turns, ${about}`;
      addText(parent, heading, checkpoint.summary);
      break;
    }
    case "prompted":
      addText(parent, "told", checkpoint.text);
      break;
    case "call_failed":
      addText(parent, `turn ${turn}: the call failed`, checkpoint.error, "failed");
      break;
  }
}

function replyHeading(reply, turn) {
  const usage = reply.usage;
  const cached = usage.cache_read_tokens ? ` (${figure(usage.cache_read_tokens)} cached)` : "";
  const input = `${figure(usage.input_tokens)} tokens in${cached}`;
  const output = `${figure(usage.output_tokens)} out`;
  return `turn ${turn}: ${reply.model}, ${input}, ${output}, ${reply.stop_reason}`;
}

function blockText(block) {
  if (block.type === "text") return block.text;
  if (block.type === "compaction") return block.content ?? "";
  if (block.type === "tool_use") return `${block.name} ${asText(block.input)}`;
  return asText(block);
}

// --- tables and facts

function facts(pairs) {
  const list = el("dl", "facts");
  for (const [name, value] of Object.entries(pairs)) {
    if (!isEmpty(value)) list.append(el("div", "", el("dt", "", name), el("dd", "", value)));
  }
  return list;
}

// A table with a column for each name that occurs in a row.
function table(rows) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const classes = new Map(names.map((name) => [name, columnClass(rows.map((row) => row[name]))]));
  const head = el("tr", "");
  for (const name of names) {
    const heading = el("th", classes.get(name), name);
    heading.scope = "col";
    head.append(heading);
  }
  const body = rows.map((row) => {
    const cells = names.map((name) => el("td", classes.get(name), cellText(row[name])));
    return el("tr", "", ...cells);
  });
  return el("div", "scroll", el("table", "", el("thead", "", head), el("tbody", "", ...body)));
}

function columnClass(values) {
  const filled = values.filter((value) => !isEmpty(value));
  if (filled.every((value) => typeof value === "number")) return "number";
  return filled.some((value) => asText(value).length > LONG_TEXT) ? "text" : "";
}

function cellText(value) {
  if (isEmpty(value)) return "";
  return typeof value === "number" ? figure(value) : asText(value);
}

// --- groups

// Handoffs by kind. Handoffs of one kind have one specialist, and predecessors of the same kinds.
function kindsOf(bars) {
  const kinds = new Map(); // key of a kind -> its handoffs
  const numbers = new Map(); // key of a kind -> its number
  const numberOf = new Map(); // id of a handoff -> the number of its kind
  for (const bar of bars) {
    const behind = [...new Set(bar.after.map((id) => numberOf.get(id)))].sort((a, b) => a - b);
    const key = `${bar.agent}|${isPlanned(bar) ? bar.state : ""}|${behind.join(" ")}`;
    if (!kinds.has(key)) {
      kinds.set(key, []);
      numbers.set(key, numbers.size);
    }
    numberOf.set(bar.handoff_id, numbers.get(key));
    kinds.get(key).push(bar);
  }
  return [...kinds.values()];
}

// --- the graph

const BOX_WIDTH = 176; // pixels, as all sizes of the graph
const BOX_HEIGHT = 30;
const GAP_X = 56;
const GAP_Y = 14;
const MARGIN = 4;

// The handoffs, and the steps of the plan without a handoff, as boxes in the order of the handoffs.
// A box has the handoffs `bars`, a `text`, and the boxes `after` whose handoffs come before it.
function groupsOf(job) {
  const nodes = [...job.bars, ...(job.planned ?? [])];
  const groups = [];
  for (const bars of kindsOf(nodes)) {
    if (bars.length > MAX_SIBLINGS) {
      groups.push({ bars, text: `${bars[0].agent} \u00d7 ${bars.length}` });
    } else {
      for (const bar of bars) groups.push({ bars: [bar], text: nameOf(bar) });
    }
  }
  const groupOfId = new Map();
  for (const group of groups) {
    for (const bar of group.bars) groupOfId.set(bar.handoff_id, group);
  }
  for (const group of groups) {
    const before = group.bars.flatMap((bar) => bar.after).map((id) => groupOfId.get(id));
    group.after = [...new Set(before.filter(Boolean))];
  }
  return [...new Set(nodes.map((bar) => groupOfId.get(bar.handoff_id)))];
}

// Give each box its place. The level of a box is one more than the highest level before it.
function placeGroups(groups) {
  const filled = new Map(); // level -> the number of its boxes
  for (const group of groups) {
    group.level = 1 + Math.max(-1, ...group.after.map((before) => before.level ?? -1));
  }
  for (const group of groups) {
    const place = filled.get(group.level) ?? 0;
    filled.set(group.level, place + 1);
    group.x = MARGIN + group.level * (BOX_WIDTH + GAP_X);
    group.y = MARGIN + place * (BOX_HEIGHT + GAP_Y);
    group.isCritical = group.bars.some((bar) => bar.is_critical);
  }
}

function shortened(text) {
  if (text.length <= MAX_BOX_CHARS) return text;
  return `${text.slice(0, MAX_BOX_CHARS - END_CHARS - 1)}\u2026${text.slice(-END_CHARS)}`;
}

function edgeOf(before, group) {
  const [x1, y1] = [before.x + BOX_WIDTH, before.y + BOX_HEIGHT / 2];
  const [x2, y2] = [group.x, group.y + BOX_HEIGHT / 2];
  const bend = GAP_X / 2;
  const isCritical = before.isCritical && group.isCritical;
  return shape("path", {
    class: isCritical ? "edge critical" : "edge",
    d: `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`,
  });
}

function boxOf(group, show) {
  const first = group.bars[0];
  const worst = group.bars.find((bar) => bar.state !== "ok") ?? first;
  const state = isPlanned(worst) ? PLANNED_CLASSES[worst.state] : worst.state;
  const isLongName = group.text.length > MAX_BOX_CHARS && group.bars.length === 1;
  const label = shortened(isLongName ? idOf(first) : group.text);
  const description = `${group.text}: ${worst.state}${worst.why ? `, ${worst.why}` : ""}`;
  const place = { x: group.x, y: group.y, width: BOX_WIDTH, height: BOX_HEIGHT, rx: 6 };
  const box = shape(
    "g",
    { class: group.isCritical ? `${state} critical` : state, "aria-label": description },
    shape("rect", place),
    shape("text", { x: group.x + 8, y: group.y + 19 }, label),
    shape("title", {}, description),
  );
  if (isPlanned(first)) {
    box.setAttribute("role", "img");
    box.setAttribute("data-step", first.step_id);
  } else {
    box.setAttribute("role", "button");
    box.setAttribute("tabindex", 0);
    box.setAttribute("data-handoff", first.handoff_id);
    onPress(box, () => show(first));
  }
  return box;
}

// Call `act` after a click on a node, or after the key Enter or Space on it.
function onPress(node, act) {
  node.addEventListener("click", act);
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    act();
  });
}

// `show` is called with the first handoff of a box that was clicked, or that got Enter or Space.
// A box of steps without a handoff does nothing.
function graphOf(job, show) {
  const groups = groupsOf(job);
  placeGroups(groups);
  const picture = shape("svg", {
    width: Math.max(...groups.map((box) => box.x)) + BOX_WIDTH + 2 * MARGIN,
    height: Math.max(...groups.map((box) => box.y)) + BOX_HEIGHT + 2 * MARGIN,
    role: "group",
    "aria-label": "which handoff came after which",
  });
  for (const group of groups) {
    for (const before of group.after) picture.append(edgeOf(before, group));
  }
  for (const group of groups) picture.append(boxOf(group, show));
  return el("div", "scroll", picture);
}
