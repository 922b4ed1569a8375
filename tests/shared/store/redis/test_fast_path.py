"""The fast path to Redis keeps the guarantees of redis-py about errors, retries and the order of
answers.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest
import redis
from redis.backoff import NoBackoff
from redis.connection import HiredisRespSerializer
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from handoff_queue.shared.store.redis import fast_path as direct
from handoff_queue.shared.store.redis.client_factory import client_for
from handoff_queue.shared.store.redis.fast_path import (
    DirectClient,
    DirectPacker,
    KernelTimeoutSocket,
    ManagedConnection,
)
from tests.doubles.raw_server import Conversation, RawServer
from tests.waiting import wait_until

TIMEOUT_S = 0.2
NAME = "under-test"


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    client_under_test: Any = client_for(redis_url, 30.0, 3)
    client_under_test.connection_pool.connection_kwargs["client_name"] = NAME
    yield client_under_test
    client_under_test.connection_pool.disconnect()


@pytest.fixture
def admin(redis_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(redis_url) as made:
        yield made


def open_connections(admin: Any) -> int:
    """Return the number of connections of the client under test. The fixtures' connections have no
    name.
    """
    return sum(connection["name"] == NAME for connection in admin.client_list())


def kill_connections(admin: Any) -> None:
    before = admin.client_id()
    admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    wait_until(
        lambda: [connection["id"] for connection in admin.client_list()] == [str(before)],
        expected="the end of the others",
    )


def test_a_connection_that_the_server_has_closed_is_opened_again(
    client: Any, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "FRESH_S", 0)
    client.ping()
    kill_connections(admin)

    assert client.ping()
    assert open_connections(admin) == 1


def test_a_pipeline_after_the_server_has_closed_its_connection(
    client: Any, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "FRESH_S", 0)
    client.ping()
    kill_connections(admin)

    assert client.pipeline(transaction=False).ping().ping().execute() == [True, True]


def test_a_connection_that_is_closed_while_it_is_fresh_fails_once(
    client: Any, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "FRESH_S", 60)
    client.ping()
    kill_connections(admin)

    with pytest.raises(redis.ConnectionError):
        client.ping()
    assert client.ping()
    assert open_connections(admin) == 1


def test_an_unread_answer_is_not_taken_for_the_next_commands_answer(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "FRESH_S", 60)
    client.ping()
    leave_reply_unread(client, client.connection_pool.get_connection())

    assert client.echo("ours") == b"ours"


def test_an_unread_answer_is_not_taken_by_a_caller_that_waited_for_the_connection(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "FRESH_S", 60)
    client: Any = client_for(redis_url, 30.0, 1)
    client.ping()
    pool = client.connection_pool
    held = pool.get_connection()
    with ThreadPoolExecutor(1) as threads:
        thread_id = threads.submit(threading.get_ident).result()
        waiting = threads.submit(pool.get_connection)
        wait_until(
            lambda: sys._current_frames()[thread_id].f_code is type(pool.pool).get.__code__,
            expected="who waits",
        )
        held.answered_at = time.monotonic()
        pool.release(held)
        leave_reply_unread(client, waiting.result(30))

    assert client.echo("ours") == b"ours"
    pool.disconnect()


class FixedSentinels:
    """Sentinels that return this server."""

    connection_kwargs: ClassVar[dict[str, Any]] = {}

    def __init__(self, port: int) -> None:
        self._port = port

    def discover_master(self, _name: str) -> tuple[str, int]:
        return "127.0.0.1", self._port


@pytest.mark.parametrize("is_named_by_sentinels", [False, True])
def test_an_interrupted_answer_is_not_taken_by_the_next_caller(
    client: Any, admin: Any, is_named_by_sentinels: bool
) -> None:
    """The program continues after Ctrl-C."""
    if is_named_by_sentinels:
        options = {
            name: client.connection_pool.connection_kwargs[name]
            for name in ("password", "socket_timeout", "protocol")
        }
        manager: Any = FixedSentinels(client.connection_pool.connection_kwargs["port"])
        pool: Any = SentinelConnectionPool(
            "one", manager, connection_class=ManagedConnection, **options
        )  # type: ignore[no-untyped-call]
        client = DirectClient(connection_pool=pool)
    client.ping()
    admin.client_pause(1_000)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(KeyboardInterrupt):
        client.echo("another's")
    signal.signal(signal.SIGALRM, before)

    assert client.echo("ours") == b"ours"
    client.connection_pool.disconnect()


def leave_reply_unread(client: Any, connection: Any) -> None:
    connection.send_command("ECHO", "another's")
    wait_until(connection.can_read, expected="the answer")
    client.connection_pool.release(connection)


def server_that(say: Callable[[RawServer, Conversation], None]) -> RawServer:
    """Return a server that greets like Redis and then calls `say` for each command."""

    def talk(conversation: Conversation) -> None:
        while part := conversation.connection.recv(65536):
            if b"SETINFO" in part or b"PING" in part:
                conversation.say(b"+PONG\r\n" if b"PING" in part else b"+OK\r\n")
            else:
                say(server, conversation)

    server = RawServer(talk)
    return server


def say_nothing(server: RawServer, _: Conversation) -> None:
    server.over.wait(10)


def say_half(server: RawServer, conversation: Conversation) -> None:
    conversation.say(b"$5\r\nha")
    server.over.wait(10)


def say_half_and_close(_: RawServer, conversation: Conversation) -> None:
    conversation.say(b"$5\r\nha")
    raise ConnectionResetError


def close_connection(_: RawServer, __: Conversation) -> None:
    raise ConnectionResetError


def say_loading(_: RawServer, conversation: Conversation) -> None:
    conversation.say(b"-LOADING Redis is loading the dataset in memory\r\n")


def say_no_redis(_: RawServer, conversation: Conversation) -> None:
    conversation.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(
    "say", [say_nothing, say_half, say_half_and_close, close_connection, say_loading, say_no_redis]
)
def test_failures_have_the_same_type_and_number_as_with_redis_py(
    say: Callable[[RawServer, Conversation], None],
) -> None:
    with server_that(say) as server:
        ours: Any = client_for(server.url.replace("http", "redis"), TIMEOUT_S, 3)
        options = ours.connection_pool.connection_kwargs
        options["retry"] = Retry(NoBackoff(), 2)
        blocking: Any = redis.BlockingConnectionPool
        plain: Any = redis.Redis(
            connection_pool=blocking(
                3, TIMEOUT_S, redis.Connection, **{**options, "command_packer": None}
            )
        )
        errors = []
        for client in (plain, ours):
            before = server.accepted
            with pytest.raises(redis.RedisError) as failed:
                client.execute_command("EVALSHA", "a", 0)
            errors.append((type(failed.value), str(failed.value), server.accepted - before))
            client.connection_pool.disconnect()

    assert errors[0] == errors[1]
    assert errors[0][2] == (1 if say is say_no_redis else 3)


def test_a_command_is_sent_as_often_as_redis_py_sends_it(client: Any) -> None:
    plain: Any = redis.BlockingConnectionPool().make_connection()  # type: ignore[no-untyped-call]

    assert client.connection_pool.make_connection().retry == plain.retry


def test_the_second_half_of_an_answer_reaches_no_other_caller() -> None:
    def say(server: RawServer, conversation: Conversation) -> None:
        if conversation.number == 1:
            say_half(server, conversation)
        else:
            conversation.say(b"$5\r\nwhole\r\n")

    with server_that(say) as server:
        client: Any = client_for(server.url.replace("http", "redis"), TIMEOUT_S, 3)

        with pytest.raises(redis.TimeoutError):
            client.execute_command("EVALSHA", "a", 0)
        assert client.execute_command("EVALSHA", "a", 0) == b"whole"
        client.connection_pool.disconnect()


@pytest.mark.parametrize(
    "code",
    "READONLY OOM BUSY NOSCRIPT MISCONF MASTERDOWN NOPERM NOAUTH EXECABORT ERR OTHER".split(),
)
def test_an_error_has_the_same_type_as_with_redis_py(client: Any, admin: Any, code: str) -> None:
    kinds = []
    for connection in (client, admin):
        with pytest.raises(redis.RedisError) as failed:
            connection.eval(f"return redis.error_reply('{code} said so')", 0)
        kinds.append((type(failed.value), str(failed.value)))

    assert kinds[0] == kinds[1]
    assert client.echo("after it") == b"after it"


def test_many_threads_share_the_limited_number_of_connections(client: Any, admin: Any) -> None:
    with ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(lambda number: client.echo(str(number)), range(600)))

    assert answers == [str(number).encode() for number in range(600)]
    assert open_connections(admin) <= 3


def test_a_connections_socket_uses_the_systems_timeouts(
    client: Any,
) -> None:
    connection = client.connection_pool.get_connection()

    assert isinstance(connection._sock, KernelTimeoutSocket)
    client.connection_pool.release(connection)


def test_consecutive_commands_use_one_connection(client: Any, admin: Any) -> None:
    for _ in range(10):
        client.ping()

    assert open_connections(admin) == 1


FORKS = """
import os, sys
from handoff_queue.shared.store.redis.client_factory import client_for
client = client_for(sys.argv[1], 30.0, 3)
ours = client.client_id()
if (child := os.fork()) == 0:
    os._exit(0 if client.client_id() != ours else 1)
status = os.waitpid(child, 0)[1]
sys.exit(os.waitstatus_to_exitcode(status) or client.client_id() != ours)
"""


def test_a_forked_process_has_separate_connections(redis_url: str) -> None:
    assert (
        subprocess.run([sys.executable, "-c", FORKS, redis_url], check=False, timeout=30).returncode
        == 0
    )


@pytest.mark.parametrize(
    "command",
    [
        ("SCRIPT LOAD", "x"),
        (b"SCRIPT LOAD", "x"),
        (b"GET", b"a"),
        ("SET", bytearray(b"a"), memoryview(b"b")),
        ("SET", "ä", 1.5),
    ],
)
def test_commands_are_packed_as_by_redis_py(command: tuple[Any, ...]) -> None:
    assert DirectPacker().pack(*command) == HiredisRespSerializer().pack(*command)


def test_an_unpackable_value_is_redis_pys_error(client: Any) -> None:
    with pytest.raises(redis.DataError):
        client.execute_command("SET", "a", None)
