"""Each failure of Redis becomes one line with a remedy."""

from __future__ import annotations

import contextlib
import gc
import socket
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from handoff_queue.shared.store.redis.connection import (
    MAX_CONNECTIONS,
    Connection,
    retry_until_answered,
    translate_errors,
)
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import StoreError, StoreUnavailable, UserError
from tests.doubles.jobs import a_job, granted_claim, issue
from tests.waiting import wait_until


@pytest.fixture
def admin(redis_url: str) -> Iterator[redis.Redis]:
    """Yield a client that may change the server's configuration. Restore the configuration
    afterwards.
    """
    with redis.Redis.from_url(redis_url) as client:
        before = client.config_get("maxmemory")
        yield client
        client.config_set("maxmemory", before["maxmemory"])
        client.replicaof("NO", "ONE")


def test_a_closed_port_is_reported() -> None:
    with pytest.raises(
        StoreUnavailable, match=r"^Redis cannot be reached at 127\.0\.0\.1:1: start it, or correct"
    ):
        Connection("redis://user:canary@127.0.0.1:1/0").now()


def test_a_server_that_accepts_no_connection_in_time_is_named() -> None:
    """The queue of the listening socket is full, so the kernel answers no further connection."""
    with socket.socket() as server, contextlib.ExitStack() as waiting:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        for _ in range(4):
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))

        with pytest.raises(
            StoreUnavailable, match=f"^Redis cannot be reached at 127.0.0.1:{port}:"
        ):
            Connection(f"redis://127.0.0.1:{port}/0", timeout_s=0.2).now()


def test_the_wrong_password(redis_url: str) -> None:
    with pytest.raises(StoreUnavailable, match="password"):
        Connection("redis://:wrong@" + redis_url.split("@")[1]).now()


def test_no_password(redis_url: str) -> None:
    with pytest.raises(StoreUnavailable, match="HANDOFF_REDIS_URL"):
        Connection("redis://" + redis_url.split("@")[1]).now()


@pytest.mark.parametrize(
    "url", ["localhost:6379", "http://localhost", "", "sentinel://h/abc", "redis://h/0?foo=bar"]
)
def test_an_invalid_redis_url_is_reported(url: str) -> None:
    with pytest.raises(UserError, match="HANDOFF_REDIS_URL"):
        Connection(url)


def test_a_database_that_redis_does_not_have(redis_url: str) -> None:
    with pytest.raises(UserError, match=r"database of this number.* HANDOFF_REDIS_URL") as raised:
        Connection(f"{redis_url.rpartition('/')[0]}/99").now()

    assert isinstance(raised.value, StoreError)
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    "error",
    [
        redis.exceptions.ClusterCrossSlotError("Keys in request don't hash to the same slot"),
        redis.exceptions.MovedError("3999 127.0.0.1:6381"),
        redis.ResponseError(
            "Script attempted to access a non local key in a cluster node script: 0a, on"
            " @user_script:1."
        ),
        redis.ResponseError("SELECT is not allowed in cluster mode"),
        redis.exceptions.ClusterDownError("Hash slot not served"),
        redis.ResponseError("CLUSTERDOWN Hash slot not served, on @user_script:1."),
    ],
    ids=[
        "several slots",
        "another node's key",
        "another node's key in a script",
        "a database",
        "no slots",
        "no slots in a script",
    ],
)
def test_a_redis_cluster_is_refused_at_its_first_error(
    error: redis.ResponseError,
) -> None:
    with (
        pytest.raises(
            UserError, match=r"Redis Cluster, which is not supported.* HANDOFF_REDIS_URL"
        ) as raised,
        translate_errors(),
    ):
        raise error

    assert raised.value.exit_code == 2


@pytest.mark.parametrize("place", ["nowhere", "a-file"])
def test_an_invalid_ca_folder_is_reported(tmp_path: Path, place: str) -> None:
    (tmp_path / "a-file").touch()
    with pytest.raises(UserError, match="ssl_ca_path cannot be read"):
        Connection(f"rediss://127.0.0.1:1/0?ssl_ca_path={tmp_path / place}")


def test_a_full_server(store: Store, admin: redis.Redis) -> None:
    admin.config_set("maxmemory", 1)

    with pytest.raises(StoreUnavailable, match="full"):
        a_job(store)


def test_a_replica(store: Store, admin: redis.Redis) -> None:
    admin.replicaof("127.0.0.1", "1")

    with pytest.raises(StoreUnavailable, match="read-only"):
        a_job(store)


def test_a_refused_command_is_an_internal_error(store: Store) -> None:
    store.connection.redis.set("handoff:due", "not a sorted set", ex=5)

    with pytest.raises(StoreError, match="Redis refused the command"):
        store.due_work.sweep()


def test_scripts_are_loaded_again_after_the_server_lost_them(store: Store) -> None:
    store.due_work.sweep()
    store.connection.redis.script_flush()

    assert store.due_work.sweep().due == {}


@pytest.mark.parametrize("code", ["BUSY", "NOREPLICAS", "MASTERDOWN", "TRYAGAIN", "UNKILLABLE"])
def test_a_passing_condition_is_not_an_internal_error(store: Store, code: str) -> None:
    with pytest.raises(StoreUnavailable, match="cannot run the command now"), translate_errors():
        store.connection.redis.eval(f"return redis.error_reply('{code} not now')", 0)


@pytest.mark.parametrize(
    "openssl",
    [
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        "TLSV1_ALERT_UNKNOWN_CA",
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
    ],
)
def test_a_redis_that_asks_for_a_certificate_differs_from_a_redis_without_tls(openssl: str) -> None:
    with (
        pytest.raises(StoreUnavailable, match="requires a client certificate"),
        translate_errors(),
    ):
        raise redis.ConnectionError(
            f"Error while reading from h:1 : (1, '[SSL: {openssl}] no (_ssl.c:2580)')"
        )


def test_a_failing_call_does_not_affect_the_other_calls(store: Store) -> None:
    job_id = a_job(store)
    issue(store, job_id, "find.1", "look.1")
    first, second = granted_claim(store, job_id, "find.1"), granted_claim(store, job_id, "look.1")
    keys_, args = first.build_renewal()

    failed, succeeded = store.connection.run_script_for_each(
        "renew_lease", [(keys_, [*args[:2], "no number", *args[3:]]), second.build_renewal()]
    )

    assert isinstance(failed, StoreError)
    assert succeeded == b"ok"


@pytest.mark.slow
def test_a_process_that_uses_all_its_connections_gets_that_reason(redis_url: str) -> None:
    connection = Connection(redis_url, timeout_s=3)
    pool = connection.redis.connection_pool
    held_connections = [pool.get_connection() for _ in range(MAX_CONNECTIONS)]

    with pytest.raises(StoreUnavailable, match="are in use"):
        connection.now()
    for held_connection in held_connections:
        pool.release(held_connection)
    connection.close()


def test_a_closed_connection_has_no_open_socket(redis_url: str, admin: redis.Redis) -> None:
    """Python warns about an unclosed socket only at garbage collection, without naming its
    owner.
    """
    before = len(admin.client_list())
    connection = Connection(redis_url)
    connection.redis.ping()
    connection.waiting.ping()
    assert len(admin.client_list()) == before + 2

    connection.close()

    wait_until(lambda: len(admin.client_list()) == before, expected="the end of both")


@pytest.mark.slow
def test_a_retried_command_is_forgotten_after_its_answer(store: Store) -> None:
    def say() -> float:
        return store.connection.now()

    retry_until_answered(say, lambda: True)
    message_ref = weakref.ref(say)
    del say
    gc.collect()

    assert message_ref() is None
