"""The prefixes of model calls that the processes of one agent have sent. So a fan-out over several
processes writes each prefix once to the provider's cache.
"""

from __future__ import annotations

from contextlib import suppress

from handoff_queue.shared.agent.prompt_cache_prefixes import CACHED_S, MAX_WAIT_S, PrefixState
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.types.errors import StoreError


class PromptPrefixes:
    """Implements `SharedPrefixes`. A prefix is `AGENT:DIGEST`.

    An error of Redis only costs money: two processes may then write the same prefix.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def begin(self, prefix: str) -> PrefixState:
        key = _build_key(prefix)
        redis = self._connection.redis
        try:
            with self._connection.translate_errors():
                is_first = redis.set(key, PrefixState.SENT, nx=True, px=int(MAX_WAIT_S * 1000))
                value = None if is_first else redis.get(key)
        except StoreError:
            return PrefixState.FREE
        if value is None:
            return PrefixState.FREE
        if value == PrefixState.CACHED.encode():
            return PrefixState.CACHED
        return PrefixState.SENT

    def record_cached(self, prefix: str) -> None:
        with suppress(StoreError), self._connection.translate_errors():
            self._connection.redis.set(
                _build_key(prefix), PrefixState.CACHED, px=int(CACHED_S * 1000)
            )

    def release(self, prefix: str) -> None:
        with suppress(StoreError), self._connection.translate_errors():
            self._connection.redis.delete(_build_key(prefix))


def _build_key(prefix: str) -> str:
    agent, _, digest = prefix.partition(":")
    return keys.prompt_prefix(agent, digest)
