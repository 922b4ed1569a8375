"""A job as a tree for a terminal. Pure: the input is a view, the output is text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text
from rich.tree import Tree

from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.events import HandoffFinished, HandoffIssued, PlanPatched
from handoff_queue.shared.types.handoff import describe_shared_run
from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.names import ROLES, Role
from handoff_queue.shared.types.usage import to_usd
from handoff_queue.supervisor.cli.display.activity import (
    describe_deferral,
    describe_lost_claims,
    describe_silence,
    describe_tools,
    is_deferred,
)
from handoff_queue.supervisor.cli.display.job_status import format_headline, format_usage_and_quote
from handoff_queue.supervisor.cli.display.job_view import (
    JobView,
)
from handoff_queue.supervisor.cli.display.remedies import describe_with_command
from handoff_queue.supervisor.cli.display.step_copies import (
    MAX_ROWS,
)
from handoff_queue.supervisor.cli.display.tables import choose_rows, cut_name, cut_words
from handoff_queue.supervisor.cli.display.terminal import (
    format_bounded_count,
    format_money,
    shorten,
)
from handoff_queue.supervisor.client.plan_changes import build_change, describe_change
from handoff_queue.supervisor.lifecycle.result_texts import list_refs_with_texts
from handoff_queue.supervisor.lifecycle.state import JobState, StepState, StepStatus


class _Mark(NamedTuple):
    """The first character of a row, and the colour of the row."""

    symbol: str
    style: str


_MARKS = {
    "ok": _Mark("✓", "green"),
    "partial": _Mark("◐", "yellow"),
    "failed": _Mark("✗", "red"),
    "needs_input": _Mark("?", "yellow"),
}
"""Marks of ended handoffs, by the status of the result."""
_WAITING = _Mark("·", "dim")
_QUEUED = _Mark("○", "default")
_RUNNING = _Mark("●", "cyan")
_DROPPED = _Mark("–", "dim")
_RANKS = {"✗": 0, "?": 0, "●": 1, "○": 2, "·": 3, "✓": 4, "◐": 4, "–": 4}
"""Rank of a row by its mark. Rows with a low rank are shown first if not all rows fit."""
_COUNTED = {
    "✓": "done",
    "◐": "partly done",
    "✗": "failed",
    "?": "in need",
    "–": "stopped",
    "●": "at work",
    "○": "queued",
    "·": "wait",
}
_EVALUATED = 2
"""Least version of the journal of a job that a supervisor has evaluated."""
_GUIDE = 4
"""Characters before a row."""
_MARK = 2
"""Characters of the mark of a row."""
_MIN_NAME = 12
"""Characters to which a name may be cut."""
_MIN_ROWS = 3
"""Rows that a small screen must have room for below the headline and the quote."""


@dataclass(frozen=True)
class TreeRow:
    """One line of the tree: a role's handoff, or the latest attempt at a step."""

    mark: _Mark
    name: str
    activity: str

    @property
    def is_below(self) -> bool:
        """Return whether the row belongs to the child job of the row above."""
        return self.name.startswith(" ")


