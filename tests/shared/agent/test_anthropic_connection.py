"""Replies to streamed calls over real sockets: a connection that has brought one whole brings the next one too."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import anthropic
import httpx2
import pytest

from shared.agent.anthropic_connection import Connection
from shared.agent.anthropic_model import AnthropicModel
from shared.agent.model import ModelCall, Pulse
from shared.wire.errors import Cancelled
from tests.doubles.raw_server import END, HEADERS, PING, START, STOP, Conversation, RawServer, chunk

CALL = ModelCall("some-model", "Be brief.", ({"role": "user", "content": "Hello"},), max_output_tokens=100, timeout_s=20)


def ignore(_pulse: Pulse) -> None:
    pass


@contextmanager
def asking(server: RawServer) -> Iterator[AnthropicModel]:
    with server, anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0) as client:
        yield AnthropicModel(client)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is that the tests run on."""
    monkeypatch.setattr("shared.agent.anthropic_model.REST_WITHIN_S", 10)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("rest", ["", PING, ": a comment\n" * 100])
def test_five_streamed_calls_are_one_connection(rest: str) -> None:
    def talk(conversation: Conversation) -> None:
        while conversation.request():
            for part in (HEADERS, chunk(START), chunk(STOP), *([chunk(rest)] if rest else []), END):
                conversation.say(part)

    with asking(server := RawServer(talk)) as model:
        assert [model.reply(CALL, ignore).usage.output_tokens for _ in range(5)] == [2] * 5
        assert server.accepted == 1


@pytest.mark.usefixtures("patient")
def test_threads_that_call_one_after_another_share_the_connection() -> None:
    def talk(conversation: Conversation) -> None:
        while conversation.request():
            conversation.say(HEADERS + chunk(START) + chunk(STOP) + END)

    with asking(server := RawServer(talk)) as model:
        for _ in range(5):
            thread = threading.Thread(target=model.reply, args=(CALL, ignore))
            thread.start()
            thread.join()
        assert server.accepted == 1


@pytest.mark.parametrize("rest", [b"", chunk("x"), chunk("x" * 60_000)], ids=["nothing", "a trickle", "a flood"])
def test_a_body_that_goes_on_after_its_reply_is_not_waited_for(rest: bytes) -> None:
    def talk(conversation: Conversation) -> None:
        while conversation.request():
            conversation.say(HEADERS + chunk(START) + chunk(STOP))
            while rest and not server.over.wait(0.01):
                conversation.say(rest)

    server = RawServer(talk)
    with asking(server) as model:
        for _ in range(2):
            assert model.reply(CALL, ignore).stop_reason == "end_turn"
        assert server.accepted == 2


def test_the_rest_of_a_reply_that_was_left_is_not_read() -> None:
    def talk(conversation: Conversation) -> None:
        while conversation.request():
            conversation.say(HEADERS + chunk(START))
            if conversation.number == 1:
                left.wait(10)
            conversation.say(chunk(STOP) + END)

    def cancel(pulse: Pulse) -> None:
        if pulse.usage.input_tokens:
            raise Cancelled("by the user")

    left = threading.Event()
    with asking(server := RawServer(talk)) as model:
        with pytest.raises(Cancelled):
            model.reply(CALL, cancel)
        left.set()
        assert model.reply(CALL, ignore).stop_reason == "end_turn"
        assert server.accepted == 2


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def over(ours: socket.socket) -> httpx2.Response:
    network = SimpleNamespace(get_extra_info=lambda _name: ours)
    return httpx2.Response(200, content=b"whole", extensions={"network_stream": network})


def test_who_leaves_a_reply_that_is_read_to_its_end_does_not_cut_the_next_one(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    connection = Connection()
    connection.carry(over(ours))
    connection.close()
    connection.leave()
    ours.sendall(b"the next request")
    assert theirs.recv(100) == b"the next request"


def test_a_connection_that_was_left_before_it_came_is_cut_as_it_comes(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    connection = Connection()
    connection.leave()
    connection.carry(over(ours))
    assert theirs.recv(100) == b""
