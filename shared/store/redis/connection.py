"""Connections of the store to Redis: clients, scripts by name, Redis's clock, and the
translation of errors.
"""

from __future__ import annotations

import functools
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import redis
from redis.exceptions import NoScriptError
from redis.sentinel import MasterNotFoundError

from handoff_queue.shared.observability.failpoints import run_between
from handoff_queue.shared.settings.redis_url import URL_VARIABLE, read_address
from handoff_queue.shared.store.encryption_at_rest import PLAIN, Sealing
from handoff_queue.shared.store.redis.bounded_answers import limit_answers
from handoff_queue.shared.store.redis.client_factory import create_client
from handoff_queue.shared.store.redis.queue_access import QueueAccess
from handoff_queue.shared.store.redis.script import (
    Script,
    ScriptsMissing,
    build_source,
    list_script_names,
)
from handoff_queue.shared.types.errors import (
    StoreError,
    StoreRefusesWrites,
    StoreUnavailable,
    UnusableRedis,
)

Answer = TypeVar("Answer")
ScriptCall = tuple[list[str], list[Any]]
"""Keys and arguments of one call of a script."""

SOCKET_TIMEOUT_S = 30.0
"""Seconds after which a silent socket counts as dead. The longest script takes less than a
tenth of this time.
"""
COMMAND_TIMEOUT_S = 10.0
"""Socket timeout of a command that a user or a shell script waits for. It is longer than a
slow disk or a Lua script can block Redis.
"""
ONLOOKER_TIMEOUT_S = 4.0
"""Socket timeout of live displays, which report within 5 s that Redis is silent. Their reads
may be repeated.
"""
MAX_CONNECTIONS = 64
"""Connections of a process; further threads wait for a free one. Blocking readers have their
own connections.
"""
MAX_WAITING_BYTES = 4_000_000
"""Bytes of the longest answer to a blocking read: the newest versions of 20,000 jobs."""
NO_CONNECTION_LEFT = "No connection available"
"""redis-py's message for a pool that stayed exhausted for its timeout."""
CLOCK_GOOD_FOR_S = 60.0
"""Seconds for which the measured difference of the clocks is used. The clocks drift apart by
less than 0.1 ms in that time.
"""
CLOCK_RETRY_S = 5.0
"""Seconds until Redis's clock is read again after a failure."""
MAX_CLOCK_READINGS = 3
"""Times that Redis's clock is read for one measurement."""
CLOCK_GOOD_TRIP_S = 0.001
"""Round trip in seconds up to which a reading needs no repetition."""
RETRY_EVERY_S = 0.25
"""Seconds between two tries of `retry_until_answered`."""

