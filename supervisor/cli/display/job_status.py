"""Usage of a job, compared with its budget and with its quote. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from handoff_queue.shared.store.jobs import JobStanding
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.quote import Estimate, Quote
from handoff_queue.shared.types.usage import MICROUSD, cost_usd
from handoff_queue.supervisor.cli.display.job_view import JobView
from handoff_queue.supervisor.cli.display.terminal import AT_MOST, figures, money

if TYPE_CHECKING:
    from handoff_queue.shared.store.jobs import HandoffStanding


def headline(view: JobView) -> str:
    """Return the headline of a job.

    Example: `j-0123456789ab  running  12 s  9 of 200 turns  14,210 tokens  $0.0123 of $0.5000`.
    """
    if view.books is None or view.state is None:
        return f"{view.job_id}  queued"
    if view.state.ended:
        until = view.state.as_of
    else:
        until = view.now
    time = f"{max(0.0, until - view.state.started_at):.0f} s"
    return "  ".join(
        [
            view.job_id,
            view.books.status,
            time,
            *against_budget(view.books, view.state.submitted.limits),
        ]
    )


def against_budget(books: JobStanding, limits: JobLimits) -> list[str]:
    """Return the turns, tokens and cost, each with its limit."""
    at_most = books.cut_calls > 0
    cost = money(cost_usd(books.cost_microusd), at_most=at_most)
    return [
        _counted(books.turns, limits.max_turns, "turn"),
        _counted(
            books.input_tokens + books.output_tokens, limits.max_tokens, "token", at_most=at_most
        ),
        cost if limits.max_microusd is None else f"{cost} of {_usd(limits.max_microusd)}",
    ]


def against_quote(view: JobView) -> str | None:
    """Return the usage next to the quote, or None without a quote.

    Example: `12 s of likely 30 s, at most 45 s; $0.0123 of likely $0.0200, at most $0.0310`. A
    figure above the quote has `over` instead of `at most`.

    After a retry, the quote covers only the first run: `the first run likely 30 s, at most 45 s;
    likely $0.0200, at most $0.0310; since the retry 4.0 s, $0.0021`.
    """
    quote = None
    if view.state:
        quote = view.state.quote
    if (
        quote is None
        or view.books is None
        or view.state is None
        or not (quote.seconds or quote.microusd)
    ):
        return None
    if view.state.retries > view.state.retries_when_quoted:
        return f"the first run {'; '.join(_estimates(quote))}; since the retry {_since_the_retry(view, view.state.handoffs)}"
    spent = view.books.cost_microusd
    parts = [
        _against(working_seconds(view), quote.seconds, _seconds) if quote.seconds else None,
        _against(spent, quote.microusd, _usd) if quote.microusd and spent is not None else None,
    ]
    return "; ".join(filter(None, parts)) or None


def _estimates(quote: Quote) -> Iterator[str]:
    for estimate, shown in ((quote.seconds, _seconds), (quote.microusd, _usd)):
        if estimate:
            yield f"likely {shown(estimate.likely)}, at most {shown(estimate.most)}"


def _since_the_retry(view: JobView, handoffs: int) -> str:
    """Return the time and the known cost of the newest handoffs, as many as `handoffs`."""
    newest: list[HandoffStanding | None] = []
    for event in view.issued[len(view.issued) - handoffs :]:
        newest.append(view.standings.get(event.handoff_id))
    costs = [one.cost_microusd for one in newest if one is not None]
    known: list[int] = []
    for cost in costs:
        if cost is not None:
            known.append(cost)
    cut = any(one is not None and one.cut_calls for one in newest)
    if len(known) == len(costs):
        spent = [money(cost_usd(sum(known)), at_most=cut)]
    else:
        spent = []
    return ", ".join([_seconds(working_seconds(view)), *spent])


def working_seconds(view: JobView) -> float:
    """Return the seconds since the start, without waits for a person."""
    state = view.state
    if state is None:
        return 0.0
    if state.question:
        until = state.question.at
    elif state.ended:
        until = state.as_of
    else:
        until = view.now
    return max(0.0, until - state.started_at - state.waited_s)


def _against(taken: float, estimate: Estimate, shown: Callable[[float], str]) -> str:
    most = f"{'over' if taken > estimate.most else 'at most'} {shown(estimate.most)}"
    return f"{shown(taken)} of likely {shown(estimate.likely)}, {most}"


def _counted(count: int, most: int | None, word: str, *, at_most: bool = False) -> str:
    if most is None:
        return figures(count, word, at_most=at_most)
    return f"{AT_MOST if at_most else ''}{count:,} of {figures(most, word)}"


def _seconds(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:,.0f} s"


def _usd(microusd: float) -> str:
    return money(microusd / MICROUSD)
