"""What the stored turns of a handoff say about the length of its requests. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from handoff_queue.shared.text.word_forms import count_of
from handoff_queue.shared.types.checkpoints import (
    Checkpoint,
    ContextCleared,
    ContextCompacted,
    ModelCallFailed,
    ModelReplied,
)


def context_use(turns: Iterable[Checkpoint]) -> str:
    """Return how many results were cleared, how often a summary replaced earlier turns, and how
    many tokens the provider caches for one hour; "" if nothing of this happened.

    Example: `12 results cleared, about 48,000 tokens; 1 summary of earlier turns, about 30,000
    tokens; 9,000 tokens cached for one hour`.
    """
    cleared = cleared_tokens = summaries = summarized_tokens = cached_tokens = 0
    for turn in turns:
        match turn:
            case ContextCleared():
                cleared += len(turn.tool_use_ids)
                cleared_tokens += turn.tokens
            case ContextCompacted():
                summaries += 1
                summarized_tokens += turn.tokens
            case ModelReplied() | ModelCallFailed():
                cached_tokens += turn.usage.cache_write_1h_tokens
    parts: list[str] = []
    if cleared:
        parts.append(f"{count_of(cleared, 'result')} cleared, about {cleared_tokens:,} tokens")
    if summaries:
        counted = "1 summary" if summaries == 1 else f"{summaries} summaries"
        parts.append(f"{counted} of earlier turns, about {summarized_tokens:,} tokens")
    if cached_tokens:
        parts.append(f"{cached_tokens:,} tokens cached for one hour")
    return "; ".join(parts)
