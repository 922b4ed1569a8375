"""Usage of a job, compared with its budget and with its quote; and a quote as one line. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.batches import MAX_BATCH_S
from handoff_queue.shared.types.cost_quote import Estimate, Quote
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.usage import MICROUSD, to_usd
from handoff_queue.supervisor.cli.display.job_view import JobView
from handoff_queue.supervisor.cli.display.terminal import (
    AT_MOST,
    format_bounded_count,
    format_money,
)
from handoff_queue.supervisor.quoting.cost_simulation import MIN_SCORES

NO_PAST = "no estimate yet: no handoff has ended on this broker"
NO_PRICE = "no estimate: a price is not known, and a batch has no usual time"


def format_quote(quote: Quote) -> str:
    """Return a quote as one line.

    Example: `likely $0.0123, in 9 of 10 cases at most $0.0310; likely 12.0 s, ... (from 120
    earlier handoffs, and the outcome of 45 earlier quotes)`. With fewer than `MIN_SCORES` ended
    quotes, the line has `at most` instead of `in 9 of 10 cases at most`.

    If calls go through batches, the line says which part of the cost is at half price, and which
    time bounds the job.
    """
    at_most = "at most"
    if quote.jobs >= MIN_SCORES:
        at_most = "in 9 of 10 cases at most"
    parts = []
    if quote.microusd:
        parts.append(
            f"likely {format_money(quote.microusd.likely / MICROUSD)}, {at_most}"
            f" {format_money(quote.microusd.most / MICROUSD)}"
        )
    if quote.half_price_microusd is not None:
        parts.append(
            f"{format_money(quote.half_price_microusd / MICROUSD)} of the likely cost is for calls"
            " in batches, at half price; all other calls are at the full price"
        )
    if quote.deadline_s is not None:
        parts.append(
            f"at most {quote.deadline_s:,} s, the deadline, because each call waits up to"
            f" {MAX_BATCH_S // 3_600} h for its batch"
        )
    if quote.live_seconds:
        parts.append(f"without these waits likely {quote.live_seconds.likely:.1f} s")
    if quote.seconds:
        parts.append(f"likely {quote.seconds.likely:.1f} s, {at_most} {quote.seconds.most:.1f} s")
    if not parts:
        return NO_PRICE if quote.handoffs else NO_PAST
    basis = f"from {format_count(quote.handoffs, 'earlier handoff')}"
    if quote.jobs:
        basis += f", and the outcome of {format_count(quote.jobs, 'earlier quote')}"
    return f"{'; '.join(parts)} ({basis})"


def format_headline(view: JobView) -> str:
    """Return the headline of a job.

    Example: `j-k5tq2wbz7x3mhd4n  running  12 s  9 of 200 turns  14,210 tokens  $0.0123 of
    $0.5000`.
    """
    if view.job is None or view.state is None:
        return f"{view.job_id}  queued"
    until = view.state.as_of if view.state.ended else view.now
    time = f"{max(0.0, until - view.state.started_at):.0f} s"
    usage = list_usage_and_limits(view.job, view.state.submitted.limits)
    return "  ".join([view.job_id, view.job.status, time, *usage])


def list_usage_and_limits(info: JobInfo, limits: JobLimits) -> list[str]:
    """Return the turns, tokens and cost, each with its limit if there is one."""
    at_most = info.cut_calls > 0
    cost = format_money(to_usd(info.cost_microusd), at_most=at_most)
    if limits.max_microusd is not None:
        cost += f" of {_format_usd(limits.max_microusd)}"
    turns = _format_count_with_limit(info.turns, limits.max_turns, "turn")
    token_count = info.input_tokens + info.output_tokens
    tokens = _format_count_with_limit(token_count, limits.max_tokens, "token", at_most=at_most)
    return [turns, tokens, cost]


def format_usage_and_quote(view: JobView) -> str | None:
    """Return the usage next to the quote, or None without a quote.

    Example: `12 s of likely 30 s, at most 45 s; $0.0123 of likely $0.0200, at most $0.0310`. A
    figure above the quote has `over` instead of `at most`.

    After a retry, the quote covers only the first run: `the first run likely 30 s, at most 45
    s; likely $0.0200, at most $0.0310; since the retry 4.0 s, $0.0021`.
    """
    if view.state is None or view.job is None:
        return None
    quote = view.state.quote
    if quote is None or not (quote.seconds or quote.microusd):
        return None
    if view.state.retries > view.state.retries_when_quoted:
        estimates = "; ".join(_iterate_estimates(quote))
        since_the_retry = _format_usage_since_retry(view, view.state.handoffs)
        return f"the first run {estimates}; since the retry {since_the_retry}"
    parts: list[str] = []
    if quote.seconds:
        parts.append(
            _compare_to_estimate(compute_working_seconds(view), quote.seconds, _format_seconds)
        )
    cost_microusd = view.job.cost_microusd
    if quote.microusd and cost_microusd is not None:
        parts.append(_compare_to_estimate(cost_microusd, quote.microusd, _format_usd))
    return "; ".join(parts) or None


def _iterate_estimates(quote: Quote) -> Iterator[str]:
    for estimate, format_amount in (
        (quote.seconds, _format_seconds),
        (quote.microusd, _format_usd),
    ):
        if estimate:
            yield f"likely {format_amount(estimate.likely)}, at most {format_amount(estimate.most)}"


def _format_usage_since_retry(view: JobView, handoffs: int) -> str:
    """Return the time since the retry, and the cost of the handoffs since then.

    The cost is left out if the cost of a handoff is unknown.

    Args:
        handoffs: number of the handoffs since the retry.
    """
    microusd = 0
    is_known = True
    is_upper_bound = False
    for event in view.issued[len(view.issued) - handoffs :]:
        info = view.handoffs.get(event.handoff_id)
        if info is None:
            continue
        if info.cut_calls:
            is_upper_bound = True
        if info.cost_microusd is None:
            is_known = False
        else:
            microusd += info.cost_microusd
    time = _format_seconds(compute_working_seconds(view))
    if not is_known:
        return time
    return f"{time}, {format_money(to_usd(microusd), at_most=is_upper_bound)}"


def compute_working_seconds(view: JobView) -> float:
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


def _compare_to_estimate(
    amount: float, estimate: Estimate, format_amount: Callable[[float], str]
) -> str:
    relation = "at most"
    if amount > estimate.most:
        relation = "over"
    likely, most = format_amount(estimate.likely), format_amount(estimate.most)
    return f"{format_amount(amount)} of likely {likely}, {relation} {most}"


def _format_count_with_limit(
    count: int, limit: int | None, word: str, *, at_most: bool = False
) -> str:
    if limit is None:
        return format_bounded_count(count, word, at_most=at_most)
    prefix = ""
    if at_most:
        prefix = AT_MOST
    return f"{prefix}{count:,} of {format_count(limit, word)}"


def _format_seconds(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:,.0f} s"


def _format_usd(microusd: float) -> str:
    return format_money(microusd / MICROUSD)
