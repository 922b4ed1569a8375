"""Outcome of a job for a reader: the answer and its sources on stdout, the usage on stderr.

While the synthesizer writes the answer, the draft shows the final numbers of the sources.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.errors import StoreUnavailable
from handoff_queue.shared.types.events import AnswerMethod, JobStatus
from handoff_queue.shared.types.handoff import LAST_TOOL_ERROR, ResultStatus
from handoff_queue.shared.types.ids import HandoffId, parse_step_id
from handoff_queue.shared.types.names import Role
from handoff_queue.supervisor.cli.display.activity import describe_lost_claims
from handoff_queue.supervisor.cli.display.job_view import (
    JobView,
)
from handoff_queue.supervisor.cli.display.step_copies import (
    StepCopies,
    collapse_steps,
    format_names,
    format_outcomes,
)
from handoff_queue.supervisor.cli.display.terminal import (
    AT_MOST,
    format_money,
    print_progress,
    shorten,
    write_line,
)
from handoff_queue.supervisor.client.answer_draft import AnswerDraft
from handoff_queue.supervisor.client.plan_changes import describe_change
from handoff_queue.supervisor.text.sanitizing import flatten_to_line, replace_unsafe

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.client import Client
    from handoff_queue.supervisor.client.job_outline import JobOutline
    from handoff_queue.supervisor.client.job_result import JobResult


class Draft:
    """The draft of one job's answer. Each part is returned once."""

    def __init__(self, jobs: Client) -> None:
        self._draft = AnswerDraft(jobs.store)

    @property
    def returned_text(self) -> str:
        """The text that was returned so far."""
        return self._draft.returned_text

    def take_new_part(self, view: JobView) -> str:
        """Return the new part of the draft, or an empty text.

        The text is empty if no model writes an answer now, or if the answer is JSON. It is
        also empty if Redis is away, or if the model has started the draft again.
        """
        handoff_id = _find_newest_writer(view)
        if handoff_id is None or _is_form(view):
            return ""
        info = view.handoffs.get(handoff_id)
        if info is None or info.state != "running":
            return ""
        try:
            return self._draft.take_new_part(view.job_id, handoff_id, view.finished.values())
        except StoreUnavailable:  # the next read of the job reports the error, or finds Redis again
            return ""


def _find_newest_writer(view: JobView) -> HandoffId | None:
    """Return the newest handoff of the synthesizer, or None before the first."""
    newest = None
    for event in view.issued:
        if event.assigned_to == Role.SYNTHESIZER:
            newest = event.handoff_id
    return newest


def _is_form(view: JobView) -> bool:
    """Return whether the job has an answer schema. Its answer is JSON and is printed as a whole."""
    return view.state is not None and view.state.submitted.answer_schema is not None


_QUOTE_CHARS = 160
_ANY_COLUMNS = 10_000
"""Width of a table without a limit."""


def format_answer(result: JobResult) -> str:
    """Return the answer as Markdown, or as JSON if the job has an answer schema."""
    if result.answer is None:
        return ""
    if _is_markdown(result):
        return replace_unsafe(str(result.answer))
    return replace_unsafe(json.dumps(result.answer, ensure_ascii=False, indent=2))


def _is_markdown(result: JobResult) -> bool:
    return isinstance(result.answer, str) and not result.asked_for_a_form


def print_answer(result: JobResult, streamed: str = "") -> None:
    """Print the rest of the answer, then its sources.

    With an answer schema, stdout gets only the JSON value, and the sources go to stderr.

    Args:
        streamed: the part that was printed while the model wrote it.
    """
    text = format_answer(result)
    if not text:
        return
    if text.startswith(streamed):
        write_line(text[len(streamed) :])
    else:  # a check changed the draft: print the checked answer
        write_line(f"\n\n---\n\n{text}")
    sources = format_sources(result)
    if sources and _is_markdown(result):
        write_line(f"\n{sources}")
    elif sources:
        print_progress(f"\n{sources}")


