"""The one way to Redis: a client from a URL, scripts by name, and Redis's errors in our words."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import redis
from redis.sentinel import Sentinel

from shared.config import problem_with_url
from shared.failpoints import around
from shared.wire.errors import LedgerError, LedgerRefuses, LedgerUnavailable, UserError

Answer = TypeVar("Answer")

CONNECT_TIMEOUT_S = 5.0
SOCKET_TIMEOUT_S = 30.0
"""A dead socket is noticed after this; no script takes a tenth of it."""
MAX_CONNECTIONS = 64
"""Per process; threads beyond it wait for one. Those that wait for news do it on connections of their own."""
UNBOUNDED = 2**31
NO_CONNECTION_LEFT = "No connection available"
"""redis-py's words for a pool that stayed exhausted for its timeout."""
CLOCK_GOOD_FOR_S = 60.0
"""Crystals drift by less than 0.1 ms in this time."""
CLOCK_RETRY_S = 5.0
INSIST_EVERY_S = 0.25

READ_ONLY = "Redis is read-only: HANDOFF_REDIS_URL points at a replica, and needs the primary"
FULL = "Redis is full: raise its maxmemory, or delete old jobs (handoff delete)"
NOT_NOW = "Redis cannot do it just now (a failover, or a script that takes long): try again in a moment"
KINDS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
    (redis.AuthenticationError, "Redis refuses the password: check the one in HANDOFF_REDIS_URL"),
    (redis.exceptions.OutOfMemoryError, FULL),
    (redis.exceptions.ReadOnlyError, READ_ONLY),
    (redis.exceptions.BusyLoadingError, "Redis is still loading its data: try again in a moment"),
    ((redis.exceptions.TryAgainError, redis.exceptions.ClusterDownError), NOT_NOW),
    (redis.InvalidResponse, "what answers there is not Redis: check host and port in HANDOFF_REDIS_URL"),
    ((redis.ConnectionError, redis.TimeoutError), "Redis cannot be reached: is it running, and is HANDOFF_REDIS_URL right?"),
)
"""redis-py's errors, the first that fits, and what they mean to a person. A primary that is gone is a ClusterDownError."""
CODES = (
    ("READONLY", READ_ONLY),
    ("NOAUTH|WRONGPASS|NOPERM", "Redis refuses us: check user and password in HANDOFF_REDIS_URL"),
    ("OOM", FULL),
    ("MISCONF", "Redis cannot save to its disk: see its log"),
    (r"\b(BUSY|NOREPLICAS|MASTERDOWN|TRYAGAIN|CLUSTERDOWN|UNKILLABLE)\b", NOT_NOW),
)
"""The same for Redis's own codes."""


INCLUDED = {
    "claim": ("pausing", "pacing", "claiming"),
    "commit": ("pausing", "pacing", "claiming"),
    "finish": ("pacing",),
    "pace": ("pacing",),
    "park": ("pacing",),
    "release": ("pacing",),
    "turn": ("pausing", "pacing"),
}
"""What stands in front of some scripts, beside the prelude and the books, which stand in front of all."""


class Connection:
    """A pool of connections, shared by all threads of a process."""

    def __init__(self, url: str, *, timeout_s: float = SOCKET_TIMEOUT_S) -> None:
        """`timeout_s`: how long Redis may be silent."""
        self.url = url
        self.redis: Any = _client(url, timeout_s)
        """redis-py's client; Any, because its types are unions over protocols and versions that we do not use."""
        self.waiting: Any = _client(url, timeout_s, most=None)
        """The same for calls that wait for news: each holds a connection all the while, so these are as many as are needed."""
        self._clock_offset: float | None = None
        self._clock_until = 0.0
        self._scripts: dict[str, redis.commands.core.Script] = {}

    def script(self, name: str, keys: list[str], args: list[Any]) -> Any:
        """Run `scripts/<name>.lua`.

        Raises:
            LedgerUnavailable: see `in_our_words`.
        """
        if name not in self._scripts:
            self._scripts[name] = self.redis.register_script(_source(name))
        script = self._scripts[name]
        with in_our_words():
            return around("script", name, lambda: script(keys=keys, args=args), redis.ConnectionError)

    def script_for_each(self, name: str, calls: Sequence[tuple[list[str], list[Any]]]) -> list[Any]:
        """Run `scripts/<name>.lua` once for each keys and args, all in one round trip (and one before it, that the server has the script).

        An answer may be a `LedgerError`: that call failed, and the others did not.

        Raises:
            LedgerUnavailable: see `in_our_words`.
        """
        script = self.redis.register_script(_source(name))
        with in_our_words():
            pipe = self.redis.pipeline(transaction=False)
            for keys, args in calls:
                script(keys=keys, args=args, client=pipe)
            answers = around("script", name, lambda: pipe.execute(raise_on_error=False), redis.ConnectionError)
        return [_in_our_words(answer) if isinstance(answer, redis.RedisError) else answer for answer in answers]

    def now(self) -> float:
        """Unix time in seconds by Redis's clock: asked once a minute, in between this host's monotonic clock carries it on."""
        asked_at = time.monotonic()
        if asked_at >= self._clock_until:
            try:
                with in_our_words():
                    seconds, micros = self.redis.time()
            except LedgerUnavailable:
                if self._clock_offset is None:
                    raise
                self._clock_until = asked_at + CLOCK_RETRY_S  # crystals do not drift that fast
                return asked_at + self._clock_offset
            answered_at = time.monotonic()
            self._clock_offset = float(seconds) + float(micros) / 1e6 - (asked_at + answered_at) / 2
            self._clock_until = answered_at + CLOCK_GOOD_FOR_S
        return time.monotonic() + (self._clock_offset or 0.0)

    def close(self) -> None:
        """Of all sockets: a client that was given its pool leaves that open."""
        for client in (self.redis, self.waiting):
            client.close()
            client.connection_pool.disconnect()


