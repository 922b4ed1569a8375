"""A client opens its connections again, and no answer reaches the wrong caller."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.redis.client_factory import PlainConnection, create_client
from tests.doubles.raw_server import Conversation, RawServer
from tests.waiting import MAX_WAIT_S, wait_until

TIMEOUT_S = 0.2
NAME = "under-test"
BY_SENTINELS = "sentinel://127.0.0.1:26379/0?master_name=one"


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    client_under_test: Any = create_client(redis_url, 30.0, 3)
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


def test_a_connection_that_the_server_has_closed_is_opened_again(client: Any, admin: Any) -> None:
    client.ping()
    kill_connections(admin)

    assert client.ping()
    assert open_connections(admin) == 1


def test_a_pipeline_after_the_server_has_closed_its_connection(client: Any, admin: Any) -> None:
    client.ping()
    kill_connections(admin)

    assert client.pipeline(transaction=False).ping().ping().execute() == [True, True]


def test_an_unread_answer_is_not_taken_for_the_next_commands_answer(client: Any) -> None:
    connection = client.connection_pool.get_connection()
    connection.send_command("ECHO", "another's")
    wait_until(connection.can_read, expected="the answer")
    client.connection_pool.release(connection)

    assert client.echo("ours") == b"ours"


class FixedSentinels:
    """Sentinels that return the server of these options of a connection."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    def discover_master(self, _name: str) -> tuple[str, int]:
        return self._options["host"], self._options["port"]


@pytest.mark.slow
@pytest.mark.parametrize("is_named_by_sentinels", [False, True])
def test_an_interrupted_answer_is_not_taken_by_the_next_caller(
    client: Any, admin: Any, is_named_by_sentinels: bool
) -> None:
    """The program continues after Ctrl-C."""
    if is_named_by_sentinels:
        options = client.connection_pool.connection_kwargs
        client = create_client(BY_SENTINELS, 30.0, 3)
        client.connection_pool.proxy.sentinel_manager = FixedSentinels(options)
        client.connection_pool.connection_kwargs["password"] = options["password"]
    client.ping()
    admin.client_pause(1_000)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(KeyboardInterrupt):
        client.echo("another's")
    signal.signal(signal.SIGALRM, before)

    assert client.echo("ours") == b"ours"
    client.connection_pool.disconnect()


@pytest.mark.parametrize("url", ["redis://127.0.0.1:6379/0", BY_SENTINELS])
def test_messages_and_the_store_use_the_same_kind_of_connection(url: str) -> None:
    kind = create_client(url, 30.0, 3).connection_pool.connection_class
    with make_app("patient", url, Settings(), ["q"]).connection_for_write() as connection:
        assert connection.get_transport_cls().Channel.connection_class is kind


def test_the_second_half_of_an_answer_reaches_no_other_caller() -> None:
    def talk(conversation: Conversation) -> None:
        while part := conversation.connection.recv(65536):
            if b"SETINFO" in part or b"PING" in part:
                conversation.say(b"+PONG\r\n" if b"PING" in part else b"+OK\r\n")
            elif conversation.number == 1:
                conversation.say(b"$5\r\nha")
                server.over.wait(10)
            else:
                conversation.say(b"$5\r\nwhole\r\n")

    server = RawServer(talk)
    with server:
        client: Any = create_client(server.url.replace("http", "redis"), TIMEOUT_S, 3)

        with pytest.raises(redis.TimeoutError):
            client.execute_command("EVALSHA", "a", 0)
        assert client.execute_command("EVALSHA", "a", 0) == b"whole"
        client.connection_pool.disconnect()


def test_many_threads_share_the_limited_number_of_connections(client: Any, admin: Any) -> None:
    with ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(lambda number: client.echo(str(number)), range(600)))

    assert answers == [str(number).encode() for number in range(600)]
    assert open_connections(admin) <= 3


FORKS = """
import os, sys
from handoff_queue.shared.store.redis.client_factory import PlainConnection, create_client
client = create_client(sys.argv[1], 30.0, 3)
ours = client.client_id()
if (child := os.fork()) == 0:
    os._exit(0 if client.client_id() != ours else 1)
status = os.waitpid(child, 0)[1]
sys.exit(os.waitstatus_to_exitcode(status) or client.client_id() != ours)
"""


@pytest.mark.slow
def test_a_forked_process_has_separate_connections(redis_url: str) -> None:
    assert (
        subprocess.run(
            [sys.executable, "-c", FORKS, redis_url], check=False, timeout=MAX_WAIT_S
        ).returncode
        == 0
    )


class _CollectedLast(PlainConnection):
    """A connection that redis-py closes too late, after Python has collected the socket."""

    def __del__(self) -> None:
        pass


@pytest.mark.slow
def test_an_open_client_closes_its_socket_when_python_collects_it(redis_url: str) -> None:
    unclosed: Any = create_client(redis_url, 30.0, None)
    unclosed.connection_pool.connection_class = _CollectedLast
    unclosed.ping()
    (connection,) = unclosed.connection_pool._available_connections
    opened = connection._sock
    unclosed.itself = unclosed  # a cycle: only the garbage collection frees it
    del unclosed, connection
    gc.collect()

    assert opened.fileno() == -1
