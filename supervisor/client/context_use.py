"""The cleared results, the summaries and the cached tokens of a handoff, in words."""

from __future__ import annotations

from collections.abc import Iterable

from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.checkpoints import (
    Checkpoint,
    ContextCleared,
    ContextCompacted,
    ModelCallFailed,
    ModelReplied,
)


def describe_context_use(turns: Iterable[Checkpoint]) -> str:
    """Return the number of cleared results, of summaries in place of earlier turns, and of tokens
    that the provider caches for one hour. A result or a summary of the provider is marked. Return
    "" if all numbers are 0.

    Example: `12 results cleared, about 48,000 tokens; 1 summary of earlier turns, about 30,000
    tokens; 9,000 tokens cached for one hour`.
    """
    cleared = cleared_tokens = summaries = summarized_tokens = cached_tokens = 0
    cleared_there = summaries_there = 0
    for turn in turns:
        match turn:
            case ContextCleared():
                cleared += len(turn.tool_use_ids)
                cleared_tokens += turn.tokens
                cleared_there += len(turn.tool_use_ids) if turn.by_provider else 0
            case ContextCompacted():
                summaries += 1
                summarized_tokens += turn.tokens
                summaries_there += bool(turn.by_provider)
            case ModelReplied() | ModelCallFailed():
                cached_tokens += turn.usage.cache_write_1h_tokens
    parts: list[str] = []
    if cleared:
        provider_remark = _format_provider_part(cleared_there, cleared)
        counted_items = f"{format_count(cleared, 'result')} cleared{provider_remark}"
        parts.append(f"{counted_items}, about {cleared_tokens:,} tokens")
    if summaries:
        counted_items = "1 summary" if summaries == 1 else f"{summaries} summaries"
        provider_remark = _format_provider_part(summaries_there, summaries)
        parts.append(
            f"{counted_items} of earlier turns{provider_remark}, about {summarized_tokens:,} tokens"
        )
    if cached_tokens:
        parts.append(f"{cached_tokens:,} tokens cached for one hour")
    return "; ".join(parts)


def _format_provider_part(number: int, total: int) -> str:
    """Return the words for the part that the provider has made."""
    if not number:
        return ""
    if number == total:
        return " by the provider"
    return f", {number} by the provider"