READ_ONLY = "Redis is read-only: HANDOFF_REDIS_URL points at a replica, and needs the primary"
FULL = "Redis is full: raise its maxmemory, or delete old jobs (handoff delete)"
NOT_NOW = "Redis cannot run the command now (a failover, or a long script): try again in a moment"
KINDS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
    (
        ScriptsMissing,
        "Redis does not have the scripts, which a supervisor loads: start a supervisor",
    ),
    (redis.AuthenticationError, "Redis refuses the password: check the one in HANDOFF_REDIS_URL"),
    (redis.exceptions.OutOfMemoryError, FULL),
    (redis.exceptions.ReadOnlyError, READ_ONLY),
    (redis.exceptions.BusyLoadingError, "Redis is still loading its data: try again in a moment"),
    ((redis.exceptions.TryAgainError, redis.exceptions.MasterDownError), NOT_NOW),
    (
        redis.InvalidResponse,
        "the server at this address is not Redis: check host and port in HANDOFF_REDIS_URL",
    ),
    (
        MasterNotFoundError,
        "no sentinel knows a primary: check the hosts and master_name in HANDOFF_REDIS_URL",
    ),
)
"""Errors of redis-py and their meaning for a user; the first match counts."""
_SERVER = re.compile(r"(?:connecting to|reading from|writing to) (\S+?:\d+)\b")
"""The host and the port in an error of redis-py."""
CODES = (
    ("READONLY", READ_ONLY),
    (
        "NOAUTH|WRONGPASS|NOPERM",
        "Redis refuses the user: check user and password in HANDOFF_REDIS_URL",
    ),
    ("OOM", FULL),
    ("MISCONF", "Redis cannot save to its disk: see its log"),
    (r"\b(BUSY|NOREPLICAS|MASTERDOWN|TRYAGAIN|UNKILLABLE)\b", NOT_NOW),
)
"""Redis's error codes, and their meaning for a user."""
NOT_ALLOWED = (
    "the Redis user in HANDOFF_REDIS_URL may not do this: use the URL of a user with this right,"
    " such as `console` or `admin` of `handoff keys init --redis`"
)
CLUSTER = (
    "this is a Redis Cluster, which is not supported: name a single primary in HANDOFF_REDIS_URL,"
    " or its sentinels"
)
OF_A_CLUSTER = r"\b(CLUSTERDOWN|CROSSSLOT|MOVED|ASK) |same slot|non local key|in cluster mode"
"""Pattern of errors that only Redis in cluster mode sends. It sends them before its slots are
assigned, for keys of several slots or of another node, and for SELECT.
"""
NO_DATABASE = (
    "Redis has no database of this number: check the one after the last slash of HANDOFF_REDIS_URL"
)
TLS = (
    (
        "CERTIFICATE_VERIFY_FAILED",
        (
            "Redis's certificate is not trusted, or another host's: check host and ssl_ca_certs or"
            " ssl_ca_path in HANDOFF_REDIS_URL"
        ),
    ),
    (
        "ALERT_(CERTIFICATE|BAD_CERTIFICATE|UNKNOWN_CA|HANDSHAKE)",
        "Redis requires a client certificate: check ssl_certfile in HANDOFF_REDIS_URL",
    ),
    (
        r"_ssl\.c",
        (
            "the server at this address does not use TLS, or does not answer: check scheme, host"
            " and port in HANDOFF_REDIS_URL"
        ),
    ),
)
"""Patterns of OpenSSL's messages in an error of a connection or its cause, and their meaning
for a user.
"""


