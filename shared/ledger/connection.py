"""The one way to Redis: a client from a URL, scripts by name, and Redis's errors in our words."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import redis
from redis.sentinel import Sentinel

from shared.wire.errors import LedgerError, LedgerUnavailable

CONNECT_TIMEOUT_S = 5.0
SOCKET_TIMEOUT_S = 30.0
"""A dead socket is noticed after this; no script takes a tenth of it."""
MAX_CONNECTIONS = 64
"""Per process; threads beyond it wait for one."""
CLOCK_GOOD_FOR_S = 60.0
"""Crystals drift by less than 0.1 ms in this time."""


class Connection:
    """A pool of connections, shared by all threads of a process."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.redis: Any = _client(url)
        """redis-py's client; Any, because its types are unions over protocols and versions that we do not use."""
        self._clock_offset = 0.0
        self._clock_until = 0.0
        self._scripts: dict[str, redis.commands.core.Script] = {}

    def script(self, name: str, keys: list[str], args: list[Any]) -> Any:
        """Run `scripts/<name>.lua`.

        Raises:
            LedgerUnavailable: see `in_our_words`.
        """
        if name not in self._scripts:
            self._scripts[name] = self.redis.register_script(_source(name))
        with in_our_words():
            return self._scripts[name](keys=keys, args=args)

    def now(self) -> float:
        """Unix time in seconds by Redis's clock: asked once a minute, in between this host's monotonic clock carries it on."""
        if time.monotonic() >= self._clock_until:
            with in_our_words():
                seconds, micros = self.redis.time()
            self._clock_offset = float(seconds) + float(micros) / 1e6 - time.monotonic()
            self._clock_until = time.monotonic() + CLOCK_GOOD_FOR_S
        return time.monotonic() + self._clock_offset

    def close(self) -> None:
        self.redis.close()


@functools.cache
def _source(name: str) -> str:
    folder = files("shared.ledger") / "scripts"
    return (folder / "prelude.lua").read_text() + (folder / f"{name}.lua").read_text()


def _client(url: str) -> redis.Redis:
    options: dict[str, Any] = {
        "socket_timeout": SOCKET_TIMEOUT_S,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "health_check_interval": 25,
        "protocol": 2,  # one shape of answers, whatever the server's version
    }
    if url.startswith("sentinel://"):
        return _sentinel(url, options)
    try:
        pool = redis.BlockingConnectionPool.from_url(url, max_connections=MAX_CONNECTIONS, timeout=SOCKET_TIMEOUT_S, **options)
    except ValueError as error:
        raise LedgerUnavailable(f"HANDOFF_REDIS_URL is not a Redis URL ({error}); it looks like redis://:password@host:6379/0") from error
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


@contextmanager
def in_our_words() -> Iterator[None]:
    """Redis's errors as one line that says how to mend it.

    Raises:
        LedgerUnavailable: Redis is gone or is something else, refuses the password, is loading, read-only or full.
        LedgerError: it refused a command; a defect of ours.
    """
    try:
        yield
    except redis.AuthenticationError as error:
        raise LedgerUnavailable("Redis refuses the password: check the one in HANDOFF_REDIS_URL") from error
    except redis.exceptions.OutOfMemoryError as error:
        raise LedgerUnavailable("Redis is full: raise its maxmemory, or delete old jobs (handoff delete)") from error
    except redis.exceptions.ReadOnlyError as error:
        raise LedgerUnavailable("Redis is read-only: HANDOFF_REDIS_URL points at a replica; use the primary") from error
    except redis.exceptions.BusyLoadingError as error:
        raise LedgerUnavailable("Redis is still loading its data: try again in a moment") from error
    except redis.InvalidResponse as error:
        raise LedgerUnavailable("what answers there is not Redis: check host and port in HANDOFF_REDIS_URL") from error
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise LedgerUnavailable("Redis cannot be reached: is it running, and is HANDOFF_REDIS_URL right?") from error
    except redis.ResponseError as error:
        text = str(error)  # from within a script, Redis's own code stands somewhere in the middle
        if "READONLY" in text:
            raise LedgerUnavailable("Redis is read-only: HANDOFF_REDIS_URL points at a replica; use the primary") from error
        if "NOAUTH" in text or "WRONGPASS" in text or "NOPERM" in text:
            raise LedgerUnavailable("Redis refuses us: check user and password in HANDOFF_REDIS_URL") from error
        if "OOM" in text:
            raise LedgerUnavailable("Redis is full: raise its maxmemory, or delete old jobs (handoff delete)") from error
        if "MISCONF" in text:
            raise LedgerUnavailable("Redis cannot save to its disk: see its log") from error
        raise LedgerError(f"Redis did not do what was asked: {text}") from error
