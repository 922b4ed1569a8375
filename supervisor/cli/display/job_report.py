"""Text of a job, in brief and in full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import yaml

from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.supervisor.cli.display.answer import (
    describe_upper_bound,
    format_answer,
    format_sources,
    format_usage,
    format_usage_line,
)
from handoff_queue.supervisor.cli.display.terminal import (
    format_clock,
    format_money,
    get_stdout,
    shorten,
    write_line,
)
from handoff_queue.supervisor.client.tool_call_approvals import describe_subject
from handoff_queue.supervisor.client.user_messages import format_message
from handoff_queue.supervisor.text.sanitizing import flatten_to_line, replace_unsafe

if TYPE_CHECKING:
    from handoff_queue.shared.store.dead_letters import DeadLetter
    from handoff_queue.supervisor.client.job_outline import JobOutline
    from handoff_queue.supervisor.client.job_result import JobResult


_MAX_COLUMNS = 120
_LAST_WORD_CHARS = 12
"""Room for the last word of a line: YAML folds after the word that passes the width."""


_SET_BY = {
    "job": "set by the job",
    "workflow": "set by its workflow",
    "settings": "set by HANDOFF_GATES",
    None: "set by the job",
}


class _Readable(yaml.SafeDumper):
    """YAML dumper that writes texts of several lines as blocks."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    clean = "\n".join(line.rstrip() for line in replace_unsafe(text).splitlines())
    style = None
    if "\n" in clean:
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", clean, style=style)


_Readable.add_representer(str, _represent_text)


def format_readable(value: Any, columns: int) -> str:
    """Return a JSON value as readable YAML.

    Args:
        columns: width of the screen.
    """
    width = min(_MAX_COLUMNS, columns) - _LAST_WORD_CHARS
    return yaml.dump(value, Dumper=_Readable, sort_keys=False, allow_unicode=True, width=width)


def print_everything(result: JobResult, letters: Sequence[DeadLetter]) -> None:
    """Print all data of a job, one section for each part, and the answer last.

    Args:
        letters: the dead letters about the job.
    """
    format_value = partial(format_readable, columns=get_stdout().width)
    outcomes = {outcome["handoff_id"]: outcome for outcome in result.results}
    about = (
        _describe_mode_and_owner(result),
        format_usage(result),
        describe_upper_bound(result),
        *result.waits_for,
    )
    print_section(f"{result.job_id}  {result.status.value}", _join_lines(about))
    if result.route:
        print_section("route", format_value(result.route))
    if result.plan:
        print_section("plan", format_value(result.plan))
    for handoff in result.handoffs:
        print_handoff(handoff, outcomes.get(handoff["handoff_id"]))
    if result.gates:
        print_section(f"gates, {_SET_BY[result.gates['from']]}", format_value(result.gates))
    for conflict in result.conflicts:
        print_section(
            f"conflict {conflict['id']}, {_describe_conflict_state(conflict)}",
            format_value(conflict),
        )
    for verdict in result.verdicts:
        print_section(f"review, round {verdict['round']}", format_value(verdict))
    for approval in result.approvals:
        decision = approval["decision"] or f"it waits, as question {approval['version']}"
        print_section(
            f"approval of {describe_subject(approval)}: {decision}", format_value(approval)
        )
    for message in result.messages:
        print_section(f"message{_describe_recipient(message)}", format_value(message))
    for letter in letters:
        print_section("dead letter", format_value(letter.model_dump()))
    if result.notes:
        print_section("notes", format_value(list(result.notes)))
    if result.answer is not None:
        parts = (format_answer(result), format_sources(result))
        print_section("answer", "\n\n".join(part for part in parts if part))


def _describe_recipient(message: dict[str, Any]) -> str:
    if message["step"]:
        return f" to {message['step']}"
    return ""


def _describe_conflict_state(conflict: dict[str, Any]) -> str:
    if conflict["stands"]:
        return "settled"
    return "disputed"


def print_handoff(handoff: dict[str, Any], outcome: dict[str, Any] | None) -> None:
    """Print a handoff and its result in full."""
    format_value = partial(format_readable, columns=get_stdout().width)
    name = handoff["handoff_id"]
    state = handoff.get("state") or "issued"
    print_section(f"handoff {name} to {handoff['assigned_to']}, {state}", format_value(handoff))
    result = "none yet"
    if outcome is not None:
        result = format_value(outcome)
    print_section(f"result of {name}", result)


def _join_lines(texts: Iterable[str | None]) -> str:
    """Return the texts that are not empty, one a line."""
    return "\n".join(text for text in texts if text)


def print_section(title: str, body: str) -> None:
    """Print one section with its title."""
    write_line(f"=== {title}")
    if body:
        write_line(body.rstrip())
    write_line()


_STATES = ("ok", "partial", "needs_input", "failed", "dropped")
_NARROWEST = 40
"""Least columns of a report. A narrower terminal wraps the lines."""


def _describe_mode_and_owner(job: JobResult | JobOutline) -> str:
    """Return the mode, the tenant and the priority of a job, and the origin of a fork."""
    whose = f"mode {job.mode.value}, tenant {replace_unsafe(job.tenant)}, {job.priority.value}"
    if job.forked_from is not None:
        whose += f", forked from {job.forked_from}"
    return whose


