"""A job as one HTML file without other files and without network access. Pure.

Text of a model, a tool or the web is data in the page, never markup. The page's script reads
one block of JSON without any `<`, and shows texts as texts. A content security policy lets the
browser run that one script, apply that one style, and load nothing.

Models, tools and documents wrote the texts. Only this module turns their texts into markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from handoff_queue.shared.types.checkpoints import Checkpoint
from handoff_queue.shared.types.events import HandoffFinished, RecordedEvent
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.usage import NOTHING_USED, to_usd
from handoff_queue.supervisor.client.context_use import describe_context_use
from handoff_queue.supervisor.client.job_record import JobRecord
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.client.plan_changes import describe_change
from handoff_queue.supervisor.client.tool_call_approvals import describe_subject
from handoff_queue.supervisor.client.user_messages import format_message
from handoff_queue.supervisor.text.sanitizing import flatten_to_line, replace_unsafe
from handoff_queue.supervisor.tracing.timeline import Timeline, TimelineBar

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

_HIGHEST = 5
"""The highest score of a criterion."""
MAX_MARKS = 50_000
"""Marks of Markdown in the longest answer that is shown as Markdown. The parser takes about a
second for so many, and an answer with more is shown as text.
"""
_MARK = re.compile(r"[*_\[`<|]")


def build_report_sections(report: JobResult) -> dict[str, Any]:
    """Return the sections below the answer, by heading: sentences, or rows of a table."""
    verdicts: list[str] = []
    for verdict in report.verdicts:
        verdicts += _iterate_verdict_lines(verdict)
    gates: list[str] = []
    if report.gates:
        gates += _iterate_gate_lines(report.gates)
    route: list[str] = []
    if report.route:
        route.append(_format_route(report.route))
    plan = report.plan or {}
    notes = list(report.notes)
    if plan.get("why"):
        notes.insert(0, plan["why"])
    return {
        "gaps": [_format_gap(gap) for gap in report.gaps],
        "verdicts": verdicts,
        "conflicts": [_format_conflict(conflict) for conflict in report.conflicts],
        "gates": gates,
        "changes of the plan": [f"{describe_change(change)}." for change in report.patches],
        "approvals": [_format_approval(approval) for approval in report.approvals],
        "messages": [format_message(message) for message in report.messages],
        "route": route,
        "plan": [_build_step(step) for step in plan.get("steps", ())],
        "notes": notes,
    }


def _format_gap(gap: Mapping[str, Any]) -> str:
    cost = gap["likely_usd"]
    price = ""
    if cost:
        price = f" It would cost about ${cost:.4f}."
    return f"{gap['step']} ({gap['specialist']}): {gap['why']}.{price}"


def _iterate_verdict_lines(verdict: Mapping[str, Any]) -> Iterator[str]:
    """Yield the decision of a round, then its revisions, open points and scores."""
    round_ = f"Round {verdict['round']}"
    match verdict["verdict"]:
        case "PASS":
            yield f"{round_}: the assessor passed the results."
        case "REVISE":
            yield f"{round_}: the assessor sent work back."
        case _:
            yield (
                f"{round_}: there is no verdict ({verdict.get('problem') or 'no reason is known'})."
            )
    if verdict.get("checked"):
        yield f"{round_}: {verdict['checked']}."
    for entry in verdict["revisions"]:
        yield f"{round_}, sent back: {entry['step']}: {entry['problem']}"
    for point in verdict["open_points"]:
        yield f"{round_}, open: {point}"
    for entry in verdict["scores"]:
        of = ""
        if entry["step"]:
            of = f" of {entry['step']}"
        why = "."
        if entry["why"]:
            why = f": {entry['why']}"
        yield f"{round_}, {entry['criterion']}{of}: {entry['score']} of {_HIGHEST}{why}"


def _format_conflict(conflict: Mapping[str, Any]) -> str:
    quotes = [f"\u201c{claim['text']}\u201d ({claim['id']})" for claim in conflict["claims"]]
    claims = "; ".join(quotes)
    stands = ", ".join(conflict["stands"])
    end = "it is disputed"
    if stands:
        end = f"{stands} stands"
    return f"Not all of these can be right: {claims}. Decision: {end}. {conflict['why']}".strip()


def _iterate_gate_lines(gates: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each check by code, then one for each check by the fact-checker."""
    for number, answer in enumerate(gates.get("answers", ()), start=1):
        vetoes = "; ".join(answer["vetoes"])
        if vetoes:
            yield f"Check {number}: {vetoes}"
        else:
            yield f"Check {number}: the answer passed."
    for number, check in enumerate(gates.get("fact_checks", ()), start=1):
        wrong: list[str] = []
        for statement in check["wrong"]:
            wrong.append(f"\u201c{statement['statement']}\u201d: {statement['why']}")
        end = check.get("problem") or "no statement was found to be wrong"
        yield f"Fact check {number}: {'; '.join(wrong) or end}"


