"""Contract of every `Model`. Each entry of `MAKERS` builds an implementation from a script."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise

import pytest

from handoff_queue.shared.types.errors import Cancelled
from handoff_queue.shared.types.model import CallProgress, Model, ModelCall, SystemPrompt
from handoff_queue.testing import MessagesServer, Reply, text_reply, tool_call_reply
from tests.doubles.scripted_model import ScriptedModel, replies_in_order
from tests.doubles.served_model import model_at

Maker = Callable[[Reply], AbstractContextManager[Model]]


@contextmanager
def over_http(reply: Reply) -> Iterator[Model]:
    with MessagesServer(lambda _request: reply) as server, model_at(server.url) as model:
        yield model


@contextmanager
def scripted(reply: Reply) -> Iterator[Model]:
    yield ScriptedModel(replies_in_order(reply))


MAKERS = [pytest.param(over_http, id="anthropic"), pytest.param(scripted, id="scripted")]
pytestmark = pytest.mark.parametrize("make_model", MAKERS)

CALL = ModelCall(
    model="some-model",
    system=SystemPrompt("Be brief."),
    messages=({"role": "user", "content": "Hello"},),
    max_output_tokens=100,
)


def ignore(_progress: CallProgress) -> None:
    pass


def test_a_text_arrives_complete(make_model: Maker) -> None:
    with make_model(text_reply("A text of more than one chunk.")) as model:
        reply = model.reply(CALL, ignore)
    assert reply.content == ({"type": "text", "text": "A text of more than one chunk."},)
    assert reply.stop_reason == "end_turn"


def test_a_reply_has_the_servers_name_of_the_model(make_model: Maker) -> None:
    with make_model(text_reply("x", model="another")) as model:
        assert model.reply(CALL, ignore).model == "another"


def test_tool_calls_have_an_id_a_name_and_arguments(make_model: Maker) -> None:
    with make_model(tool_call_reply(("look", {"q": "a"}), ("look", {"q": "b"}))) as model:
        reply = model.reply(CALL, ignore)
    assert [(block["name"], block["input"]) for block in reply.content] == [
        ("look", {"q": "a"}),
        ("look", {"q": "b"}),
    ]
    assert len({block["id"] for block in reply.content}) == 2
    assert reply.stop_reason == "tool_use"


def test_cached_input_counts_as_input(make_model: Maker) -> None:
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 7,
        "cache_creation_input_tokens": 5,
        "output_tokens": 3,
    }
    with make_model(text_reply("x", usage=usage)) as model:
        used = model.reply(CALL, ignore).usage
    assert (
        used.input_tokens,
        used.output_tokens,
        used.cache_read_tokens,
        used.cache_write_tokens,
    ) == (22, 3, 7, 5)


def test_the_part_of_the_input_that_the_cache_keeps_for_an_hour_is_known(
    make_model: Maker,
) -> None:
    usage = {
        "input_tokens": 10,
        "cache_creation_input_tokens": 5,
        "cache_creation": {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 4},
        "output_tokens": 3,
    }
    with make_model(text_reply("x", usage=usage)) as model:
        used = model.reply(CALL, ignore).usage
    assert (used.cache_write_tokens, used.cache_write_1h_tokens) == (5, 4)


def test_unreported_usage_counts_as_zero(make_model: Maker) -> None:
    with make_model(text_reply("x", usage={})) as model:
        assert model.reply(CALL, ignore).usage.total_tokens == 0


def test_the_reply_gives_signs_of_life_before_its_end_and_its_text_only_grows(
    make_model: Maker,
) -> None:
    reports: list[CallProgress] = []
    first_report = threading.Event()

    def record(progress: CallProgress) -> None:
        reports.append(progress)
        first_report.set()

    with make_model(text_reply("A longer text, " * 50, stall=first_report)) as model:
        model.reply(CALL, record)
    assert reports
    assert all(later.text.startswith(earlier.text) for earlier, later in pairwise(reports))


def test_an_error_raised_by_a_report_cuts_the_reply_and_passes_through(
    make_model: Maker,
) -> None:
    never = threading.Event()

    def cancel(_progress: CallProgress) -> None:
        raise Cancelled("by the user")

    with (
        make_model(text_reply("A longer text, " * 50, stall=never)) as model,
        pytest.raises(Cancelled),
    ):
        model.reply(CALL, cancel)
    never.set()


def test_a_refusal_is_a_reply(make_model: Maker) -> None:
    with make_model(text_reply("I won't.", stop_reason="refusal")) as model:
        assert model.reply(CALL, ignore).stop_reason == "refusal"


def test_empty_content_is_a_reply(make_model: Maker) -> None:
    with make_model(Reply()) as model:
        assert model.reply(CALL, ignore).content == ()
