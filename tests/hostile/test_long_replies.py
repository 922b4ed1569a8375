"""A reply that is slow to read. A worker does no other handoff while one expression searches it, or
while it copies a long text for each new piece.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from handoff_queue.shared.agent.compaction import call_names_in, quoted_passages_in
from handoff_queue.shared.providers.anthropic.stream import PartialReply
from handoff_queue.shared.types.rate_limits import NO_RATE_LIMITS

MAX_S = 10.0
"""Each text takes less than 1 s. Before, each took more than 20 s."""
SEARCHES: dict[str, tuple[Callable[[str], object], str]] = {
    "names of calls": (call_names_in, "a" * 400_000),
    "opening quotation marks": (quoted_passages_in, "“" * 1_600_000),
    "opening angle marks": (quoted_passages_in, "«" * 1_600_000),
}
DELTAS: dict[str, dict[str, Any]] = {
    "thinking": {"type": "thinking_delta", "thinking": "a" * 50},
    "citations": {"type": "citations_delta", "citation": {"type": "char_location"}},
}


@pytest.mark.parametrize("search", SEARCHES)
def test_a_long_summary_is_searched_in_a_short_time(search: str) -> None:
    find, text = SEARCHES[search]
    begun = time.process_time()

    find(text)

    assert time.process_time() - begun < MAX_S


@pytest.mark.parametrize("kind", DELTAS)
def test_a_reply_of_many_pieces_is_put_together_in_a_short_time(kind: str) -> None:
    reply = PartialReply("model", NO_RATE_LIMITS)
    reply.take({"type": "message_start", "message": {}})
    reply.take({"type": "content_block_start", "index": 0, "content_block": {"type": kind}})
    delta = {"type": "content_block_delta", "index": 0, "delta": DELTAS[kind]}
    begun = time.process_time()

    for _ in range(200_000):
        reply.take(delta)

    assert time.process_time() - begun < MAX_S
    reply.take({"type": "message_stop"})
    (block,) = reply.reply(None).content
    assert len(block[kind]) >= 200_000
