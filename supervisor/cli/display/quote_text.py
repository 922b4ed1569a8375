"""A quote as one line of text."""

from __future__ import annotations

from handoff_queue.shared.types.quote import Quote
from handoff_queue.shared.types.usage import MICROUSD
from handoff_queue.supervisor.cli.display.terminal import count_text, money
from handoff_queue.supervisor.quoting.simulation import FEWEST_SCORES

NO_PAST = "no estimate yet: no handoff has ended on this broker"


def quote_line(quote: Quote) -> str:
    """Return a quote as one line.

    Example: `likely $0.0123, in 9 of 10 cases at most $0.0310; likely 12.0 s, ... (from 120
    handoffs here, and how 45 quotes turned out)`. With fewer than `FEWEST_SCORES` ended
    quotes, the line has `at most` instead of `in 9 of 10 cases at most`.
    """
    at_most = "at most"
    if quote.jobs >= FEWEST_SCORES:
        at_most = "in 9 of 10 cases at most"
    parts = []
    if quote.microusd:
        parts.append(
            f"likely {money(quote.microusd.likely / MICROUSD)}, {at_most} {money(quote.microusd.most / MICROUSD)}"
        )
    if quote.seconds:
        parts.append(f"likely {quote.seconds.likely:.1f} s, {at_most} {quote.seconds.most:.1f} s")
    if not parts:
        return NO_PAST
    return f"{'; '.join(parts)} (from {count_text(quote.handoffs, 'handoff')} here, and how {count_text(quote.jobs, 'quote')} turned out)"
