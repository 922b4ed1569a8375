"""A call ends in time if the model's server keeps the connection and sends nothing useful. The
connection is closed.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from handoff_queue.shared.providers.anthropic.model import AnthropicModel
from handoff_queue.shared.types.errors import Cancelled, ModelUnreachable, NeverSent
from handoff_queue.shared.types.model import CallProgress, ModelCall, SystemPrompt
from tests.doubles.raw_server import (
    HEADERS,
    PING,
    REPLY,
    START,
    STOP,
    Conversation,
    RawServer,
    chunk,
)
from tests.doubles.served_model import model_at

CALL = ModelCall(
    "some-model",
    SystemPrompt("Be brief."),
    ({"role": "user", "content": "Hello"},),
    max_output_tokens=100,
    timeout_s=20,
    progress_s=0.5,
)


def ignore(_progress: CallProgress) -> None:
    pass


@contextmanager
def model_of(server: RawServer) -> Iterator[AnthropicModel]:
    with server, model_at(server.url) as model:
        yield model


def useless_server(data: bytes, every_s: float = 0.05) -> RawServer:
    """Return a server that starts a reply and then repeats `data` forever."""

    def talk(conversation: Conversation) -> None:
        conversation.request()
        conversation.say(HEADERS + chunk(START))
        server.repeat(conversation, data, every_s)

    server = RawServer(talk)
    return server


@pytest.mark.parametrize(
    "data",
    [chunk(PING), chunk("x"), chunk(": a comment\n")],
    ids=["pings", "a trickle", "comments"],
)
def test_a_reply_without_progress_ends_and_its_connection_is_closed(data: bytes) -> None:
    with model_of(server := useless_server(data)) as model:
        with pytest.raises(ModelUnreachable, match="no progress") as raised:
            model.reply(CALL, ignore)
        assert not isinstance(raised.value, NeverSent), "what was generated may have been paid"
        assert server.left.wait(10)


@pytest.mark.slow
def test_a_slow_reply_that_makes_progress_is_waited_for() -> None:
    delta = (
        '{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}'
    )

    def enough(progress: CallProgress) -> None:
        if len(progress.text) >= 8:
            raise Cancelled("it was slow, and went on for longer than any silence")

    with (
        model_of(
            useless_server(chunk(f"event: content_block_delta\ndata: {delta}\n\n"), every_s=0.2)
        ) as model,
        pytest.raises(Cancelled),
    ):
        model.reply(CALL, enough)


def test_a_caller_that_leaves_a_silent_reply_closes_the_connection_at_once() -> None:
    def talk(conversation: Conversation) -> None:
        conversation.request()
        conversation.say(HEADERS + chunk(START))
        if not conversation.connection.recv(1):
            server.left.set()

    def cancel(progress: CallProgress) -> None:
        if progress.usage.input_tokens:
            raise Cancelled("by the user")

    with model_of(server := RawServer(talk)) as model:
        with pytest.raises(Cancelled):
            model.reply(replace(CALL, progress_s=60), cancel)
        assert server.left.wait(10), "long before its time-out"


def test_a_connection_that_died_silently_costs_one_timeout_and_is_not_reused() -> None:
    def talk(conversation: Conversation) -> None:
        while conversation.request():
            if conversation.number == 1 and is_dead.is_set():
                server.over.wait()  # half open: the connection takes requests and never answers
                return
            conversation.say(REPLY)

    is_dead = threading.Event()
    with model_of(server := RawServer(talk)) as model:
        model.reply(CALL, ignore)
        is_dead.set()
        with pytest.raises(ModelUnreachable):
            model.reply(replace(CALL, timeout_s=0.3, progress_s=60), ignore)
        assert model.reply(CALL, ignore).stop_reason == "end_turn"
        assert server.accepted == 2


def test_a_connection_that_the_server_closed_is_not_reused() -> None:
    def talk(conversation: Conversation) -> None:
        conversation.request()
        conversation.say(REPLY)
        conversation.connection.shutdown(socket.SHUT_RDWR)
        closed.release()

    closed = threading.Semaphore(0)
    with model_of(server := RawServer(talk)) as model:
        for _ in range(3):
            model.reply(CALL, ignore)
            assert closed.acquire(timeout=10)
        assert server.accepted == 3


def test_a_connection_that_is_reset_in_the_middle_is_unreachable() -> None:
    def talk(conversation: Conversation) -> None:
        conversation.request()
        conversation.say(HEADERS + chunk(START))
        conversation.connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )

    with model_of(RawServer(talk)) as model, pytest.raises(ModelUnreachable):
        model.reply(CALL, ignore)


@pytest.mark.parametrize("linger_s", [1, None], ids=["reset", "closed"])
def test_an_unanswered_request_may_have_been_paid(linger_s: int | None) -> None:
    def talk(conversation: Conversation) -> None:
        conversation.request()
        if linger_s is not None:
            conversation.connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", linger_s, 0)
            )

    with model_of(RawServer(talk)) as model, pytest.raises(ModelUnreachable) as raised:
        model.reply(CALL, ignore)
    assert not isinstance(raised.value, NeverSent)


def test_a_name_that_cannot_be_resolved_was_certainly_not_paid() -> None:
    with model_at("http://no-such-host.invalid") as model, pytest.raises(NeverSent):
        model.reply(CALL, ignore)


def test_an_answer_that_is_not_http_is_unreachable() -> None:
    def talk(conversation: Conversation) -> None:
        conversation.request()
        conversation.say(b"220 mail.example ESMTP\r\n")

    with model_of(RawServer(talk)) as model, pytest.raises(ModelUnreachable):
        model.reply(CALL, ignore)


def test_a_complete_reply_is_returned_even_if_the_caller_wants_to_leave() -> None:
    def talk(conversation: Conversation) -> None:
        conversation.request()
        conversation.say(HEADERS + chunk(START + STOP))
        # the body has no end, so the client waits a moment before it returns the reply
        server.over.wait()

    def cancel_at_the_end(progress: CallProgress) -> None:
        if progress.is_usage_final:
            raise Cancelled("by the user")

    with model_of(server := RawServer(talk)) as model:
        assert model.reply(CALL, cancel_at_the_end).stop_reason == "end_turn"
