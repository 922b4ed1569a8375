"""Batches of the Message Batches API, over the product's client and a server on loopback."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest

from handoff_queue.shared.providers.anthropic import batches_api
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.batches import BatchStatus, ProviderBatches
from handoff_queue.shared.types.errors import ModelRejected, ModelUnreachable, NeverSent
from handoff_queue.shared.types.model import ModelCall, SystemPrompt
from handoff_queue.testing import (
    BrokenRules,
    MessagesServer,
    Reply,
    error_reply,
    text_reply,
    tool_call_reply,
)
from tests.doubles.raw_server import Conversation, RawServer
from tests.doubles.served_model import model_at
from tests.waiting import wait_until

CALL = ModelCall(
    model="some-model",
    system=SystemPrompt("Be brief."),
    messages=({"role": "user", "content": "Hello"},),
    max_output_tokens=100,
)


@pytest.fixture
def server() -> Iterator[MessagesServer]:
    with MessagesServer(lambda _request: text_reply("Hello to you.")) as running:
        yield running


@pytest.fixture
def batches(server: MessagesServer) -> Iterator[ProviderBatches]:
    with model_at(server.url) as model:
        assert model.batches is not None
        yield model.batches


def test_a_batch_gives_the_reply_of_its_call(batches: ProviderBatches) -> None:
    created = batches.create("one", CALL)
    assert (created.status, created.requests) == (BatchStatus.IN_PROGRESS, 1)
    assert abs(created.created_at - time.time()) < 60
    assert batches.retrieve(created.batch_id).status is BatchStatus.ENDED
    outcome = batches.fetch_outcome(created.batch_id, "one", CALL.model)
    assert outcome is not None
    assert outcome.reply is not None
    assert outcome.reply.content == ({"type": "text", "text": "Hello to you."},)
    assert outcome.reply.usage.total_tokens == 120


def test_a_reply_from_a_batch_may_call_tools(
    server: MessagesServer, batches: ProviderBatches
) -> None:
    server.script = lambda _request: tool_call_reply(("look", {"q": "a"}))
    created = batches.create("one", CALL)
    batches.retrieve(created.batch_id)
    outcome = batches.fetch_outcome(created.batch_id, "one", CALL.model)
    assert outcome is not None
    assert outcome.reply is not None
    assert outcome.reply.stop_reason == "tool_use"
    assert outcome.reply.content[0]["input"] == {"q": "a"}


def test_a_batch_has_no_call_of_another_name(batches: ProviderBatches) -> None:
    created = batches.create("one", CALL)
    batches.retrieve(created.batch_id)
    assert batches.fetch_outcome(created.batch_id, "other", CALL.model) is None


@pytest.mark.slow
def test_the_list_has_all_batches_since_a_time_on_any_number_of_pages(
    server: MessagesServer, batches: ProviderBatches
) -> None:
    before = batches.create("before", CALL)
    server.batches.created[0].created_at -= 3_600
    ids = {batches.create(f"call-{number}", CALL).batch_id for number in range(105)}
    listed = {state.batch_id for state in batches.list_batches_since(time.time() - 60)}
    assert listed == ids
    assert before.batch_id not in listed


def test_a_list_of_batches_without_an_end_counts_as_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batches_api, "MAX_LISTED", 300)
    page = json.dumps({"data": [BATCH] * 100, "has_more": True})
    with server_of_json(page) as raw, model_at(raw.url) as model:
        assert model.batches is not None
        with pytest.raises(ModelUnreachable, match="more than 300 new batches"):
            model.batches.list_batches_since(0.0)


def test_a_cancelled_batch_ends_without_a_reply(
    server: MessagesServer, batches: ProviderBatches
) -> None:
    server.batches.duration_s = 3_600
    created = batches.create("one", CALL)
    batches.cancel(created.batch_id)
    wait_until(lambda: batches.retrieve(created.batch_id).status is BatchStatus.ENDED)
    outcome = batches.fetch_outcome(created.batch_id, "one", CALL.model)
    assert outcome is not None
    assert (outcome.reply, outcome.why) == (None, "canceled")
    assert server.batches.paid == []


def test_an_error_in_a_batch_is_an_outcome_with_the_words_of_the_provider(
    server: MessagesServer, batches: ProviderBatches
) -> None:
    server.script = lambda _request: error_reply(529, "too much to do", "overloaded_error")
    created = batches.create("one", CALL)
    batches.retrieve(created.batch_id)
    outcome = batches.fetch_outcome(created.batch_id, "one", CALL.model)
    assert outcome is not None
    assert outcome.reply is None
    assert outcome.why.startswith("errored: ")
    assert "too much to do" in outcome.why


def test_an_expired_batch_has_no_reply(server: MessagesServer, batches: ProviderBatches) -> None:
    server.batches.duration_s, server.batches.expires_s = 3_600, 0
    created = batches.create("one", CALL)
    wait_until(lambda: batches.retrieve(created.batch_id).status is BatchStatus.ENDED)
    outcome = batches.fetch_outcome(created.batch_id, "one", CALL.model)
    assert outcome is not None
    assert outcome.why == "expired"


def test_a_server_without_batches_refuses_them(
    server: MessagesServer, batches: ProviderBatches
) -> None:
    server.batches.is_served = False
    with pytest.raises(ModelRejected):
        batches.create("one", CALL)


def test_a_server_that_does_not_run_gets_no_batch(server: MessagesServer) -> None:
    with model_at("http://127.0.0.1:9") as model:
        assert model.batches is not None
        with pytest.raises(NeverSent):
            model.batches.create("one", CALL)


def server_of_json(body: str) -> RawServer:
    """Return a server that sends the same text in response to each request."""

    def talk(conversation: Conversation) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        while conversation.request():
            conversation.say(head % len(body) + body.encode())

    return RawServer(talk)


BATCH = {
    "id": "msgbatch_1",
    "processing_status": "ended",
    "created_at": "2999-01-01T00:00:00Z",
    "request_counts": {"succeeded": 1},
}


@pytest.mark.parametrize(
    "body",
    [
        "[]",
        "{}",
        '{"id": "", "processing_status": "ended"}',
        "<html></html>",
        json.dumps({**BATCH, "request_counts": {"succeeded": float("inf")}}),
    ],
)
def test_an_answer_that_is_not_a_batch_counts_as_no_answer(body: str) -> None:
    with server_of_json(body) as raw, model_at(raw.url) as model:
        assert model.batches is not None
        with pytest.raises(ModelUnreachable):
            model.batches.retrieve("msgbatch_1")


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "\x1b[2J" + "x" * 5_000},
        {"type": "x", "error": {"message": "\x1b[2J" + "y " * 5_000}},
    ],
    ids=["end", "error"],
)
def test_the_reason_of_a_batch_without_a_reply_is_a_short_text(fields: dict[str, object]) -> None:
    body = json.dumps({"custom_id": "one", "result": fields})
    with server_of_json(body) as raw, model_at(raw.url) as model:
        assert model.batches is not None
        outcome = model.batches.fetch_outcome("msgbatch_1", "one", "some-model")

    assert outcome is not None
    assert len(outcome.why) < 1_000
    assert outcome.why.isprintable()


@pytest.mark.parametrize("name", [".", "..", ""])
def test_the_id_of_a_batch_names_no_other_path_of_the_server(name: str) -> None:
    """A worker may write any id, and supervisors cancel the batch with their key."""
    with server_of_json(json.dumps(BATCH)) as raw, model_at(raw.url) as model:
        batches = model.batches
        assert batches is not None
        asks: list[Callable[[], object]] = [
            lambda: batches.retrieve(name),
            lambda: batches.cancel(name),
            lambda: batches.fetch_outcome(name, "call", "some-model"),
        ]
        for ask in asks:
            with pytest.raises(ModelRejected, match="not the id of a batch"):
                ask()


def test_the_server_of_tests_refuses_a_request_that_breaks_a_rule_when_its_batch_ends() -> None:
    with pytest.raises(BrokenRules):
        send_a_wrong_batch()


def send_a_wrong_batch() -> None:
    wrong = ModelCall("m", SystemPrompt(""), ({"role": "user", "content": ""},), 0)
    with MessagesServer(lambda _request: Reply()) as server, model_at(server.url) as model:
        assert model.batches is not None
        created = model.batches.create("one", wrong)
        model.batches.retrieve(created.batch_id)
        outcome = model.batches.fetch_outcome(created.batch_id, "one", "m")
        assert outcome is not None
        assert outcome.why.startswith("errored")


def test_the_offline_model_has_no_batches() -> None:
    from handoff_queue.shared.runtime.models import Models
    from handoff_queue.shared.settings.settings import OFFLINE_MODEL

    assert Models(Settings(offline=True)).get_batches(OFFLINE_MODEL) is None