def _format_approval(approval: Mapping[str, Any]) -> str:
    decision = approval["decision"] or "waits for a person"
    by = ""
    actor = approval.get("actor") or approval.get("by")
    if actor:
        by = f" by {actor}"
    note = ""
    if approval.get("note"):
        note = f": {approval['note']}"
    why = ""
    if approval.get("why"):
        why = f" ({approval['why']})"
    return f"Approval of {describe_subject(approval)}{why}: {decision}{by}{note}"


def _format_route(route: Mapping[str, Any]) -> str:
    doer = "A team"
    if route["specialist"]:
        doer = f"The specialist {route['specialist']}"
    why = route["problem"] or route["why"]
    if not why:
        return f"{doer} got the job"
    return f"{doer} got the job: {why}"


def _build_step(step: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "step": step["id"],
        "title": step.get("title") or "",
        "specialist": step["specialist"],
        "after": ", ".join(step.get("depends_on", ())),
        "task": step["task"],
    }


_NUMBER = re.compile(r"\[(\d{1,6})\]")
"""A citation in an answer, such as `[3]`."""
_WEB = re.compile(r"https?://[^\s/]", re.IGNORECASE)
_REL = "noopener noreferrer nofollow"
"""The attribute `rel` of links out of the page."""
_MAX_TITLE_CHARS = 300
"""Most characters of a quote in the title of its link."""


def render_answer(
    answer: JsonValue,
    citations: Sequence[Mapping[str, Any]],
    prefix: str,
    *,
    is_form: bool = False,
    links: Mapping[int, str] | None = None,
) -> str:
    """Return an answer as HTML.

    Args:
        answer: Markdown, or the JSON value of an answer with a schema.
        citations: as in `JobResult.citations`. `[n]` becomes a link to the source
            `PREFIX-source-n`.
        prefix: makes the ids of one answer unique in its page.
        is_form: True if a text is a JSON value of an answer with a schema, and not Markdown.
        links: the URL of each source by number, in place of a link within the page.
    """
    if is_form or not isinstance(answer, str):
        return f'<pre tabindex="0">{escape(json.dumps(answer, ensure_ascii=False, indent=2))}</pre>'
    if len(_MARK.findall(answer)) > MAX_MARKS:
        return f'<pre tabindex="0">{escape(answer)}</pre>'
    quotes: dict[Any, str] = {}
    for citation in citations:
        quotes[citation["n"]] = f"{citation['source']}: \u201c{citation['quote']}\u201d"
    environment = {"prefix": prefix, "quotes": quotes, "links": links or {}}
    return str(_create_renderer().render(answer, environment))


def render_sources(
    citations: Sequence[Mapping[str, Any]], prefix: str, links: Mapping[int, str] | None = None
) -> str:
    """Return the numbered sources of an answer as an HTML list: the document, the quote and its
    statement.

    Args:
        links: see `render_answer`.
    """
    urls = links or {}
    items = "".join(_render_source(citation, prefix, urls) for citation in citations)
    return f'<ol class="sources">{items}</ol>'


def build_source_id(prefix: str, number: int) -> str:
    """Return the id of the HTML element of a source."""
    return f"{prefix}-source-{number}"


def _render_source(citation: Mapping[str, Any], prefix: str, links: Mapping[int, str]) -> str:
    name = escape(citation["source"])
    if _WEB.match(citation["source"]):
        name = f'<a href="{name}" rel="{_REL}">{name}</a>'
    step = ""
    if citation["step"]:
        step = f' <span class="soft">found by {escape(citation["step"])}</span>'
    number = citation["n"]
    link = ""
    if links.get(number):
        label = f'open the quote<span class="hidden-text"> of source {number}</span>'
        link = f' <a href="{escape(links[number])}">{label}</a>'
    return (
        f'<li id="{escape(build_source_id(prefix, number))}" value="{number}">'
        f"<strong>{name}</strong>{step}{link}"
        f"<blockquote>{escape(citation['quote'])}</blockquote></li>"
    )


@cache
def _create_renderer() -> MarkdownIt:
    """Return the Markdown renderer. Its import takes time, so it happens at the first use."""
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.disable(["image", "reference", "html_block", "html_inline"])
    markdown.validateLink = lambda url: _WEB.match(url) is not None  # type: ignore[method-assign]
    markdown.core.ruler.push("citations", _link_citations)
    markdown.core.ruler.push("attributes", _make_attributes_safe)
    return markdown