def format_sources(result: JobResult) -> str:
    """Return the sources, one line each: `[1] notes/qdrant.md: "..."`."""
    if not result.citations:
        return ""
    lines = ["Sources:"]
    for citation in result.citations:
        source = flatten_to_line(citation["source"])
        quote = shorten(citation["quote"], _QUOTE_CHARS)
        lines.append(f'[{citation["n"]}] {source}: "{quote}"')
    return "\n".join(lines)


def build_account(result: JobResult, *, is_private: bool = False) -> RenderableType:
    """Return the plan, the handoffs, the verdicts, the notes and the totals.

    Args:
        is_private: True if no other command can reach the job.
    """
    parts: list[RenderableType] = []
    if result.plan:
        parts.append(_render_plan(result.plan))
    if result.handoffs:
        parts.append(_Handoffs(result, is_private))
    for patch in result.patches:
        parts.append(Text(f"replanner: {shorten(describe_change(patch), 300)}"))
    for verdict in result.verdicts:
        parts.append(Text(f"review, round {verdict['round']}: {_format_verdict(verdict)}"))
    for remark in result.notes:
        parts.append(Text(f"note: {shorten(remark, 400)}", style="yellow"))
    upper_bound = describe_upper_bound(result)
    if upper_bound:
        parts.append(Text(upper_bound, style="yellow"))
    quote_text = describe_quote(result)
    if quote_text:
        parts.append(Text(quote_text))
    parts.append(Text(format_total(result), style="bold"))
    return Group(*parts)


def format_total(result: JobResult) -> str:
    """Return the last line: the status and the usage."""
    return f"{result.job_id}  {result.status.value}  {format_usage(result)}"


def format_usage(result: JobResult) -> str:
    """Return the usage: `12.3 s  9 turns  13,884 + 962 tokens  $0.0123  model`."""
    if not result.model:
        return format_usage_line(result)
    return f"{format_usage_line(result)}  {result.model}"


def format_usage_line(result: JobResult | JobOutline) -> str:
    """Return the usage without the model."""
    usage = result.usage
    at_most = usage["cut"]["calls"] > 0
    tokens = f"{usage['input_tokens']:,} + {usage['output_tokens']:,} tokens"
    if at_most:
        tokens = AT_MOST + tokens
    turns = format_count(usage["turns"], "turn")
    cost = format_money(usage["cost_usd"], at_most=at_most)
    return f"{result.wall_s:.1f} s  {turns}  {tokens}  {cost}"


def describe_quote(result: JobResult) -> str | None:
    """Return the quote next to the real usage, or None without a quote."""
    quote = result.quote or {}
    parts: list[str] = []
    cost = quote.get("cost")
    if cost:
        parts.append(
            f"{format_money(cost['likely_usd'])} likely, {format_money(cost['most_usd'])} at most"
        )
    time = quote.get("time")
    if time:
        parts.append(f"{time['likely_s']:.1f} s likely, {time['most_s']:.1f} s at most")
    if not parts:
        return None
    return f"quoted: {'; '.join(parts)}; it took {_format_usage_and_quote(result)}"


def _format_usage_and_quote(result: JobResult) -> str:
    """Return the usage that later quotes are compared with: `$0.0123 and 9.0 s of work`."""
    usage = result.usage
    worked_s = result.worked_s or 0.0
    cost = "an unknown cost"
    if usage["cost_usd"] is not None:
        cost = format_money(usage["cost_usd"], at_most=usage["cut"]["calls"] > 0)
    cost_and_work = f"{cost} and {worked_s:.1f} s of work"
    if result.wall_s - worked_s < 0.1:
        return cost_and_work
    waits = "with waits for a person and the time after its end"
    return f"{cost_and_work} (of {result.wall_s:.1f} s, {waits})"


def describe_upper_bound(result: JobResult | JobOutline) -> str | None:
    """Return the part of the totals that is an upper bound, or None."""
    cut_usage = result.usage["cut"]
    if not cut_usage["calls"]:
        return None
    calls = format_count(cut_usage["calls"], "call")
    verb, bound = "were", "their upper bounds"
    if cut_usage["calls"] == 1:
        verb, bound = "was", "its upper bound"
    part = f"{cut_usage['tokens']:,} tokens, {format_money(cut_usage['cost_usd'])}"
    return f"{calls} {verb} cut off, and counted at {bound}: {part}"