class Connection:
    """Clients of one Redis, which all threads of a process share."""

    def __init__(
        self, url: str, *, timeout_s: float = SOCKET_TIMEOUT_S, url_name: str = URL_VARIABLE
    ) -> None:
        """Make the clients without a connection.

        Args:
            timeout_s: seconds that Redis may be silent.
            url_name: name of the URL in errors.
        """
        self.url = url
        self.url_name = url_name
        self.redis: Any = create_client(url, timeout_s, MAX_CONNECTIONS, url_name)
        """redis-py's client. It is Any, because redis-py's types are unions over protocols and
        versions that we do not use.
        """
        self._timeout_s = timeout_s
        self._waiting: Any = None
        self._making_client = threading.Lock()
        self.prefix = read_address(url).prefix
        """Prefix of each key in Redis. Callers name keys without it."""
        self.sealing: Sealing = PLAIN
        """How the texts of tenants with a key are stored."""
        self.queue_access = QueueAccess(self.redis, self.translate_errors)
        self._clock_offset: float | None = None
        self._clock_until = 0.0

    @property
    def waiting(self) -> Any:
        """Client for blocking reads, which few processes need. Each read keeps a connection, so
        there is no limit.
        """
        with self._making_client:
            if self._waiting is None:
                self._waiting = create_client(self.url, self._timeout_s, None, self.url_name)
                limit_answers(self._waiting.connection_pool, MAX_WAITING_BYTES)
            return self._waiting

    def run_script(self, name: str, keys: list[str], args: list[Any]) -> Any:
        """Run `lua/<name>.lua` and return its answer.

        Raises:
            StoreUnavailable: see `translate_errors`.
        """
        script = load_script(name).with_prefix(self.prefix)

        def run() -> Any:
            return script.run(self.redis, [len(keys), *keys, *args])

        try:  # `translate_errors` takes as long as all else here does
            return run_between("script", name, run, redis.ConnectionError)
        except redis.RedisError as error:
            raise _translate_error(error, self.url_name) from error

    def run_script_for_each(self, name: str, calls: Sequence[ScriptCall]) -> list[Any]:
        """Run `lua/<name>.lua` once for each call, in one round trip. Return the answer of each
        call, or its `StoreError` if that call failed.

        Raises:
            StoreUnavailable: see `translate_errors`.
        """
        with self.translate_errors():
            answers = self._collect_answers(name, calls)
            missing = [n for n, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
            if missing:
                load_script(name).with_prefix(self.prefix).load(self.redis)
                again = self._collect_answers(name, [calls[place] for place in missing])
                for place, answer in zip(missing, again, strict=True):
                    answers[place] = answer
        results: list[Any] = []
        for answer in answers:
            is_error = isinstance(answer, redis.RedisError)
            results.append(_translate_error(answer, self.url_name) if is_error else answer)
        return results

    def run_script_for_all(self, name: str, calls: Sequence[ScriptCall]) -> list[Any]:
        """Return the answers of `run_script_for_each`.

        Raises:
            StoreError: a call failed.
        """
        answers = self.run_script_for_each(name, calls)
        for answer in answers:
            if isinstance(answer, StoreError):
                raise answer
        return answers

    def _collect_answers(self, name: str, calls: Sequence[ScriptCall]) -> list[Any]:
        """Run a script once for each call, and return the answers and errors of Redis."""
        script = load_script(name).with_prefix(self.prefix)
        pipe = self.redis.pipeline(transaction=False)
        for keys, args in calls:
            script.add(pipe, [len(keys), *keys, *args])
        answers: list[Any] = run_between(
            "script", name, lambda: pipe.execute(raise_on_error=False), redis.ConnectionError
        )
        return answers

    def load_scripts(self, of_libraries: Sequence[str] = ()) -> None:
        """Load all scripts that Redis does not have, for the processes that may not load them.

        Args:
            of_libraries: texts of the scripts of other packages.
        """
        scripts = [load_script(name).with_prefix(self.prefix) for name in list_script_names()]
        scripts += map(Script, of_libraries)
        with self.translate_errors():
            known = self.redis.script_exists(*[script.digest for script in scripts])
            for script, is_known in zip(scripts, known, strict=True):
                if not is_known:
                    script.load(self.redis)

    def now(self) -> float:
        """Return Unix time in seconds by Redis's clock. The clock is read once a minute; in
        between, this host's monotonic clock is used.

        Raises:
            StoreUnavailable: Redis is unreachable, and its clock was never read.
        """
        asked_at = time.monotonic()
        if asked_at >= self._clock_until:
            try:
                self._clock_offset = self._ask_the_clock()
            except StoreUnavailable:
                if self._clock_offset is None:
                    raise
                self._clock_until = asked_at + CLOCK_RETRY_S
                return asked_at + self._clock_offset
            self._clock_until = time.monotonic() + CLOCK_GOOD_FOR_S
        return time.monotonic() + (self._clock_offset or 0.0)

    def _ask_the_clock(self) -> float:
        """Return the seconds to add to this host's monotonic clock to get Unix time by Redis's
        clock.

        The quickest of a few readings counts. The error of a reading is at most half of its
        round trip, and the first may include the time to open a connection.
        """
        offset = 0.0
        shortest_s = float("inf")
        for _ in range(MAX_CLOCK_READINGS):
            asked_at = time.monotonic()
            with self.translate_errors():
                seconds, microseconds = self.redis.time()
            trip_s = time.monotonic() - asked_at
            if trip_s < shortest_s:
                shortest_s = trip_s
                unix_s = float(seconds) + float(microseconds) / 1e6
                offset = unix_s - (asked_at + trip_s / 2)
            if trip_s <= CLOCK_GOOD_TRIP_S:
                break
        return offset

    def translate_errors(self) -> AbstractContextManager[None]:
        """Return a context that translates Redis's errors; see the function of this name."""
        return translate_errors(self.url_name)

    def close(self) -> None:
        """Close all sockets, including those to sentinels. `close` of redis-py does not close
        a pool that the caller made.
        """
        for client in filter(None, (self.redis, self._waiting)):
            client.close()
            client.connection_pool.disconnect()
            sentinels = getattr(client.connection_pool, "sentinel_manager", None)
            if sentinels is not None:
                sentinels.close()


@functools.cache
def load_script(name: str) -> Script:
    """Return the script `lua/<name>.lua`, which is read once in a process."""
    return Script(build_source(name))


def retry_until_answered(ask: Callable[[], Answer], is_worth_it: Callable[[], bool]) -> Answer:
    """Call `ask` until Redis answers. The request must be safe to send twice.

    Raises:
        StoreUnavailable: `is_worth_it` returned False before Redis answered.
    """
    while True:
        try:
            return ask()
        except StoreUnavailable:
            if not is_worth_it():
                raise
        time.sleep(RETRY_EVERY_S)


WRONG_TYPE = "WRONGTYPE"
"""Redis's code for a command on a key of another type."""


def read_answers(pipe: Any) -> list[Any]:
    """Return the answers of a pipeline that only reads. None is the answer for a key of another
    type, which another program has written.

    Raises:
        redis.RedisError: another error.
    """
    answers: list[Any] = []
    for answer in pipe.execute(raise_on_error=False):
        if isinstance(answer, redis.ResponseError) and str(answer).startswith(WRONG_TYPE):
            answers.append(None)
        elif isinstance(answer, Exception):
            raise answer
        else:
            answers.append(answer)
    return answers


@contextmanager
def translate_errors(url_name: str = URL_VARIABLE) -> Iterator[None]:
    """Translate Redis's errors into one line that says how to fix the cause.

    Raises:
        StoreUnavailable: Redis is unreachable, is another program, refuses the password, is
            loading, read-only, full or busy.
        UnusableRedis: Redis has no database of the number in its address, or is a cluster.
        StoreError: Redis refused a command, which is an internal error.

    Args:
        url_name: name of Redis's URL in the errors.
    """
    try:
        yield
    except redis.RedisError as error:
        raise _translate_error(error, url_name) from error


def _translate_error(error: redis.RedisError, url_name: str) -> StoreError:
    """Return the error of the store for an error of redis-py."""
    if NO_CONNECTION_LEFT in str(error):
        return StoreUnavailable(
            f"all {MAX_CONNECTIONS} connections of this process to Redis are in use: run fewer"
            " threads"
        )
    text = str(error)  # an error inside a script has Redis's error code in the middle
    if _is_of_a_cluster(error, text):
        return UnusableRedis(_rename_url(url_name, CLUSTER))
    explanation = _find_meaning(error, text)
    if explanation is None and "DB index" in text:
        return UnusableRedis(_rename_url(url_name, NO_DATABASE))
    if explanation in (FULL, READ_ONLY):
        return StoreRefusesWrites(_rename_url(url_name, explanation))
    if explanation:
        return StoreUnavailable(_rename_url(url_name, explanation))
    reason = f"Redis refused the command: {text}"
    if isinstance(error, redis.exceptions.NoPermissionError):
        reason = _rename_url(url_name, f"{NOT_ALLOWED} ({text})")
    return StoreError(reason)


def _rename_url(url_name: str, explanation: str) -> str:
    """Return an explanation with another name of Redis's URL."""
    return explanation.replace(URL_VARIABLE, url_name)


def _is_of_a_cluster(error: redis.RedisError, text: str) -> bool:
    """Return whether only Redis in cluster mode sends this error."""
    if isinstance(error, redis.exceptions.ClusterCrossSlotError | redis.exceptions.AskError):
        return True
    is_cluster_down = isinstance(error, redis.exceptions.ClusterDownError)
    if is_cluster_down and not isinstance(error, redis.exceptions.MasterDownError):
        return True
    return re.search(OF_A_CLUSTER, text) is not None


def _find_meaning(error: redis.RedisError, text: str) -> str | None:
    """Return the meaning of an error for a user, or None if it is unknown."""
    if isinstance(error, redis.ConnectionError | redis.TimeoutError):
        tls_meaning = _find_first_match(TLS, f"{text} {error.__context__}")
        if tls_meaning is not None:
            return tls_meaning
    for kinds, meaning in KINDS:
        if isinstance(error, kinds):
            return meaning
    if isinstance(error, redis.ConnectionError | redis.TimeoutError):
        return describe_unreachable(text)
    if isinstance(error, redis.ResponseError):
        return _find_first_match(CODES, text)
    return None


def describe_unreachable(text: str) -> str:
    """Return the meaning of an error of a connection, with the host and the port in its text."""
    server = _SERVER.search(text)
    at = f" at {server[1]}" if server else ""
    return f"Redis cannot be reached{at}: start it, or correct HANDOFF_REDIS_URL"


def _find_first_match(meanings: Sequence[tuple[str, str]], text: str) -> str | None:
    """Return the meaning of the first pattern that matches the text."""
    for pattern, meaning in meanings:
        if re.search(pattern, text):
            return meaning
    return None