def _link_citations(state: StateCore) -> None:
    """Make a link of each `[n]` that is the number of a source, outside of code and of links."""
    for block in state.tokens:
        if block.type == "inline" and block.children:
            block.children = list(_split_at_citations(block.children, state.env))


def _split_at_citations(tokens: Sequence[Token], environment: Mapping[str, Any]) -> Iterator[Token]:
    """Yield the tokens. A text outside of links is split at its citations."""
    depth = 0
    for token in tokens:
        if token.type in ("link_open", "link_close"):
            depth += token.nesting
        if token.type != "text" or depth or not _NUMBER.search(token.content):
            yield token
        else:
            yield from _split(token, environment)


def _split(token: Token, environment: Mapping[str, Any]) -> Iterator[Token]:
    """Yield the tokens of a text, with a link for each citation."""
    from markdown_it.token import Token

    prefix, quotes, links = environment["prefix"], environment["quotes"], environment["links"]
    end = 0
    for match in _NUMBER.finditer(token.content):
        number = int(match[1])
        if number not in quotes:
            continue
        attributes: dict[str, str | int | float] = {
            "class": "cite",
            "href": links.get(number, f"#{build_source_id(prefix, number)}"),
            "title": " ".join(quotes[number].split())[:_MAX_TITLE_CHARS],
        }
        yield Token("text", "", 0, content=token.content[end : match.start()])
        yield Token("link_open", "a", 1, attrs=attributes)
        yield Token("text", "", 0, content=match[0])
        yield Token("link_close", "a", -1)
        end = match.end()
    yield Token("text", "", 0, content=token.content[end:])


def _make_attributes_safe(state: StateCore) -> None:
    """Give links out of the page a `rel`, and replace the inline style of table cells by a
    class.

    The content security policy of the page refuses inline styles.
    """
    for block in state.tokens:
        for token in (block, *(block.children or ())):
            style = token.attrs.pop("style", None)
            if style:
                token.attrs["class"] = str(style).rpartition(":")[2]
            if token.type == "link_open" and not str(token.attrs["href"]).startswith("#"):
                token.attrs["rel"] = _REL


STYLES = ("shared.css", "page.css")
"""The files of the style, in their order. The console has the first file, too."""
SCRIPTS = ("drawing.js", "timeline.js", "page.js")
"""The files of the script, in their order. Only the last one reads the elements of the page."""


@dataclass(frozen=True, slots=True)
class TracedJob:
    """One job of a tree of jobs, with the data of the page."""

    record: JobRecord
    report: JobResult
    timeline: Timeline
    story: Sequence[tuple[float, str]] = ()
    """Time of each event in Unix seconds, and the event in words."""
    turns: Mapping[HandoffId, Sequence[Checkpoint]] = field(default_factory=dict)
    """Turns that the store still has, by handoff."""


def render_page(jobs: Sequence[TracedJob], made_by: str) -> str:
    """Return the page of a job and its child jobs, the job first.

    Args:
        made_by: name and version of the program that read the jobs.
    """
    record = jobs[0].record
    style = "".join(_read_asset(name) for name in STYLES)
    script = "".join(_read_asset(name) for name in SCRIPTS)
    answers = "".join(_render_answer(traced) for traced in jobs)
    data = {
        "made_by": made_by,
        "at": record.at,
        "jobs": [_build_job_data(traced) for traced in jobs],
        "absent": find_absent(jobs),
    }
    parts = {
        "policy": (
            f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}';"
            " base-uri 'none'; form-action 'none'"
        ),
        "title": escape(flatten_to_line(f"{record.job.job_id} {record.job.title}")),
        "style": style,
        "script": script,
        "answers": replace_unsafe(answers),
        "data": replace_unsafe(_escape_json(data)),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _read_asset("page.html"))


def _render_answer(traced: TracedJob) -> str:
    """Return the answer of a job with its sources as HTML, or '' without an answer."""
    report, job_id = traced.report, traced.record.job.job_id
    if report.answer is None:
        return ""
    sources = ""
    if report.citations:
        sources = f"<h3>Sources</h3>{render_sources(report.citations, job_id)}"
    text = render_answer(report.answer, report.citations, job_id, is_form=report.asked_for_a_form)
    return f'<article class="answer" data-job="{escape(job_id)}">{text}{sources}</article>'


