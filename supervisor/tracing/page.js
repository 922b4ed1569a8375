// The page of `handoff trace`: draws the jobs in its data with `drawing.js` and `timeline.js`.

const DATA = JSON.parse(document.getElementById("data").textContent);

const OPEN_SECTIONS = new Set(["gaps", "verdicts"]); // sections that are open at first
const MAX_OPEN_GRAPH = 60; // most handoffs of a graph that is open at first

// --- a job

// The likely cost and time, as far as they are known; "" without a quote.
function quoteOf(quote) {
  const known = [];
  if (quote?.cost) known.push(money(quote.cost.likely_usd));
  if (quote?.time) known.push(seconds(quote.time.likely_s));
  return known.length ? `likely ${known.join(", ")}` : "";
}

function criticalPathOf(job) {
  const path = job.bars.filter((bar) => bar.is_critical);
  if (!path.length) return "";
  const worked = path.reduce((sum, bar) => sum + workedOf(job, bar), 0);
  return `${seconds(worked)} of work in ${counted(path.length, "handoff")}`;
}

function cacheOf(cache) {
  if (!cache) return "";
  const sign = cache.saved_usd < 0 ? "-" : "";
  return `${Math.round(100 * cache.share)}%, ${sign}${money(Math.abs(cache.saved_usd))} saved`;
}

function headOf(job) {
  const usage = job.usage;
  const isUpperBound = usage.cut?.calls;
  const tokens = (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
  return facts({
    Wall: seconds(job.ends_at - job.begins_at) + (job.is_over ? "" : " so far"),
    "Critical path": criticalPathOf(job),
    Turns: figure(usage.turns ?? 0),
    Tokens: atMost(isUpperBound) + figure(tokens),
    "Input from the cache": cacheOf(job.cache),
    Cost: atMost(isUpperBound) + money(usage.cost_usd),
    Quote: quoteOf(job.quote),
    Mode: job.mode,
    Begun: `${clock(job.begins_at)} UTC`,
  });
}

const statusOf = (job) => el("span", `pill ${job.status}`, job.status);

function specialistRow(row) {
  return {
    specialist: row.agent,
    handoffs: row.handoffs,
    turns: row.turns,
    tokens: row.at_most ? `at most ${figure(row.tokens)}` : row.tokens,
    cost: costOf(row),
    worked: seconds(row.busy_s),
    waited: seconds(row.waited_s),
  };
}

// Gaps, verdicts and the like: `entries` are objects for a table, or texts.
function entriesOf(entries) {
  if (entries.every((entry) => typeof entry === "object")) return table(entries);
  return el("ul", "told", ...entries.map((entry) => el("li", "", entry)));
}

// The section of a job. The page shows the head of its first job on its own.
function sectionOf(job, isFirst) {
  const section = el("section", "");
  job.absent = DATA.absent;
  if (!isFirst) {
    section.append(el("h2", "", `${job.id} `, statusOf(job), ` ${job.title}`), headOf(job));
  }
  const answers = [...document.querySelectorAll("#answers > article")];
  const answer = answers.find((article) => article.dataset.job === job.id);
  if (answer) section.append(el("h2", "", "Answer"), answer);
  section.append(el("h2", "", "Timeline"), timelineOf(job));
  if (job.bars.length) {
    const isOpen = job.bars.length <= MAX_OPEN_GRAPH;
    const addGraph = (to) => to.append(graphOf(job, (bar) => show(job, bar)));
    section.append(folded("Graph", addGraph, isOpen));
  }
  const addSpecialists = (to) => to.append(table(job.specialists.map(specialistRow)));
  section.append(folded("Specialists", addSpecialists, isFirst));
  for (const [name, entries] of Object.entries(job.told)) {
    if (isEmpty(entries)) continue;
    const title = `${capitalized(name)} (${entries.length})`;
    const isOpen = isFirst && OPEN_SECTIONS.has(name);
    section.append(folded(title, (to) => to.append(entriesOf(entries)), isOpen));
  }
  const eventRow = ([at, text]) => ({ after: seconds(at - job.begins_at), what: text });
  const addEvents = (to) => to.append(table(job.story.map(eventRow)));
  section.append(folded(`Events (${job.story.length})`, addEvents));
  return section;
}

// --- links and search

// Links to the parts of the first job and to each child job.
function linksTo(sections) {
  const [first, ...childSections] = sections;
  const parts = [...first.children].filter((part) => part.matches("h2, details"));
  const links = parts.map((part) => {
    const heading = part.querySelector("summary") ?? part;
    return linkTo(part, heading.textContent);
  });
  for (const section of childSections) {
    const heading = section.querySelector("h2");
    links.push(linkTo(heading, heading.firstChild.textContent.trim()));
  }
  return el("div", "links", ...links);
}

let linkCount = 0;

function linkTo(place, text) {
  place.id = `part-${linkCount}`;
  linkCount += 1;
  const link = el("a", "", text);
  link.href = `#${place.id}`;
  link.addEventListener("click", (event) => {
    event.preventDefault();
    if (place.matches("details:not([open])")) place.querySelector("summary").click();
    place.scrollIntoView();
  });
  return link;
}

// Hide the rows that do not match. Tasks are searched only if no name matches: a task may name
// other steps.
function filterRows(text, onlyCritical) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (searchText) => words.every((word) => searchText.includes(word));
  const rows = [...SEARCH_TEXTS.keys()];
  let matching = rows.filter((row) => matches(SEARCH_TEXTS.get(row).names));
  if (!matching.length) matching = rows.filter((row) => matches(SEARCH_TEXTS.get(row).all()));
  const shown = new Set(matching);
  for (const row of rows) {
    const isLeftOut = onlyCritical && !row.classList.contains("critical");
    row.classList.toggle("hidden", !shown.has(row) || isLeftOut);
  }
  const isFiltering = words.length > 0 || onlyCritical;
  for (const area of document.querySelectorAll(".timeline")) {
    area.classList.toggle("filtering", isFiltering);
  }
}

function addTools(parent) {
  const search = el("input");
  search.type = "search";
  search.placeholder = "Find a step, specialist, state, worker or task";
  search.setAttribute("aria-label", search.placeholder);
  const onlyCritical = el("input");
  onlyCritical.type = "checkbox";
  const filter = () => filterRows(search.value, onlyCritical.checked);
  search.addEventListener("input", filter);
  onlyCritical.addEventListener("change", filter);
  parent.append(search, el("label", "", onlyCritical, "critical path"));
}

// --- the page

function addHead(parent, job) {
  const origin = `${job.id}, as of ${clock(DATA.at)} UTC, ${DATA.made_by}`;
  parent.append(
    el("h1", "", `${job.title} `, statusOf(job)),
    el("div", "soft mono", origin),
    headOf(job),
  );
  if (DATA.absent.length) {
    const absent = counted(DATA.absent.length, "child job");
    parent.append(el("div", "soft", `Not in this page: ${absent} of it.`));
  }
}

const toolbar = document.getElementById("tools");
addHead(document.getElementById("head"), DATA.jobs[0]);
addTools(toolbar);
const sections = DATA.jobs.map((job, n) => sectionOf(job, n === 0));
document.getElementById("jobs").append(...sections);
toolbar.append(linksTo(sections));
// The height of the tools, which stay at the top: a part that a link shows stands below them.
const setToolsHeight = () =>
  document.documentElement.style.setProperty("--tools", `${toolbar.offsetHeight}px`);
new ResizeObserver(setToolsHeight).observe(toolbar);
