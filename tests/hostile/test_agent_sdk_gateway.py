"""A process without the token connects to the server for the CLI of the Claude Agent SDK."""

from __future__ import annotations

import socket
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import pytest

from handoff_queue.workers.agent_sdk import messages_api
from handoff_queue.workers.agent_sdk.messages_api import Gateway
from tests.waiting import MAX_WAIT_S, wait_until

HELD = 2


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    monkeypatch.setattr(messages_api, "MAX_CONNECTIONS", HELD)
    monkeypatch.setattr(messages_api, "HEADERS_WITHIN_S", MAX_WAIT_S)
    with closing(Gateway(lambda _: True)) as gateway:
        yield gateway


def connected(gateway: Gateway) -> socket.socket:
    """Return a connection that has sent a part of a request."""
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=MAX_WAIT_S)
    connection.sendall(b"POST /v1/messages HTTP/1.1\r\n")
    return connection


def status_of(gateway: Gateway) -> int | None:
    """Return the status of a request without a token. None: the connection was closed."""
    try:
        urllib.request.urlopen(urllib.request.Request(gateway.url, data=b"{}"))
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code
    except OSError:
        return None
    return 200


def test_connections_without_a_request_take_a_limited_number_of_threads(gateway: Gateway) -> None:
    with ExitStack() as held:
        for _ in range(HELD):
            held.enter_context(connected(gateway))
        wait_until(lambda: status_of(gateway) is None, expected="the refusal of a connection")

    wait_until(lambda: status_of(gateway) == 401, expected="an answer after the end of the others")


@pytest.mark.slow
def test_a_connection_that_goes_away_writes_nothing_to_the_log(
    gateway: Gateway, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(20):
        with connected(gateway) as connection:
            with suppress(OSError):  # the gateway may be the first that closes
                connection.sendall(b"\r\n" + b"x" * 100_000)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: status_of(gateway) == 401, expected="an answer after the end of the others")

    assert capfd.readouterr() == ("", "")


def test_a_request_that_is_nested_too_deep_is_refused(gateway: Gateway) -> None:
    headers = {"x-api-key": gateway.token}
    body = b"[" * 100_000
    request = urllib.request.Request(f"{gateway.url}/v1/messages", body, headers)

    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)

    refused.value.close()
    assert refused.value.code == 400