def _read_asset(name: str) -> str:
    """Return the text of a file in this folder."""
    return files("handoff_queue.supervisor.tracing").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the digest of a script or a style for a content security policy."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _escape_json(data: Any) -> str:
    """Return JSON for a script block, with the characters that could end the block escaped."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _build_job_data(traced: TracedJob) -> dict[str, Any]:
    """Return the data of a job for the script of the page."""
    record, report, timeline = traced.record, traced.report, traced.timeline
    digests: set[str] = set()
    for bar in timeline.bars:
        digests.add(bar.payload)
        if bar.result:
            digests.add(bar.result)
    turns: dict[HandoffId, list[dict[str, Any]]] = {}
    contexts: dict[HandoffId, str] = {}
    for handoff_id, checkpoints in traced.turns.items():
        turns[handoff_id] = [checkpoint.model_dump(mode="json") for checkpoint in checkpoints]
        contexts[handoff_id] = describe_context_use(checkpoints)
    return {
        "id": record.job.job_id,
        "title": record.job.title,
        "status": report.status.value,
        "begins_at": timeline.begins_at,
        "ends_at": timeline.ends_at,
        "is_over": report.status.has_ended,
        "mode": report.mode.value,
        "usage": report.usage,
        "cache": _compute_cache_use(record.journal),
        "quote": report.quote,
        "bars": [asdict(bar) for bar in timeline.bars],
        "payloads": {digest: record.payloads[digest] for digest in sorted(digests)},
        "turns": turns,
        "contexts": contexts,
        "specialists": _sum_by_specialist(timeline.bars, timeline.ends_at),
        "told": build_report_sections(report),
        "story": list(traced.story),
    }


def _compute_cache_use(journal: Sequence[RecordedEvent]) -> dict[str, float] | None:
    """Return the share of the input tokens that came from the provider's cache, and the money that
    the cache saved. None: nothing came from a cache.
    """
    usage = NOTHING_USED
    for recorded in journal:
        if isinstance(recorded.event, HandoffFinished):
            usage += recorded.event.usage
    if not usage.cache_read_tokens or not usage.input_tokens:
        return None
    saved = usage.cache_saved_microusd - usage.cache_surcharge_microusd
    return {"share": usage.cache_read_tokens / usage.input_tokens, "saved_usd": to_usd(saved)}


def _sum_by_specialist(bars: Sequence[TimelineBar], until: float) -> list[dict[str, Any]]:
    """Return the work and cost of each specialist or role, the one with the most tokens first.

    Args:
        until: end of the work that still runs, in Unix seconds.
    """
    bars_by_specialist: dict[str, list[TimelineBar]] = defaultdict(list)
    for bar in bars:
        bars_by_specialist[bar.agent].append(bar)
    rows: list[dict[str, Any]] = []
    for agent, specialist_bars in bars_by_specialist.items():
        rows.append({"agent": agent, **_compute_totals(specialist_bars, until)})
    return sorted(rows, key=lambda row: (-row["tokens"], row["agent"]))


def _compute_totals(bars: Sequence[TimelineBar], until: float) -> dict[str, Any]:
    """Return the sums over some bars. `usd` is None if the cost of a bar is not known."""
    turns = tokens = 0
    busy_s: float = 0
    waited_s: float = 0
    usd: float | None = 0
    at_most = False
    for bar in bars:
        turns += bar.turns
        tokens += bar.tokens
        busy_s += bar.compute_seconds_with_claim(until)
        waited_s += bar.compute_seconds_without_claim(until)
        at_most = at_most or bar.at_most
        if usd is None or bar.usd is None:
            usd = None
        else:
            usd += bar.usd
    return {
        "handoffs": len(bars),
        "turns": turns,
        "tokens": tokens,
        "usd": usd,
        "busy_s": busy_s,
        "waited_s": waited_s,
        "at_most": at_most,
    }


def build_tree(jobs: Mapping[JobId, TracedJob], job_id: JobId) -> list[TracedJob]:
    """Return a job and its child jobs, each once, and each child job after its parent."""
    tree: dict[JobId, TracedJob] = {}

    def add(parent_id: JobId) -> None:
        if parent_id in jobs and parent_id not in tree:
            tree[parent_id] = jobs[parent_id]
            for bar in jobs[parent_id].timeline.bars:
                if bar.child:
                    add(bar.child)

    add(job_id)
    return list(tree.values())


def find_absent(tree: Sequence[TracedJob]) -> list[JobId]:
    """Return child jobs that are missing from the tree, each once. They were deleted, or the
    tree comes from a file, which holds one job.
    """
    in_tree = {traced.record.job.job_id for traced in tree}
    absent: dict[JobId, None] = {}
    for traced in tree:
        for bar in traced.timeline.bars:
            if bar.child and bar.child not in in_tree:
                absent[bar.child] = None
    return list(absent)