@dataclass(frozen=True)
class JobTree:
    """The tree of a job at one moment.

    The tree fits the height of the terminal. If not all rows fit, failed, running and waiting
    rows come first, and the other rows are counted.
    """

    headline: str
    quoted: str | None
    rows: tuple[TreeRow, ...]
    missing: tuple[str, ...]
    below: int
    """Lines of the screen to leave free below the tree."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        head = Text(self.headline, style="bold")
        width = max(_GUIDE + 1, options.max_width) - _GUIDE
        height = options.size.height
        quote_lines: list[Text] = []
        if self.quoted:
            quote_lines = [Text(f"quoted: {self.quoted}", style="dim")]
        max_reasons = len(self.missing)
        if console.is_terminal:
            max_reasons = max(1, height // 4)
        reasons = self._list_reasons(max_reasons)
        room = MAX_ROWS + 1
        if console.is_terminal:
            inside = options.update(width=width, height=None)
            room = height - self.below - _measure_height(console, inside, reasons)
            above = _measure_height(console, options.update(height=None), [head])
            above += _measure_height(console, inside, quote_lines)
            if room - above < _MIN_ROWS:  # with few lines, the steps come first
                head = _cut_at_line_end(head)
                quote_lines = []
                above = 1
            room = max(1, room - above)
        tree = Tree(head, guide_style="dim")
        for line in (*quote_lines, *_iterate_lines(self.rows, width, room), *reasons):
            tree.add(line)
        yield tree

    def _list_reasons(self, limit: int) -> list[Text]:
        """Return the first `limit` reasons why the job waits, and the number of the others."""
        reasons = [Text(f"! {reason}", style="yellow") for reason in self.missing[:limit]]
        if len(self.missing) > limit:
            more = f"! and {len(self.missing) - limit} more reasons to wait"
            reasons.append(Text(more, style="yellow"))
        return reasons


def _measure_height(console: Console, options: ConsoleOptions, lines: Sequence[Text]) -> int:
    """Return the lines of the screen that these lines take."""
    return sum(len(console.render_lines(line, options)) for line in lines)


def render_tree(view: JobView, *, below: int = 0) -> RenderableType:
    """Return the tree at this moment.

    Args:
        below: lines to leave free below the tree.
    """
    return JobTree(
        format_headline(view),
        format_usage_and_quote(view),
        tuple(iterate_rows(view)),
        tuple(_list_missing(view)),
        below,
    )


def _iterate_lines(rows: Sequence[TreeRow], width: int, room: int) -> Iterator[Text]:
    """Yield these rows in at most `room` lines of `width` characters."""
    visible_rows = rows
    if len(rows) > room:
        ranks = [_RANKS[row.mark.symbol] for row in rows]
        visible_rows = [rows[n] for n in choose_rows(ranks, _find_heads(rows), room - 1)]
    most_name = max(_MIN_NAME, width // 3)
    names = [cut_name(row.name, most_name) for row in visible_rows]
    widest = max(map(len, names), default=0)
    max_words = width - widest - _MARK - 2
    for row, name in zip(visible_rows, names, strict=True):
        line = Text(f"{row.mark.symbol} ", style=row.mark.style)
        line.append(name.ljust(widest), style="dim" if row.mark.style == "dim" else "default")
        line.append(f"  {cut_words(row.activity, max_words)}", style="dim")
        yield _cut_at_line_end(line)
    if len(rows) > room:
        left_out = len(rows) - len(visible_rows)
        text = f"and {left_out:,} more; of {len(rows):,}: {_format_counts(rows)}"
        yield _cut_at_line_end(Text(text, style="dim"))


def _format_counts(rows: Sequence[TreeRow]) -> str:
    """Return the number of rows with each mark: `12 done, 1 failed`."""
    counts = Counter(row.mark.symbol for row in rows)
    parts: list[str] = []
    for mark, words in _COUNTED.items():
        if counts[mark]:
            parts.append(f"{counts[mark]:,} {words}")
    return ", ".join(parts)


def _find_heads(rows: Sequence[TreeRow]) -> list[int]:
    """Return for each row the number of its parent step's row, or its own number."""
    heads: list[int] = []
    for n, row in enumerate(rows):
        heads.append(heads[-1] if row.is_below and heads else n)
    return heads


def _cut_at_line_end(line: Text) -> Text:
    """Return the text, which is cut at the end of the line."""
    line.no_wrap = True
    line.overflow = "ellipsis"
    return line


def iterate_rows(view: JobView) -> Iterator[TreeRow]:
    """Yield the row of the planner, the rows of the steps in plan order, and the other roles.

    The rows of a child job follow the row of its step. A fact-check is a row of the other
    roles.
    """
    state = view.state
    if state is None:
        return
    roles = [event for event in view.issued if event.assigned_to in ROLES or event.is_fact_check]
    first = [event for event in roles if event.assigned_to == Role.PLANNER][:1]
    for event in first:
        yield _build_role_row(view, state, event)
    if not first and _will_be_planned(state):
        activity = ""
        if state.version < _EVALUATED:
            activity = "waits for a supervisor"
        yield TreeRow(_WAITING, Role.PLANNER, activity)
    elif not first and state.version < _EVALUATED:
        yield TreeRow(_WAITING, "job", "waits for a supervisor")
    issued = {event.handoff_id: event for event in view.issued}
    for step_id, step in state.steps.items():
        latest = None
        if step.handoff_id:
            latest = issued.get(step.handoff_id)
        yield _build_step_row(view, step_id, step, latest)
        yield from _iterate_rows_below(view, latest)
    for event in roles:
        if event not in first:
            yield _build_role_row(view, state, event)
    yield from _iterate_untaken_messages(view, state)


def _will_be_planned(state: JobState) -> bool:
    """Return whether a planner will plan the job. One agent and a workflow need no planner."""
    return state.mode in (Mode.TEAM, Mode.ADAPTIVE) and state.plan is None and state.ended is None


