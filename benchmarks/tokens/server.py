"""The Messages-API server of the measurement: it replies from a script, and counts the tokens of
each request as the provider would.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.tokens.estimate import Json, PartOf, estimate_block, estimate_parts
from benchmarks.tokens.jobs import find_job
from benchmarks.tokens.prompt_cache import MIN_TOKENS, PromptCache
from handoff_queue.shared.agent.prices import Prices
from handoff_queue.shared.providers.anthropic.stream import parse_usage
from handoff_queue.shared.types.usage import NOTHING_USED, Usage
from handoff_queue.testing.messages_server import MessagesServer
from handoff_queue.testing.replies import Reply, Script

FIRST_TOKEN_S = 0.2
"""Seconds until the first token of each reply. Until then, no other request can read what this
request writes to the cache.
"""
_PRICES = Prices()


@dataclass(frozen=True, slots=True)
class SystemSpending:
    """The model calls of one system."""

    calls: int = 0
    usage: Usage = NOTHING_USED
    parts: Counter[PartOf] = field(default_factory=Counter)
    """Input tokens by part of the requests."""

    def __add__(self, other: SystemSpending) -> SystemSpending:
        return SystemSpending(
            self.calls + other.calls, self.usage + other.usage, self.parts + other.parts
        )


class CountingServer(MessagesServer):
    """A `MessagesServer` whose replies report the tokens of the request and of the reply."""

    def __init__(self, script: Script, *, min_cached: int = MIN_TOKENS, lenient: str = "") -> None:
        """Bind the port.

        Args:
            min_cached: shortest prefix in tokens that the cache holds.
            lenient: why requests may break rules of the API. Empty: they may not.
        """
        super().__init__(script, lenient_because=lenient)
        self.spendings: list[SystemSpending] = []
        self._cache = PromptCache(min_cached)
        self._lock = threading.Lock()

    def start_warm(self) -> None:
        """Forget all calls so far. The cache keeps the prefixes that several jobs had."""
        with self._lock:
            self.spendings.clear()
            self._cache.keep_common_prefixes()

    @property
    def spending(self) -> SystemSpending:
        """The sum of all calls."""
        total = SystemSpending()
        for spending in self.spendings:
            total += spending
        return total

    def answer(self, request: Json, headers: Mapping[str, str]) -> Reply:
        reply = super().answer(request, headers)
        with self._lock:
            cached = self._cache.look_up(request, find_job(join_messages(request)).request)
        time.sleep(FIRST_TOKEN_S)
        usage_report = {
            "input_tokens": cached.all_tokens - cached.read_tokens - cached.written_tokens,
            "cache_read_input_tokens": cached.read_tokens,
            "cache_creation_input_tokens": cached.written_tokens,
            "output_tokens": _sum_tokens(reply.blocks),
        }
        usage = _PRICES.add_cost(parse_usage(usage_report), str(request["model"]))
        with self._lock:
            self._cache.write(cached)
            self.spendings.append(SystemSpending(1, usage, estimate_parts(request)))
        return replace(reply, usage=usage_report)


def _sum_tokens(blocks: Sequence[Json]) -> int:
    return sum(map(estimate_block, blocks))


def join_messages(request: Json) -> str:
    """Return all messages of a request as one text."""
    return json.dumps(request["messages"], ensure_ascii=False)
