"""A job as one HTML file without other files and without network access. Pure.

Text of a model, a tool or the web is data in the page, never markup. The page's script reads
one block of JSON without any `<`, and shows texts as texts. A content security policy lets the
browser run that one script, apply that one style, and load nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from importlib.resources import files
from typing import Any

from handoff_queue.shared.types.checkpoints import Checkpoint
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.client.report import JobRecord, JobResult
from handoff_queue.supervisor.text.sanitizing import in_one_line, plain
from handoff_queue.supervisor.tracing.rendering import answer_html, report_sections, sources_html
from handoff_queue.supervisor.tracing.timeline import Timeline, TimelineBar

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


def page_of(jobs: Sequence[TracedJob], made_by: str) -> str:
    """Return the page of a job and its child jobs, the job first.

    `made_by`: name and version of the program that read the jobs.
    """
    first = jobs[0]
    style, script = _asset("page.css"), "".join(map(_asset, SCRIPTS))
    data = {
        "made_by": made_by,
        "at": first.record.at,
        "jobs": [_job(traced) for traced in jobs],
        "absent": absent_from(jobs),
    }
    parts = {
        "policy": f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'",
        "title": escape(in_one_line(f"{first.record.job.job_id} {first.record.job.title}")),
        "style": style,
        "script": script,
        "answers": plain("".join(map(_answer, jobs))),
        "data": plain(_inert(data)),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _asset("page.html"))


def _answer(traced: TracedJob) -> str:
    """Return the answer of a job with its sources as HTML, or '' without an answer."""
    report, job_id = traced.report, traced.record.job.job_id
    if report.answer is None:
        return ""
    sources = ""
    if report.citations:
        sources = f"<h3>Sources</h3>{sources_html(report.citations, job_id)}"
    text = answer_html(report.answer, report.citations, job_id, is_form=report.asked_for_a_form)
    return f'<article class="answer" data-job="{escape(job_id)}">{text}{sources}</article>'


def _asset(name: str) -> str:
    return files("handoff_queue.supervisor.tracing").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _inert(data: Any) -> str:
    """Return JSON for a script block, with the characters that could end the block escaped."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _job(traced: TracedJob) -> dict[str, Any]:
    """Return the data of a job for the script of the page."""
    record, report, timeline = traced.record, traced.report, traced.timeline
    digests: set[str] = set()
    for bar in timeline.bars:
        digests.add(bar.payload)
        if bar.result:
            digests.add(bar.result)
    turns: dict[HandoffId, list[dict[str, Any]]] = {}
    for handoff_id, checkpoints in traced.turns.items():
        turns[handoff_id] = [checkpoint.model_dump(mode="json") for checkpoint in checkpoints]
    return {
        "id": record.job.job_id,
        "title": record.job.title,
        "status": report.status.value,
        "begins_at": timeline.begins_at,
        "ends_at": timeline.ends_at,
        "is_over": report.status.ended,
        "mode": report.mode.value,
        "usage": report.usage,
        "quote": report.quote,
        "bars": [asdict(bar) for bar in timeline.bars],
        "payloads": {digest: record.payloads[digest] for digest in sorted(digests)},
        "turns": turns,
        "specialists": _by_specialist(timeline.bars, timeline.ends_at),
        "told": report_sections(report),
        "story": list(traced.story),
    }


def _by_specialist(bars: Sequence[TimelineBar], until: float) -> list[dict[str, Any]]:
    """Return the work and cost of each specialist or role, the one with the most tokens first.

    `until`: end of the work that still runs, in Unix seconds.
    """
    bars_by_specialist: dict[str, list[TimelineBar]] = defaultdict(list)
    for bar in bars:
        bars_by_specialist[bar.who].append(bar)
    rows: list[dict[str, Any]] = []
    for who, specialist_bars in bars_by_specialist.items():
        rows.append({"who": who, **_totals(specialist_bars, until)})
    return sorted(rows, key=lambda row: (-row["tokens"], row["who"]))


def _totals(bars: Sequence[TimelineBar], until: float) -> dict[str, Any]:
    """Return the sums over some bars. `usd` is None if the cost of a bar is not known."""
    turns = tokens = 0
    busy_s: float = 0
    waited_s: float = 0
    usd: float | None = 0
    at_most = False
    for bar in bars:
        turns += bar.turns
        tokens += bar.tokens
        busy_s += bar.worked_s(until)
        waited_s += bar.waited_s(until)
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


def tree_of(jobs: Mapping[JobId, TracedJob], job_id: JobId) -> list[TracedJob]:
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


def absent_from(tree: Sequence[TracedJob]) -> list[JobId]:
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
