"""The open question of a job, in the words that a person reads before the decision."""

from __future__ import annotations

import json
from typing import Any

from handoff_queue.supervisor.client.report import JobResult

MOST_CHARS = 8_000
"""Most characters of a plan or a draft in a question."""


def open_questions(report: JobResult) -> list[dict[str, Any]]:
    """Return the entries of `JobResult.approvals` that wait for an answer."""
    return [entry for entry in report.approvals if entry["decision"] is None]


def question_text(report: JobResult, entry: dict[str, Any]) -> str:
    """Return a question, and the plan or the draft that it is about."""
    why = f" ({entry['why']})" if entry["why"] else ""
    lines = [f"approve the {entry['what']}?{why}"]
    draft = entry["draft"]
    if isinstance(draft, str):
        lines += ["", draft]
    elif draft is not None:
        lines += ["", json.dumps(draft, ensure_ascii=False)]
    elif report.plan is not None:
        lines += ["", *_plan_lines(report.plan)]
    text = "\n".join(lines)
    if len(text) > MOST_CHARS:
        return f"{text[:MOST_CHARS]} ... (`handoff show {report.job_id} --full` shows everything)"
    return text


def _plan_lines(plan: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for step in plan.get("steps", ()):
        after = ", ".join(step.get("depends_on", ()))
        where = f" after {after}" if after else ""
        lines.append(f"- {step['id']} ({step['specialist']}){where}: {step['task']}")
    return lines
