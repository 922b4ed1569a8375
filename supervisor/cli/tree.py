"""A job as a picture: a tree for a terminal, a line an event for everything else. Pure: a view in, text out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from rich.console import RenderableType
from rich.text import Text
from rich.tree import Tree

from shared.ledger.jobs import HandoffStanding
from shared.wire.events import HandoffIssued
from shared.wire.ids import StepId
from shared.wire.names import ROLES
from shared.wire.usage import cost_usd
from supervisor.cli.terminal import figures, money, short
from supervisor.cli.view import View
from supervisor.lifecycle.state import JobState, StepState, StepStatus
from supervisor.lifecycle.words import said_by

_MARKS = {"ok": ("✓", "green"), "partial": ("◐", "yellow"), "failed": ("✗", "red"), "needs_input": ("?", "yellow")}
_WAITING, _QUEUED, _RUNNING, _DROPPED = ("·", "dim"), ("○", "default"), ("●", "cyan"), ("–", "dim")
MOST_ROWS = 40
"""A tree that is higher than the screen cannot be drawn in place."""


@dataclass(frozen=True)
class Row:
    """One line of the tree: a role's handoff, or the latest attempt at a step."""

    mark: str
    style: str
    who: str
    what: str


def picture(view: View) -> RenderableType:
    """The tree of this moment."""
    rows = list(rows_of(view))
    hidden = len(rows) - MOST_ROWS
    width = max((len(row.who) for row in rows), default=0)
    tree = Tree(Text(headline(view), style="bold"), guide_style="dim")
    for row in rows[:MOST_ROWS]:
        line = Text(f"{row.mark} ", style=row.style)
        line.append(row.who.ljust(width), style="default" if row.style != "dim" else "dim")
        line.append(f"  {row.what}", style="dim")
        line.no_wrap, line.overflow = True, "ellipsis"
        tree.add(line)
    if hidden > 0:
        tree.add(Text(f"and {hidden} more", style="dim"))
    for one in view.missing:
        tree.add(Text(f"! {one}", style="yellow"))
    return tree


def headline(view: View) -> str:
    """`j-0123456789ab  running  12 s  9 turns  14,210 tokens  $0.0123`."""
    books, state = view.books, view.state
    if books is None or state is None:
        return f"{view.job_id}  queued"
    tokens, at_most = books.input_tokens + books.output_tokens, books.cut_calls > 0
    parts = [view.job_id, books.status, f"{max(0.0, view.now - state.started_at):.0f} s", figures(books.turns, "turn")]
    parts += [figures(tokens, "token", at_most=at_most), money(cost_usd(books.cost_microusd), at_most=at_most)]
    return "  ".join(parts)


def rows_of(view: View) -> Iterator[Row]:
    """Planner, steps in the plan's order, then the other roles in the order of their work."""
    state = view.state
    if state is None:
        return
    roles = [event for event in view.issued if event.assigned_to in ROLES]
    first = [event for event in roles if event.assigned_to == "planner"][:1]
    for event in first:
        yield _role_row(view, state, event)
    if not first:
        yield Row(*_WAITING, "planner", "waits for a supervisor" if state.version < 2 else "")
    for step_id, step in state.steps.items():
        yield _step_row(view, step_id, step)
    for event in roles:
        if event not in first:
            yield _role_row(view, state, event)


def _role_row(view: View, state: JobState, event: HandoffIssued) -> Row:
    mark, what = _standing_of(view, event)
    if event.assigned_to == "assessor" and event.handoff_id in view.finished:
        what = f"{_verdict(state, event.attempt)}  {what}"
    name = event.assigned_to if event.attempt == 1 else f"{event.assigned_to} {event.attempt}"
    return Row(*mark, name, what)


def _verdict(state: JobState, attempt: int) -> str:
    if attempt > len(state.rounds):
        return ""
    round_ = state.rounds[attempt - 1]
    if round_.decision is None:
        return "no verdict"
    return " ".join([round_.decision.value, ", ".join(round_.steps)]).rstrip()


def _step_row(view: View, step_id: StepId, step: StepState) -> Row:
    who = f"{step_id} ({step.specialist})"
    attempt = f"attempt {step.attempt}: " if step.attempt > 1 else ""
    match step.status:
        case StepStatus.WAITING:
            waits = _waits_for(view, step)
            again = f"again: {short(view.words.feedback(step_id, step.remarks[-1]).text, 60)}  " if step.remarks else ""
            return Row(*_WAITING, who, f"{again}waits for {', '.join(waits)}" if waits else f"{again}{short(step.outline.title, 60)}")
        case StepStatus.RUNNING | StepStatus.SETTLED | StepStatus.IN_NEED:
            event = next((one for one in reversed(view.issued) if one.handoff_id == step.handoff_id), None)
            if event is None:
                return Row(*_MARKS["failed"], who, short(view.words.why(step.trouble) or "it did not run", 80))
            mark, what = _standing_of(view, event)
            if step.status is StepStatus.SETTLED and event.handoff_id not in view.finished:
                mark, what = _MARKS["failed"], short(view.words.why(step.trouble) or "given up", 80)
            return Row(*mark, who, attempt + what)
        case _:
            assert_never(step.status)


def _waits_for(view: View, step: StepState) -> list[str]:
    steps = view.state.steps if view.state else {}
    return [step_id for step_id in step.outline.depends_on if step_id in steps and steps[step_id].status is not StepStatus.SETTLED]


def _standing_of(view: View, event: HandoffIssued) -> tuple[tuple[str, str], str]:
    """Mark and words for one handoff."""
    standing = view.standings.get(event.handoff_id, HandoffStanding("issued"))
    if (done := view.finished.get(event.handoff_id)) is not None:
        trouble = view.words.why(done.result) if said_by(done) else None
        said = f"  {short(trouble, 80)}" if trouble else ""
        turns, spent, at_most = view.spent(done)
        parts = [done.status.value, figures(turns, "turn"), figures(spent, "token", at_most=at_most), _seconds(view, standing)]
        return _MARKS[done.status.value], "  ".join(part for part in parts if part) + said
    match standing.state:
        case "running" | "done":
            parts = [f"turn {standing.turns + 1}", standing.doing or "starting", _seconds(view, standing)]
            at_most = standing.cut_calls > 0
            parts += [figures(tokens, "token", at_most=at_most)] if (tokens := standing.input_tokens + standing.output_tokens) else []
            return _RUNNING, "  ".join(part for part in parts if part)
        case "dropped":
            return _DROPPED, "stopped"
        case _ if standing.parked_until is not None and standing.parked_until > view.now:
            return _QUEUED, f"parked for {standing.parked_until - view.now:.0f} s: {standing.doing}"
        case _:
            waited = view.now - standing.issued_at if standing.issued_at else 0.0
            return _QUEUED, "in its queue" + (f" for {waited:.0f} s" if waited >= 1 else "")


def _seconds(view: View, standing: HandoffStanding) -> str:
    if standing.started_at is None:
        return ""
    until = standing.finished_at or view.now
    return f"{max(0.0, until - standing.started_at):.1f} s"
