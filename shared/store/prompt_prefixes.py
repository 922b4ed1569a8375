"""The prefixes of model calls that the processes of one role have sent. So a fan-out over several
processes writes each prefix once to the provider's cache.
"""

from __future__ import annotations

from handoff_queue.shared.agent.prompt_cache_warmup import CACHED_S, MOST_WAIT_S, PrefixState
from handoff_queue.shared.observability.logs import log_of
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection, translated_errors
from handoff_queue.shared.types.errors import StoreError

_log = log_of(__name__)


class PromptPrefixes:
    """Implements `SharedPrefixes`. A prefix is `ROLE:DIGEST`.

    An error of Redis only costs money: two processes may then write the same prefix.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def begin(self, prefix: str) -> PrefixState:
        key = _key(prefix)
        redis = self._connection.redis
        try:
            with translated_errors():
                is_first = redis.set(key, PrefixState.SENT, nx=True, px=int(MOST_WAIT_S * 1000))
                value = None if is_first else redis.get(key)
        except StoreError as error:
            _log.debug("the prefix of a call is not shared: %s", error)
            return PrefixState.FREE
        if value is None:
            return PrefixState.FREE
        if value == PrefixState.CACHED.encode():
            return PrefixState.CACHED
        return PrefixState.SENT

    def note_cached(self, prefix: str) -> None:
        self._set(prefix, PrefixState.CACHED, CACHED_S)

    def release(self, prefix: str) -> None:
        self._set(prefix, PrefixState.FREE, 0)

    def _set(self, prefix: str, state: PrefixState, seconds: float) -> None:
        key = _key(prefix)
        try:
            with translated_errors():
                if state is PrefixState.FREE:
                    self._connection.redis.delete(key)
                else:
                    self._connection.redis.set(key, state, px=int(seconds * 1000))
        except StoreError as error:
            _log.debug("the prefix of a call is not shared: %s", error)


def _key(prefix: str) -> str:
    role, _, digest = prefix.partition(":")
    return keys.prompt_prefix(role, digest)