def describe_verdict(result: JobResult, *, is_private: bool = False) -> str | None:
    """Return the line about an outcome that is not `ok`, or None.

    Args:
        is_private: True if no other command can reach the job. The line then names no other
            command.
    """
    match result.status:
        case JobStatus.PARTIAL:
            fix = ""
            if not is_private:
                fix = _explain_gap_filling(result)
            return f"{result.job_id} is partial: {_explain_partial(result)}{fix}"
        case JobStatus.FAILED:
            reason = "see `handoff show`"
            if result.notes:
                reason = shorten(result.notes[-1], 300)
            elif is_private:
                reason = "no note says why"
            if _lacks_documents(result, reason):
                reason += ": no documents were given (--docs DIR)"
            return f"{result.job_id} failed: {reason}"
        case JobStatus.CANCELLED:
            return f"{result.job_id} was cancelled"
        case _:
            return None


def _explain_partial(result: JobResult) -> str:
    """Return where the reader finds the reasons of a partial status."""
    if not (result.gaps or result.has_open_points):
        return "the notes say why"
    if _is_markdown(result):
        return "the answer names the missing and open points"
    return "the notes name the missing and open points"


def _explain_gap_filling(result: JobResult) -> str:
    if not result.gaps:
        return ""
    price = ""
    if result.to_finish_usd:
        price = f", for about {format_money(result.to_finish_usd)}"
    return (
        f" (`handoff retry {result.job_id}` runs {format_count(len(result.gaps), 'step')}"
        f" again{price})"
    )


def _lacks_documents(result: JobResult, reason: str) -> bool:
    """Return whether a specialist asked for documents, and the job had none. After the error of a
    tool, documents may not help.
    """
    needs_input = any(outcome["status"] == ResultStatus.NEEDS_INPUT for outcome in result.results)
    if not needs_input or "document" not in reason or LAST_TOOL_ERROR in reason:
        return False
    return not any(handoff.get("artifacts") for handoff in result.handoffs)


def _get_step_id(step: dict[str, Any]) -> str:
    return str(step["id"])


def _render_plan(plan: dict[str, Any]) -> RenderableType:
    heading = f"plan: {format_count(len(plan['steps']), 'step')}"
    if plan.get("method"):
        heading += f", answer: {AnswerMethod(plan['method']).in_words}"
    lines: list[RenderableType] = [Text(heading)]
    for step in collapse_steps(plan["steps"], _get_step_id):
        if isinstance(step, StepCopies):
            specialist = step.all[0]["specialist"]
            count = format_count(len(step.all), "step")
            lines.append(_indent(f"{step.name} · {specialist}: {count}"))
            continue
        after = ""
        if step["depends_on"]:
            after = f" (after {format_names(step['depends_on'])})"
        task = shorten(step["task"], 100)
        lines.append(_indent(f"{step['id']} · {step['specialist']}{after}: {task}"))
    return Group(*lines)


def _indent(text: str) -> RenderableType:
    """Return a text of which also the wrapped lines are indented."""
    return Padding(Text(text), (0, 0, 0, 2), expand=False)


class _Row(NamedTuple):
    """The cells of a handoff, in the order of the columns of `_build_table`."""

    name: str
    assigned_to: str
    state: str
    turns: str
    input_tokens: str
    output_tokens: str
    cost: str
    seconds: str
    worker: str


