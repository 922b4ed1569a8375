"""Contract of every `Model`. Each entry of `MAKERS` builds an implementation from a script."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise

import pytest

from handoff_queue.shared.types.errors import Cancelled
from handoff_queue.shared.types.model import Model, ModelCall, Pulse
from handoff_queue.testing import MessagesServer, Reply, text_reply, tool_call_reply
from tests.doubles.scripted_model import ScriptedModel, one_by_one
from tests.doubles.served_model import model_at

Maker = Callable[[Reply], AbstractContextManager[Model]]


@contextmanager
def over_http(reply: Reply) -> Iterator[Model]:
    with MessagesServer(lambda _request: reply) as server, model_at(server.url) as model:
        yield model


@contextmanager
def scripted(reply: Reply) -> Iterator[Model]:
    yield ScriptedModel(one_by_one(reply))


MAKERS = [pytest.param(over_http, id="anthropic"), pytest.param(scripted, id="scripted")]
pytestmark = pytest.mark.parametrize("model_that_answers", MAKERS)

CALL = ModelCall(
    model="some-model",
    system="Be brief.",
    messages=({"role": "user", "content": "Hello"},),
    max_output_tokens=100,
)


def ignore(_pulse: Pulse) -> None:
    pass


def test_a_text_arrives_complete(model_that_answers: Maker) -> None:
    with model_that_answers(text_reply("A text of more than one chunk.")) as model:
        reply = model.reply(CALL, ignore)
    assert reply.content == ({"type": "text", "text": "A text of more than one chunk."},)
    assert reply.stop_reason == "end_turn"


def test_the_model_is_named_as_the_server_names_it(model_that_answers: Maker) -> None:
    with model_that_answers(text_reply("x", model="another")) as model:
        assert model.reply(CALL, ignore).model == "another"


def test_tool_calls_have_an_id_a_name_and_arguments(model_that_answers: Maker) -> None:
    with model_that_answers(tool_call_reply(("look", {"q": "a"}), ("look", {"q": "b"}))) as model:
        reply = model.reply(CALL, ignore)
    assert [(block["name"], block["input"]) for block in reply.content] == [
        ("look", {"q": "a"}),
        ("look", {"q": "b"}),
    ]
    assert len({block["id"] for block in reply.content}) == 2
    assert reply.stop_reason == "tool_use"


def test_cached_input_counts_as_input(model_that_answers: Maker) -> None:
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 7,
        "cache_creation_input_tokens": 5,
        "output_tokens": 3,
    }
    with model_that_answers(text_reply("x", usage=usage)) as model:
        used = model.reply(CALL, ignore).usage
    assert (
        used.input_tokens,
        used.output_tokens,
        used.cache_read_tokens,
        used.cache_write_tokens,
    ) == (22, 3, 7, 5)


def test_unreported_usage_counts_as_zero(model_that_answers: Maker) -> None:
    with model_that_answers(text_reply("x", usage={})) as model:
        assert model.reply(CALL, ignore).usage.total_tokens == 0


def test_the_reply_gives_signs_of_life_before_its_end_and_its_text_only_grows(
    model_that_answers: Maker,
) -> None:
    pulses: list[Pulse] = []
    seen = threading.Event()

    def note(pulse: Pulse) -> None:
        pulses.append(pulse)
        seen.set()

    with model_that_answers(text_reply("A longer text, " * 50, stall=seen)) as model:
        model.reply(CALL, note)
    assert pulses
    assert all(later.text.startswith(earlier.text) for earlier, later in pairwise(pulses))


def test_an_error_raised_by_a_pulse_cuts_the_reply_and_passes_through(
    model_that_answers: Maker,
) -> None:
    never = threading.Event()

    def cancel(_pulse: Pulse) -> None:
        raise Cancelled("by the user")

    with (
        model_that_answers(text_reply("A longer text, " * 50, stall=never)) as model,
        pytest.raises(Cancelled),
    ):
        model.reply(CALL, cancel)
    never.set()


def test_a_refusal_is_a_reply(model_that_answers: Maker) -> None:
    with model_that_answers(text_reply("I won't.", stop_reason="refusal")) as model:
        assert model.reply(CALL, ignore).stop_reason == "refusal"


def test_empty_content_is_a_reply(model_that_answers: Maker) -> None:
    with model_that_answers(Reply()) as model:
        assert model.reply(CALL, ignore).content == ()
