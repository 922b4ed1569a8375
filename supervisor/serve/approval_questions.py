"""The open question of a job, in the words that a person reads before the decision."""

from __future__ import annotations

import json
from typing import Any

from handoff_queue.shared.text.unicode_text import remove_invisible
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.client.tool_call_approvals import describe_subject

MAX_CHARS = 8_000
"""Most characters of a plan or a draft in a question."""


def select_open_questions(report: JobResult) -> list[dict[str, Any]]:
    """Return the entries of `JobResult.approvals` that wait for an answer."""
    return [entry for entry in report.approvals if entry["decision"] is None]


def format_question(report: JobResult, entry: dict[str, Any]) -> str:
    """Return a question, and the plan, the draft or the tool call that it is about."""
    why = f" ({entry['why']})" if entry["why"] else ""
    lines = [f"approve {describe_subject(entry)}?{why}"]
    draft = entry["draft"]
    if entry["call"] is not None:
        lines += ["", *_format_argument_lines(entry["call"])]
    elif isinstance(draft, str):
        lines += ["", draft]
    elif draft is not None:
        lines += ["", format_json(draft)]
    elif report.plan is not None:
        lines += ["", *_format_plan_lines(report.plan)]
    text = "\n".join(lines)
    if len(text) > MAX_CHARS:
        return f"{text[:MAX_CHARS]} ... (the first {MAX_CHARS:,} of {len(text):,} characters)"
    return text


def format_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, with an escape for each character that a person cannot see. With a
    direction mark, for example, a person would read other arguments than the tool gets.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    letters: list[str] = []
    for letter in text:
        is_seen = letter == "\n" or (letter.isprintable() and remove_invisible(letter) == letter)
        letters.append(letter if is_seen else json.dumps(letter)[1:-1])
    return "".join(letters)


def list_arguments(call: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the name of each argument of a call, its value as JSON, and its origins. A worker that
    was taken over may ask about a call whose arguments cannot be read.
    """
    if not isinstance(call["arguments"], dict):
        return [("arguments", "cannot be read: reject the call", "")]
    arguments: list[tuple[str, str, str]] = []
    for name, value in call["arguments"].items():
        origins = ", ".join(call["origins"].get(name, ()))
        arguments.append((format_json(name)[1:-1], format_json(value), origins))
    return arguments


def _format_argument_lines(call: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for name, value, origins in list_arguments(call):
        source = f" (from {origins})" if origins else ""
        lines.append(f"- {name}: {value}{source}")
    return lines


def _format_plan_lines(plan: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for step in plan.get("steps", ()):
        after = ", ".join(step.get("depends_on", ()))
        where = f" after {after}" if after else ""
        lines.append(f"- {step['id']} ({step['specialist']}){where}: {step['task']}")
    return lines
