"""A model of the provider's prompt cache.

A request is a sequence of segments: tools, the schema of the answer, system blocks, and the
blocks of the messages. A mark on a block writes the prefix up to this block. A later request
reads the longest written prefix that ends at a mark, or at most `LOOK_BACK` segments before it. An
entry can be read after the first reply with it has begun.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.tokens.estimate import (
    Json,
    estimate_block,
    estimate_tokens,
    get_blocks,
    list_system_texts,
    without_marks,
)

MIN_TOKENS = 1_024
"""Shortest prefix that is cached. The documentation of the provider gives 1,024 for most
models, and more for some.
"""
LOOK_BACK = 20
"""Segments before a mark in which the provider looks for a written prefix."""


@dataclass(frozen=True, slots=True)
class Cached:
    """Tokens of a request: all, read from the cache, and written to the cache."""

    all_tokens: int
    read_tokens: int
    written_tokens: int
    entries: tuple[str, ...]
    """Digests of the prefixes that the request writes."""


@dataclass(slots=True)
class PromptCache:
    """The entries of one account."""

    min_tokens: int = MIN_TOKENS
    entries: set[str] = field(default_factory=set)
    _jobs: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The jobs whose requests begin with each marked prefix."""

    def look_up(self, request: Json, job: str) -> Cached:
        """Return the tokens of a request of a job, and the entries that it will write."""
        digest = hashlib.sha256(str(request.get("model")).encode())
        total = read_tokens = written_to = 0
        found_tokens = found_at = 0
        entries: list[str] = []
        for number, (text, tokens, mark) in enumerate(_iterate_segments(request)):
            digest.update(text.encode())
            total += tokens
            if total < self.min_tokens:
                continue
            key = digest.hexdigest()
            if key in self.entries:
                found_tokens, found_at = total, number
            if mark:
                if number - found_at <= LOOK_BACK:
                    read_tokens = max(read_tokens, found_tokens)
                written_to = total
                entries.append(key)
                self._jobs[key].add(job)
        written_tokens = max(0, written_to - read_tokens)
        return Cached(total, read_tokens, written_tokens, tuple(entries))

    def write(self, cached: Cached) -> None:
        """Make the entries of a request readable."""
        self.entries.update(cached.entries)

    def keep_common_prefixes(self) -> None:
        """Remove the prefixes of only one job. Later jobs cannot read them."""
        self.entries = {key for key in self.entries if len(self._jobs[key]) > 1}


def _iterate_segments(request: Json) -> Iterator[tuple[str, int, Json | None]]:
    """Yield the text of each segment, its tokens, and its cache mark."""
    for tool in request.get("tools") or ():
        text = json.dumps(without_marks(tool))
        yield text, estimate_tokens(without_marks(tool)), tool.get("cache_control")
    answer_format = request.get("output_config", {}).get("format")
    if answer_format:
        yield json.dumps(answer_format), estimate_tokens(answer_format["schema"]), None
    marks = _list_system_marks(request)
    for text, mark in zip(list_system_texts(request), marks, strict=True):
        yield f"system:{text}", estimate_tokens(text), mark
    choice = request.get("tool_choice") or {"type": "auto"}
    yield json.dumps([choice, request.get("thinking")]), 0, None
    yield from _iterate_message_blocks(request)


def _list_system_marks(request: Json) -> list[Json | None]:
    system = request.get("system") or []
    if isinstance(system, str):
        return [None]
    return [block.get("cache_control") for block in system]


def _iterate_message_blocks(request: Json) -> Iterator[tuple[str, int, Json | None]]:
    flat: list[tuple[str, Json]] = []
    for message in request["messages"]:
        flat += [(message["role"], block) for block in get_blocks(message["content"])]
    for number, (role, block) in enumerate(flat):
        mark = block.get("cache_control")
        if mark is None and number == len(flat) - 1:
            mark = request.get("cache_control")
        text = json.dumps([role, without_marks(block)])
        yield text, estimate_block(block), mark
