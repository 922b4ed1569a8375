"""A job as one HTML file without other files and without network access. Pure.

Text of a model, a tool or the web is data in the page, never markup. The page's script reads one
block of JSON without any `<`, and shows texts as texts. A content security policy lets the browser
run that one script, apply that one style, and load nothing.
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
"""The parts of the script, in their order. The first two know nothing of the page."""


@dataclass(frozen=True, slots=True)
class TracedJob:
    """One job of a tree, with its shown parts."""

    record: JobRecord
    report: JobResult
    timeline: Timeline
    story: Sequence[tuple[float, str]] = ()
    """Events in words, with their time in Unix seconds."""
    turns: Mapping[HandoffId, Sequence[Checkpoint]] = field(default_factory=dict)
    """Turns that the store still has."""


def page_of(jobs: Sequence[TracedJob], made_by: str) -> str:
    """Return the page of a job and its child jobs, the job first."""
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
    """Return the answer of a job with its sources, as HTML; '': there is none."""
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
    record, report, timeline = traced.record, traced.report, traced.timeline
    wanted = {digest for bar in timeline.bars for digest in (bar.payload, bar.result) if digest}
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
        "payloads": {digest: record.payloads[digest] for digest in sorted(wanted)},
        "turns": {
            handoff_id: [checkpoint.model_dump(mode="json") for checkpoint in turns]
            for handoff_id, turns in traced.turns.items()
        },
        "specialists": _by_specialist(timeline.bars, timeline.ends_at),
        "told": report_sections(report),
        "story": list(traced.story),
    }


def _by_specialist(bars: Sequence[TimelineBar], until: float) -> list[dict[str, Any]]:
    """Return the work and cost of each specialist by then, the most expensive first."""
    bars_by_specialist: dict[str, list[TimelineBar]] = defaultdict(list)
    for bar in bars:
        bars_by_specialist[bar.who].append(bar)
    rows = [
        {
            "who": who,
            "handoffs": len(its),
            "turns": sum(bar.turns for bar in its),
            "tokens": sum(bar.tokens for bar in its),
            "usd": None
            if any(bar.usd is None for bar in its)
            else sum(bar.usd or 0.0 for bar in its),
            "busy_s": sum(bar.worked_s(until) for bar in its),
            "waited_s": sum(bar.waited_s(until) for bar in its),
            "at_most": any(bar.at_most for bar in its),
        }
        for who, its in bars_by_specialist.items()
    ]
    return sorted(rows, key=lambda row: (-row["tokens"], row["who"]))


def tree_of(jobs: Mapping[JobId, TracedJob], job_id: JobId) -> list[TracedJob]:
    """Return a job and its child jobs, each once, after the job whose step it does."""
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
    """Return child jobs that are missing from the tree. They were deleted, or the tree comes from a
    file, which holds one job.
    """
    there = {traced.record.job.job_id for traced in tree}
    job_ids: list[JobId] = []
    for job_id in dict.fromkeys(bar.child for traced in tree for bar in traced.timeline.bars):
        if job_id and job_id not in there:
            job_ids.append(job_id)
    return job_ids