def print_outline(outline: JobOutline, letters: Sequence[DeadLetter]) -> None:
    """Print a job in brief, and the names of the parts that are left out.

    Args:
        letters: the dead letters about the job.
    """
    format_value = partial(format_readable, columns=get_stdout().width)
    about = (
        shorten(outline.title, 100),
        _describe_mode_and_owner(outline),
        format_usage_line(outline),
        describe_upper_bound(outline),
    )
    print_section(f"{outline.job_id}  {outline.status.value}", _join_lines(about))
    if outline.plan:
        steps = format_count(outline.plan["steps"], "step")
        print_section(f"plan, {steps}", _join_lines(_format_plan_lines(outline.plan)))
    print_section("handoffs", _join_lines(_count_lines(outline)))
    counts = outline.counts or {}
    failed_count = None
    if outline.counts:
        failed_count = counts["failed"] + counts["needs_input"]
    _print_handoffs("failed, or waiting for input", outline.failed, failed_count)
    _print_handoffs("dropped", outline.dropped, counts.get("dropped"))
    _print_handoffs("at work", outline.running, outline.at_work["running"])
    _print_handoffs("newest", outline.newest, None)
    for review in outline.reviews:
        decision = review["decision"] or shorten(review["problem"] or "no decision", 300)
        print_section(f"review, round {review['round']}", decision)
    if outline.messages:
        messages = [shorten(format_message(message), 400) for message in outline.messages]
        print_section("messages", _join_lines(messages))
    for letter in letters:
        print_section("dead letter", format_value(letter.model_dump()))
    if outline.notes:
        print_section("notes", _join_lines(f"- {flatten_to_line(text)}" for text in outline.notes))
    if outline.answer is not None:
        print_section("answer", _format_answer(outline.answer))
    job_id = outline.job_id
    commands = (
        f"`handoff show {job_id} --full` prints all parts, also with --json",
        f"`handoff show {job_id} --handoff HANDOFF` prints one handoff, and `handoff result"
        f" {job_id}` the answer",
    )
    print_section("not shown", _join_lines((*outline.left_out, *commands)))


def _format_plan_lines(plan: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each part of a plan.

    Args:
        plan: as `JobOutline.plan`.
    """
    for part in plan["parts"]:
        names = part["first"]
        if part["count"] > 1:
            names = f"{part['first']} to {part['last']}"
        yield f"{names}: {format_count(part['count'], 'step')} of {part['specialist']}"
    if plan["other_steps"]:
        yield f"and {format_count(plan['other_steps'], 'step')} more"


def _count_lines(outline: JobOutline) -> Iterator[str]:
    """Yield the lines about the numbers of handoffs and events."""
    counts = outline.counts
    if counts is not None:
        count_texts: list[str] = []
        for name in _STATES:
            if counts[name]:
                count_texts.append(f"{counts[name]:,} {name}")
        count_texts.append(f"{counts['open']:,} open")
        yield f"{counts['issued']:,} issued: {', '.join(count_texts)}"
    at_work = outline.at_work
    if at_work["running"] or at_work["deferred"] or at_work["at_least"]:
        least = "at least " if at_work["at_least"] else ""
        running = f"{least}{at_work['running']:,} at work"
        deferred = f"{at_work['deferred']:,} waiting without a slot"
        yield f"open: {running} and {deferred}"
    yield f"journal: {format_count(outline.events, 'event')}"


def _print_handoffs(title: str, handoffs: Sequence[dict[str, Any]], of: int | None) -> None:
    """Print a section with some of the handoffs of a kind, or nothing without such handoffs.

    Args:
        of: number of all handoffs of the kind. None: unknown.
    """
    if not handoffs:
        return
    if of is not None and of > len(handoffs):
        title += f" ({len(handoffs)} of {of:,})"
    lines: list[str] = []
    for handoff in handoffs:
        lines += _iterate_handoff_lines(handoff)
    print_section(title, "\n".join(lines))


def _iterate_handoff_lines(handoff: dict[str, Any]) -> Iterator[str]:
    """Yield the line of a handoff, then its task and its reason. A long line is cut."""
    columns = max(_NARROWEST, get_stdout().width)
    usage = handoff["usage"]
    parts = [
        handoff["handoff_id"],
        handoff["assigned_to"],
        handoff["state"],
        _format_time(handoff),
        format_count(usage["turns"], "turn"),
        format_money(usage["cost_usd"], at_most=usage["cut"]["calls"] > 0),
        handoff["worker"],
        handoff["doing"],
        handoff["child"],
    ]
    line = "  ".join(shorten(part, columns) for part in parts if part)
    if len(line) <= columns:
        yield line
    else:
        yield f"{line[: columns - 1]}…"
    for text in (handoff["task"], handoff["why"], handoff["shared"]):
        if text:
            yield "    " + shorten(text, columns - 4)


def _format_time(handoff: dict[str, Any]) -> str:
    """Return the end and the duration of an ended handoff.

    Return the start of a running handoff, and the time at which a waiting handoff was issued.
    """
    started_at, finished_at = handoff["started_at"], handoff["finished_at"]
    if finished_at and started_at:
        return f"{format_clock(finished_at)}, {finished_at - started_at:.1f} s"
    if started_at or handoff["issued_at"]:
        return format_clock(started_at or handoff["issued_at"])
    return ""


def _format_answer(answer: Any) -> str:
    if isinstance(answer, str):
        return replace_unsafe(answer)
    return format_readable(answer, get_stdout().width)
