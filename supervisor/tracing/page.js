// The page of `handoff trace`: draws the jobs in its block of data with `drawing.js` and `timeline.js`.

const DATA = JSON.parse(document.getElementById("data").textContent);

const OPEN = new Set(["gaps", "verdicts"]); // sections that are open at first

// --- a job

// The likely cost and time, as far as they are known; "" without a quote.
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
    "Input from the cache": job.cache ? `${Math.round(100 * job.cache.share)}%, ${job.cache.saved_usd < 0 ? "-" : ""}${money(Math.abs(job.cache.saved_usd))} saved` : "",
    Cost: (usage.cut?.calls ? "at most " : "") + money(usage.cost_usd),
    Quote: quoteOf(job.quote),
    Mode: job.mode,
    Begun: `${clock(job.begins_at)} UTC`,
  });
}

function jobInto(into, job, isFirst) {
  const made = el("section", "");
  job.absent = DATA.absent;
  if (!isFirst) made.append(el("h2", "", `${job.id} `, el("span", `pill ${job.status}`, job.status), ` ${job.title}`), headOf(job));
  const answer = [...document.querySelectorAll("#answers > article")].find((article) => article.dataset.job === job.id);
  if (answer) made.append(el("h2", "", "Answer"), answer);
  made.append(el("h2", "", "Timeline"), timelineOf(job));
  if (job.bars.length) made.append(folded("Graph", (to) => to.append(graphOf(job, (bar) => show(job, bar))), job.bars.length <= 60));
  made.append(folded("Specialists", (to) => to.append(table(job.specialists.map((row) => ({
    specialist: row.who, handoffs: row.handoffs, turns: row.turns, tokens: row.at_most ? `at most ${figure(row.tokens)}` : row.tokens, cost: (row.at_most ? "at most " : "") + money(row.usd),
    worked: seconds(row.busy_s), waited: seconds(row.waited_s),
  })))), isFirst));
  for (const [name, entries] of Object.entries(job.told)) {
    if (isEmpty(entries)) continue;
    const isTable = entries.every((entry) => typeof entry === "object");
    made.append(folded(`${name[0].toUpperCase()}${name.slice(1)} (${entries.length})`, (to) =>
      to.append(isTable ? table(entries) : el("ul", "told", ...entries.map((entry) => el("li", "", entry)))), isFirst && OPEN.has(name)));
  }
  made.append(folded(`Events (${job.story.length})`, (to) => to.append(table(job.story.map(([at, text]) => ({ after: seconds(at - job.begins_at), what: text }))))));
  into.append(made);
}

function show(job, bar) {
  const row = document.getElementById(`${job.id}/${bar.handoff_id}`);
  row.opensGroup?.();
  if (!row.querySelector(".detail")) row.querySelector("button").click();
  row.querySelector("button").focus({ preventScroll: true });
  row.scrollIntoView({ block: "center" });
}

// Links to the parts of the first job and to each child job.
function linksTo(sections) {
  const [first, ...below] = sections;
  const parts = [...first.children].filter((part) => part.matches("h2, details")).map((part) => [part, (part.querySelector("summary") ?? part).textContent]);
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
    const named = rows.filter((row) => has(WORDS.get(row).names)); // tasks are searched only if no name matches: a task may name other steps
    const matching = new Set(named.length ? named : rows.filter((row) => has(WORDS.get(row).all())));
    for (const row of rows) row.classList.toggle("hidden", !matching.has(row) || (only.checked && !row.classList.contains("critical")));
    for (const area of document.querySelectorAll(".timeline")) area.classList.toggle("filtering", wanted.length > 0 || only.checked);
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