@dataclass(frozen=True)
class _Handoffs:
    """Table of the handoffs. On a narrow screen, two lines for each handoff, so that no id is
    cut.
    """

    result: JobResult
    is_private: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        results = {result["handoff_id"]: result for result in self.result.results}
        rows: list[_Row] = []
        for handoff in collapse_steps(self.result.handoffs, _get_step):
            if isinstance(handoff, StepCopies):
                yield Text(self._format_copies(handoff, results))
            else:
                rows.append(_build_row(handoff, results.get(handoff["handoff_id"])))
        if not rows:
            return
        table = _build_table(rows)
        unbounded = options.update(max_width=_ANY_COLUMNS)
        if Measurement.get(console, unbounded, table).maximum <= options.max_width:
            yield table
            return
        for row in rows:
            yield Text(f"{row.name}  {row.assigned_to}  {row.state}")
            yield Padding(Text(_format_row_usage(row), style="dim"), (0, 0, 0, 2), expand=False)

    def _format_copies(
        self, copies: StepCopies[dict[str, Any]], results: Mapping[str, dict[str, Any]]
    ) -> str:
        """Return the states of the copies of a step in one line."""
        states: list[str] = []
        lost_claims = 0
        for copy in copies.all:
            states.append(_get_state(copy, results.get(copy["handoff_id"])))
            lost_claims += copy.get("lost_claims", 0)
        parts = [
            format_count(len(states), "handoff"),
            format_outcomes(states),
            describe_lost_claims(lost_claims),
        ]
        line = f"{copies.name}: {', '.join(filter(None, parts))}"
        if self.is_private:
            return line
        return f"{line}; `handoff show {self.result.job_id} --full` has each"


def _format_row_usage(row: _Row) -> str:
    parts: list[str] = []
    if row.turns:
        parts.append(format_count(int(row.turns), "turn"))
        parts.append(f"{row.input_tokens} + {row.output_tokens} tokens")
    parts.append(row.cost)
    if row.seconds:
        parts.append(f"{row.seconds} s")
    parts.append(row.worker)
    return "  ".join(filter(None, parts))


def _build_table(rows: Sequence[_Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("handoff", no_wrap=True)
    table.add_column("by", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for heading in ("turns", "in", "out", "cost", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("worker", style="dim", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _get_step(handoff: dict[str, Any]) -> str:
    return parse_step_id(str(handoff["handoff_id"]))


def _get_state(handoff: dict[str, Any], outcome: dict[str, Any] | None) -> str:
    """Return the status of the result, or the state of a handoff without a result."""
    if outcome:
        return str(outcome["status"])
    return str(handoff.get("state") or "issued")


def _build_row(handoff: dict[str, Any], outcome: dict[str, Any] | None) -> _Row:
    started_at, finished_at = handoff.get("started_at"), handoff.get("finished_at")
    seconds = ""
    if started_at and finished_at:
        seconds = f"{finished_at - started_at:.2f}"
    state = _get_state(handoff, outcome)
    if handoff.get("lost_claims"):
        state += f", {describe_lost_claims(handoff['lost_claims'])}"
    if outcome and outcome.get("shared"):
        state += f", shared with {outcome['shared']['job_id']}"
    row = _Row(
        name=handoff["handoff_id"],
        assigned_to=handoff["assigned_to"],
        state=state,
        turns="",
        input_tokens="",
        output_tokens="",
        cost="",
        seconds=seconds,
        worker=handoff.get("worker") or "",
    )
    usage = handoff.get("usage")
    if not usage or not usage["turns"]:
        return row
    at_most = usage["cut"]["calls"] > 0
    prefix = AT_MOST if at_most else ""
    return row._replace(
        turns=str(usage["turns"]),
        input_tokens=f"{prefix}{usage['input_tokens']:,}",
        output_tokens=f"{prefix}{usage['output_tokens']:,}",
        cost=format_money(usage["cost_usd"], at_most=at_most),
    )


def _format_verdict(verdict: dict[str, Any]) -> str:
    """Return the decision, the scores of the whole answer, the revisions and the open points."""
    if verdict["verdict"] is None:
        return f"none ({shorten(verdict.get('problem') or '', 120)})"
    decision = verdict["verdict"]
    if verdict.get("checked"):
        decision = f"{decision} ({verdict['checked']})"
    parts = [decision]
    scores: list[str] = []
    for score in verdict["scores"]:
        if score["step"] is None:
            scores.append(f"{score['criterion']} {score['score']}")
    if scores:
        parts.append(", ".join(scores))
    for revision in verdict["revisions"]:
        parts.append(f"{revision['step']}: {shorten(revision['problem'], 100)}")
    for point in verdict["open_points"]:
        parts.append(f"open: {shorten(point, 100)}")
    return " · ".join(parts)