def _list_missing(view: JobView) -> list[str]:
    """Return the reasons why the job and its child jobs wait, each once.

    They also say which child jobs get too small a part of the budget.
    """
    reasons = list(map(describe_with_command, view.waiting_reasons))
    if view.job and view.job.child_jobs_lack:
        reasons.append(f"its child jobs get {view.job.child_jobs_lack}")
    for child in view.children.values():
        reasons += _list_missing(child)
    return list(dict.fromkeys(reasons))


def _iterate_rows_below(view: JobView, event: HandoffIssued | None) -> Iterator[TreeRow]:
    """Yield the rows of the child job that does the step."""
    if event is None or event.child is None:
        return
    child = view.children.get(event.child.job_id)
    if child is None:
        return
    for row in iterate_rows(child):
        yield replace(row, name=f"  {row.name}")


def _build_role_row(view: JobView, state: JobState, event: HandoffIssued) -> TreeRow:
    mark, activity = _choose_mark_and_words(view, event)
    if event.assigned_to == Role.ASSESSOR and event.handoff_id in view.finished:
        activity = f"{_format_verdict(state, event.attempt)}  {activity}"
    patch = _find_patch(view, state, event) if event.assigned_to == Role.REPLANNER else None
    if patch:
        change = describe_change(build_change(patch, view.texts))
        activity = f"{shorten(change, 60)}  {activity}"
    name = event.assigned_to
    if event.is_fact_check:
        name = f"{event.step_id} ({event.assigned_to})"
    if event.attempt > 1:
        name = f"{name} {event.attempt}"
    return TreeRow(mark, name, activity + _describe_taken_messages(view, event.handoff_id))


def _find_patch(view: JobView, state: JobState, event: HandoffIssued) -> PlanPatched | None:
    """Return the patch that a replanner call led to, or None before it."""
    finished = view.finished.get(event.handoff_id)
    if finished is None:
        return None
    for patch in state.patches.made:
        if patch.result == finished.result:
            return patch
    return None


def _format_verdict(state: JobState, attempt: int) -> str:
    """Return the verdict of a round and the steps that it sends back, as `REVISE a, b`."""
    if attempt > len(state.rounds):
        return ""
    round_ = state.rounds[attempt - 1]
    if round_.decision is None:
        return "no verdict"
    return f"{round_.decision.value} {', '.join(round_.steps)}".rstrip()


def _build_step_row(
    view: JobView, step_id: StepId, step: StepState, event: HandoffIssued | None
) -> TreeRow:
    """Return the row of a step.

    Args:
        event: its latest handoff; None: it has none.
    """
    name = f"{step_id} ({step.specialist})"
    if step.status is StepStatus.WAITING:
        return TreeRow(_WAITING, name, _describe_waiting(view, step_id, step))
    if step.is_skipped:
        return TreeRow(_DROPPED, name, f"skipped  {_describe_problem(view, step, '')}")
    if event is None and step.is_usable and step.result_status:
        return TreeRow(_MARKS[step.result_status.value], name, _describe_origin(view))
    if event is None:
        return TreeRow(_MARKS["failed"], name, _describe_problem(view, step, "it did not run"))
    mark, activity = _choose_mark_and_words(view, event)
    if step.status is StepStatus.SETTLED and event.handoff_id not in view.finished:
        mark, activity = _MARKS["failed"], _describe_problem(view, step, "given up")
    if step.attempt > 1:
        activity = f"attempt {step.attempt}: {activity}"
    return TreeRow(mark, name, activity + _describe_taken_messages(view, event.handoff_id))


def _describe_problem(view: JobView, step: StepState, otherwise: str) -> str:
    """Return why a step has no complete result in a few words, or `otherwise` without a reason."""
    return shorten(view.texts.explain(step.problem_result) or otherwise, 80)


def _describe_waiting(view: JobView, step_id: StepId, step: StepState) -> str:
    """Return the title of a waiting step, or the steps that it waits for, after the feedback for
    its next attempt.
    """
    activity = shorten(step.outline.title, 60)
    unfinished = _list_unsettled_dependencies(view, step)
    if unfinished:
        activity = f"waits for {', '.join(unfinished)}"
    if not step.remarks:
        return activity
    feedback = view.texts.build_feedback(step_id, step.remarks[-1]).text
    return f"again: {shorten(feedback, 60)}  {activity}"


def _describe_origin(view: JobView) -> str:
    """Return the origin of a result that no handoff of this job made: the job was forked."""
    if view.state is None or view.state.submitted.fork is None:
        return "kept"
    return f"kept from {view.state.submitted.fork.job_id}"