@functools.cache
def _source(name: str) -> str:
    folder = files("shared.ledger") / "scripts"
    return "".join((folder / f"{part}.lua").read_text() for part in ("prelude", "books", *INCLUDED.get(name, ()), name))


def _client(url: str, timeout_s: float, most: int | None = MAX_CONNECTIONS) -> redis.Redis:
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": min(CONNECT_TIMEOUT_S, timeout_s),
        "health_check_interval": 25,
        "protocol": 2,  # one shape of answers, whatever the server's version
    }
    if problem := problem_with_url(url):
        raise UserError(f"HANDOFF_REDIS_URL cannot be used: {problem}")
    if url.startswith("sentinel://"):
        return _sentinel(url, options)
    try:
        pool = (
            redis.ConnectionPool.from_url(url, max_connections=UNBOUNDED, **options)
            if most is None
            else redis.BlockingConnectionPool.from_url(url, max_connections=most, timeout=timeout_s, **options)
        )
        pool.connection_class(**pool.connection_kwargs)  # connects to nothing, and knows every option
    except (ValueError, TypeError) as error:
        raise UserError("HANDOFF_REDIS_URL has an option after its ? that is none of redis-py's") from error
    return redis.Redis(connection_pool=pool)


def _sentinel(url: str, options: dict[str, Any]) -> redis.Redis:
    """sentinel://:password@host:26379/0?master_name=mymaster;sentinel://host2:26379 as Celery writes it."""
    parts = [urlsplit(part) for part in url.split(";")]
    name = parse_qs(parts[0].query).get("master_name", ["mymaster"])[0]
    hosts = [(part.hostname or "localhost", part.port or 26379) for part in parts]
    database = int(parts[0].path.strip("/") or 0)
    username, password = (unquote(part) if part else None for part in (parts[0].username, parts[0].password))
    sentinel: Any = Sentinel
    client: redis.Redis = sentinel(hosts, **options).master_for(name, db=database, username=username, password=password, **options)
    return client


def insisted(ask: Callable[[], Answer], is_worth_it: Callable[[], bool]) -> Answer:
    """What Redis answers, if need be after it was away for a while. Only for what may be said twice.

    Raises:
        LedgerUnavailable: it is not worth waiting any longer.
    """
    while True:
        try:
            return ask()
        except LedgerUnavailable:
            if not is_worth_it():
                raise
        time.sleep(INSIST_EVERY_S)


@contextmanager
def in_our_words() -> Iterator[None]:
    """Redis's errors as one line that says how to mend it.

    Raises:
        LedgerUnavailable: Redis is gone or is something else, refuses the password, is loading, read-only, full, or busy with itself.
        LedgerError: it refused a command; a defect of ours.
    """
    try:
        yield
    except redis.RedisError as error:
        raise _in_our_words(error) from error


def _in_our_words(error: redis.RedisError) -> LedgerError:
    if NO_CONNECTION_LEFT in str(error):
        return LedgerUnavailable(f"all {MAX_CONNECTIONS} connections of this process to Redis are in use: run fewer threads in it")
    text = str(error)  # from within a script, Redis's own code stands somewhere in the middle
    found = next((why for kinds, why in KINDS if isinstance(error, kinds)), None)
    if found is None and isinstance(error, redis.ResponseError):
        found = next((why for codes, why in CODES if re.search(codes, text)), None)
    if found in (FULL, READ_ONLY):
        return LedgerRefuses(found)
    return LedgerUnavailable(found) if found else LedgerError(f"Redis did not do what was asked: {text}")
