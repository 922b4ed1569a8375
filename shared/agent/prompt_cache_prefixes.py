"""The prefixes of requests that the provider has cached, and the time of their last use. Each
process records its own calls. For a prefix that it has not used, it asks the record of all
processes.

A prefix is the model, the tools, the schema and the common part of the system prompt, which all
handoffs of a specialist share. The tools come first in what the provider caches, so agents with
other tools share nothing. The provider can read a prefix from its cache as soon as its reply to the
first request has begun.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Protocol

from handoff_queue.shared.agent.prices import encode_json
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.model import ModelCall
from handoff_queue.shared.types.usage import Usage

CACHED_S = 300.0
"""Seconds for which the provider keeps a prefix after its last use."""
CACHED_LONG_S = 3_600.0
"""Seconds for which it keeps a prefix that was written for one hour."""
MAX_WAIT_S = 5.0
"""Most seconds that a call waits until an equal prefix is cached."""
MIN_PREFIX_BYTES = 4_096
"""Bytes of the shortest prefix that a call waits for: about 1,024 tokens of English. Providers
cache no shorter prefix.
"""
ASK_EVERY_S = 0.2
"""Seconds after which a process that waits for another process asks again."""
TELL_EVERY_S = 60.0
"""Seconds after which a process tells the others again that a prefix is cached."""
MAX_PREFIXES = 1_000
"""The prefixes that were used last are remembered, up to this number."""


class PrefixState(StrEnum):
    """The use of a prefix by the other processes."""

    FREE = "free"
    """No other process has sent it. This process sends it now, and others wait."""
    SENT = "sent"
    """Another process has sent it, and its reply has not begun."""
    CACHED = "cached"
    """The provider has cached it for another process."""


class SharedPrefixes(Protocol):
    """The prefixes that all processes have sent. `shared.store.prompt_prefixes` implements it."""

    def begin(self, prefix: str) -> PrefixState:
        """Return the state of a prefix. If it is `FREE`, it is `SENT` for the other processes from
        now on, for `MAX_WAIT_S`.
        """
        ...

    def record_cached(self, prefix: str) -> None:
        """Make the prefix `CACHED` for the other processes, for `CACHED_S`."""
        ...

    def release(self, prefix: str) -> None:
        """Make a prefix that this process sends `FREE`."""
        ...


@dataclass(slots=True)
class _Prefix:
    used_at: float = -inf
    """Time of the last reply that began, in Unix seconds."""
    awaited_until: float = -inf
    """End of the time in which other calls wait for the first one."""
    is_uncached: bool = False
    """True if the server has reported that it caches nothing of the request."""
    is_sent: bool = False
    """True while the other processes wait for this process."""
    told_at: float = -inf
    """Time at which this process last told the others that the prefix is cached."""


class PromptCaches:
    """The prefixes that this process has used. All its threads share this object."""

    def __init__(self, shared: SharedPrefixes | None = None) -> None:
        """Make the record of a process.

        Args:
            shared: the record of all processes. None: this process waits for no other process.
        """
        self._shared = shared
        self._lock = threading.Lock()
        self._prefixes: OrderedDict[str, _Prefix] = OrderedDict()

    def claim_prefix(self, prefix: str, now: float) -> bool:
        """Return whether a call may begin, because its prefix is cached or because no other call
        is writing it. In the second case the caller claims the prefix: other calls wait until its
        reply begins, at most `MAX_WAIT_S`. The caller must call `record_call_ended`.
        """
        with self._lock:
            entry = self._get_or_add_prefix(prefix)
            if entry.is_uncached or now - entry.used_at < CACHED_S:
                return True
            if now < entry.awaited_until:
                return False
            if self._shared is None:
                entry.awaited_until = now + MAX_WAIT_S
                return True
        state = self._shared.begin(prefix)
        with self._lock:
            entry = self._get_or_add_prefix(prefix)
            if state is PrefixState.FREE:
                entry.is_sent = True
                entry.awaited_until = now + MAX_WAIT_S
            if state is PrefixState.SENT:
                entry.awaited_until = now + ASK_EVERY_S
            if state is PrefixState.CACHED:
                entry.used_at = entry.told_at = now
        return state is not PrefixState.SENT

    def record_reply_begun(self, prefix: str, now: float, usage: Usage) -> None:
        """Record that a reply has begun, and the usage that the server has reported so far."""
        with self._lock:
            entry = self._get_or_add_prefix(prefix)
            entry.used_at = now
            if usage.input_tokens:
                entry.is_uncached = not (usage.cache_read_tokens or usage.cache_write_tokens)
            is_told = entry.is_uncached or now - entry.told_at < TELL_EVERY_S
            if self._shared is None or is_told:
                return
            entry.told_at = now
            entry.is_sent = False
        self._shared.record_cached(prefix)

    def record_call_ended(self, prefix: str) -> None:
        """Record that a call has ended, so that no other call waits for it any more."""
        with self._lock:
            entry = self._get_or_add_prefix(prefix)
            entry.awaited_until = -inf
            was_sent = entry.is_sent
            entry.is_sent = False
        if self._shared is not None and was_sent:
            self._shared.release(prefix)

    def needs_hour(self, prefix: str, now: float) -> bool:
        """Return whether the last use was too long ago for the usual cache, and recent enough
        for a cache of one hour. Then the next use probably comes as late.
        """
        with self._lock:
            return CACHED_S <= now - self._get_or_add_prefix(prefix).used_at < CACHED_LONG_S

    def _get_or_add_prefix(self, prefix: str) -> _Prefix:
        entry = self._prefixes.pop(prefix, None) or _Prefix()
        self._prefixes[prefix] = entry
        while len(self._prefixes) > MAX_PREFIXES:
            self._prefixes.popitem(last=False)
        return entry


@dataclass(frozen=True, slots=True)
class Prefix:
    """The beginning of a request that a provider can cache."""

    name: str
    is_worth_a_wait: bool
    """True if it is long enough for a cache."""


def compute_prefix(agent: str, call: ModelCall) -> Prefix:
    """Return the prefix of a call, which has the model, the tools, the answer format and the
    common part of the system prompt.

    Args:
        agent: agent that calls.
    """
    content = encode_json((call.model, call.tools, call.output_schema, call.system.common))
    return Prefix(f"{agent}:{compute_digest(content)}", len(content) >= MIN_PREFIX_BYTES)
