"""A connection that delivered one streamed reply completely is reused for the next call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from handoff_queue.shared.providers.anthropic.model import AnthropicModel
from handoff_queue.shared.types.errors import Cancelled, ModelUnreachable
from handoff_queue.shared.types.model import CallProgress, ModelCall, SystemPrompt
from tests.doubles.raw_server import END, HEADERS, PING, START, STOP, Conversation, RawServer, chunk
from tests.doubles.served_model import model_at

CALL = ModelCall(
    "some-model",
    SystemPrompt("Be brief."),
    ({"role": "user", "content": "Hello"},),
    max_output_tokens=100,
    timeout_s=20,
)


def ignore(_progress: CallProgress) -> None:
    pass


@contextmanager
def model_of(server: RawServer) -> Iterator[AnthropicModel]:
    with server, model_at(server.url) as model:
        yield model


@pytest.fixture
def long_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the time that a connection has to come to rest, so that slow machines pass."""
    monkeypatch.setattr("handoff_queue.shared.providers.anthropic.streamed_call.REST_WITHIN_S", 10)


@pytest.mark.usefixtures("long_rest")
@pytest.mark.parametrize("rest", ["", PING, ": a comment\n" * 100])
def test_five_streamed_calls_are_one_connection(rest: str) -> None:
    def talk(conversation: Conversation) -> None:
        while conversation.request():
            for part in (HEADERS, chunk(START), chunk(STOP), *([chunk(rest)] if rest else []), END):
                conversation.say(part)

    with model_of(server := RawServer(talk)) as model:
        assert [model.reply(CALL, ignore).usage.output_tokens for _ in range(5)] == [2] * 5
        assert server.accepted == 1


@pytest.mark.usefixtures("long_rest")
def test_threads_that_call_one_after_another_share_the_connection() -> None:
    def talk(conversation: Conversation) -> None:
        while conversation.request():
            conversation.say(HEADERS + chunk(START) + chunk(STOP) + END)

    with model_of(server := RawServer(talk)) as model:
        for _ in range(5):
            thread = threading.Thread(target=model.reply, args=(CALL, ignore))
            thread.start()
            thread.join()
        assert server.accepted == 1


@pytest.mark.parametrize(
    "rest", [b"", chunk("x"), chunk("x" * 60_000)], ids=["nothing", "a trickle", "a flood"]
)
def test_the_model_does_not_wait_for_data_after_a_complete_reply(rest: bytes) -> None:
    def talk(conversation: Conversation) -> None:
        while conversation.request():
            conversation.say(HEADERS + chunk(START) + chunk(STOP))
            while rest and not server.over.wait(0.01):
                conversation.say(rest)

    server = RawServer(talk)
    with model_of(server) as model:
        for _ in range(2):
            assert model.reply(CALL, ignore).stop_reason == "end_turn"
        assert server.accepted == 2


def test_the_rest_of_a_reply_that_was_left_is_not_waited_for() -> None:
    def talk(conversation: Conversation) -> None:
        while conversation.request():
            conversation.say(HEADERS + chunk(START))
            if conversation.number == 1:
                assert conversation.connection.recv(1) == b""
                left.release()
            conversation.say(chunk(STOP) + END)

    def cancel(progress: CallProgress) -> None:
        if progress.usage.input_tokens:
            raise Cancelled("by the user")

    left = threading.Semaphore(0)
    with model_of(server := RawServer(talk)) as model:
        with pytest.raises(Cancelled):
            model.reply(CALL, cancel)
        assert left.acquire(timeout=10), "the server has said no more until then"
        assert model.reply(CALL, ignore).stop_reason == "end_turn"
        assert server.accepted == 2


def test_a_caller_that_leaves_before_any_answer_closes_the_connection_at_once() -> None:
    def talk(conversation: Conversation) -> None:
        conversation.request()
        if not conversation.connection.recv(1):
            server.left.set()

    def cancel(_progress: CallProgress) -> None:
        raise Cancelled("by the user")

    with model_of(server := RawServer(talk)) as model:
        with pytest.raises(Cancelled):
            model.reply(CALL, cancel)
        assert server.left.wait(10), "long before its time-out"


def test_a_closed_model_leaves_no_caller_waiting() -> None:
    def talk(conversation: Conversation) -> None:
        conversation.request()
        conversation.say(HEADERS + chunk(START))
        server.over.wait()

    def close(progress: CallProgress) -> None:
        if progress.usage.input_tokens:
            model.close()

    with model_of(server := RawServer(talk)) as model, pytest.raises(ModelUnreachable):
        model.reply(CALL, close)


@pytest.mark.slow
def test_a_hundred_replies_of_two_models_at_once_are_read_by_one_thread() -> None:
    def talk(conversation: Conversation) -> None:
        conversation.request()
        conversation.say(HEADERS + chunk(START))
        all_have_begun.wait(30)
        conversation.say(chunk(STOP) + END)

    def note() -> None:
        answer_format.extend(
            thread.name for thread in threading.enumerate() if thread.name == "model-calls"
        )

    answer_format: list[str] = []
    all_have_begun = threading.Barrier(100, action=note)
    with model_of(RawServer(talk)) as first_model, model_of(RawServer(talk)) as second_model:
        callers = [
            threading.Thread(target=model.reply, args=(CALL, ignore))
            for model in (first_model, second_model) * 50
        ]
        for thread in callers:
            thread.start()
        for thread in callers:
            thread.join()
    assert answer_format == ["model-calls"]