def _describe_taken_messages(view: JobView, handoff_id: HandoffId) -> str:
    """Return the messages that a handoff has taken from users, with the turns."""
    if view.state is None:
        return ""
    messages: list[str] = []
    for message in view.state.messages:
        for taken_message in message.taken:
            if taken_message.handoff_id == handoff_id:
                text = shorten(view.texts.texts.get(message.text.digest, ""), 40)
                messages.append(f"  said at turn {taken_message.turn}: {text}")
    return "".join(messages)


def _iterate_untaken_messages(view: JobView, state: JobState) -> Iterator[TreeRow]:
    """Yield the row of each message that no running agent has taken."""
    for message in state.messages:
        if message.taken:
            continue
        text = shorten(view.texts.texts.get(message.text.digest, ""), 60)
        to = "message"
        if message.step:
            to = f"message to {message.step}"
        if message.in_tasks:
            yield TreeRow(_MARKS["ok"], to, f"in the task of later agents: {text}")
        elif state.ended:
            yield TreeRow(_DROPPED, to, f"the job ended before an agent took it: {text}")
        else:
            yield TreeRow(_WAITING, to, f"not taken yet: {text}")


def _list_unsettled_dependencies(view: JobView, step: StepState) -> list[str]:
    """Return the dependencies of a step that have not ended."""
    unfinished: list[str] = []
    if view.state is None:
        return unfinished
    for step_id in step.outline.depends_on:
        dependency = view.state.steps.get(step_id)
        if dependency is not None and dependency.status is not StepStatus.SETTLED:
            unfinished.append(step_id)
    return unfinished


def _choose_mark_and_words(view: JobView, event: HandoffIssued) -> tuple[_Mark, str]:
    """Return the mark and the words for one handoff."""
    info = view.handoffs.get(event.handoff_id, HandoffInfo("issued"))
    finished = view.finished.get(event.handoff_id)
    if finished is not None:
        return _MARKS[finished.status.value], _format_outcome(view, finished, info)
    match info.state:
        case "running" | "done":
            return _RUNNING, _format_activity(view, event, info)
        case "dropped":
            return _DROPPED, "stopped"
        case _ if is_deferred(info, view.now):
            return _QUEUED, describe_deferral(info, view.now)
        case _ if info.claims:
            return _QUEUED, "waits for another attempt"
        case _:
            activity = "in its queue"
            if event.child:
                activity = "about to begin"
            if info.issued_at and view.now - info.issued_at >= 1:
                activity += f" for {view.now - info.issued_at:.0f} s"
            return _QUEUED, activity


def _format_outcome(view: JobView, finished: HandoffFinished, info: HandoffInfo) -> str:
    """Return the status and the usage of an ended handoff, and the reason if it is not `ok`."""
    usage = view.get_finished_usage(finished)
    parts = [
        finished.status.value,
        format_count(usage.turns, "turn"),
        describe_tools(info),
        format_bounded_count(usage.tokens, "token", at_most=usage.is_upper_bound),
        _format_cost(info),
        _format_seconds(view, info),
        describe_lost_claims(info.lost_claims),
        describe_shared_run(finished.shared),
    ]
    why = view.texts.explain(finished.result) if list_refs_with_texts(finished) else None
    if why:
        parts.append(shorten(why, 80))
    return "  ".join(filter(None, parts))


def _format_activity(view: JobView, event: HandoffIssued, info: HandoffInfo) -> str:
    """Return the activity and the usage so far of a running handoff."""
    parts: list[str] = []
    if event.child:
        parts.append(event.child.job_id)
    else:
        parts += [f"turn {info.turns + 1}", info.doing or "starting"]
    parts += [describe_tools(info), _format_seconds(view, info)]
    tokens = info.input_tokens + info.output_tokens
    if tokens:
        parts.append(format_bounded_count(tokens, "token", at_most=info.cut_calls > 0))
    parts.append(_format_cost(info))
    if not event.child:
        parts.append(describe_silence(view.now, info))
    return "  ".join(filter(None, parts))


def _format_cost(info: HandoffInfo) -> str:
    """Return the cost of a handoff, or an empty text if it is zero or unknown."""
    if info.cost_microusd:
        return format_money(to_usd(info.cost_microusd), at_most=info.cut_calls > 0)
    return ""


def _format_seconds(view: JobView, info: HandoffInfo) -> str:
    if info.started_at is None:
        return ""
    until = info.finished_at or view.now
    return f"{max(0.0, until - info.started_at):.1f} s"
