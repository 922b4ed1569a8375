"""The loop reads the valid parts of a reply that breaks the Messages API. An invalid part is a
temporary error.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from handoff_queue.shared.providers.anthropic.stream import PartialReply
from handoff_queue.shared.types.checkpoints import ModelReplied
from handoff_queue.shared.types.errors import ModelBusy, ModelUnreachable
from handoff_queue.shared.types.rate_limits import NO_RATE_LIMITS
from handoff_queue.testing import Reply, error_reply, in_turn, text_reply
from tests.shared.agent.scripted_server import CALL, Serve, ignore, model_error_of


def delta(text: Any) -> dict[str, Any]:
    return {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": text},
    }


def streams(*events: dict[str, Any]) -> Reply:
    """Return a streamed reply with these events between its first and its last event."""
    every = (
        {"type": "message_start", "message": {"usage": {"input_tokens": 3}}},
        *events,
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    )
    return text_reply(
        "x",
        raw_events=tuple(
            f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in every
        ),
    )


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400"])
def test_arguments_that_are_not_json_numbers_stay_text(serve: Serve, number: str) -> None:
    """The model is told that the values are invalid. They could not be sent back as numbers."""
    arguments = f'{{"a": {number}}}'
    model, _ = serve(
        in_turn(
            Reply(
                blocks=({"type": "tool_use", "id": "t", "name": "look", "input": arguments},),
                stop_reason="tool_use",
            )
        )
    )
    assert model.reply(CALL, ignore).content[0]["input"] == arguments


def test_a_split_surrogate_pair_is_joined_again(serve: Serve) -> None:
    model, _ = serve(in_turn(streams(delta("It is good \ud83d"), delta("\ude00 indeed"))))
    assert model.reply(CALL, ignore).content == (
        {"type": "text", "text": "It is good \U0001f600 indeed"},
    )


def test_half_a_surrogate_pair_is_not_shown_yet() -> None:
    gathering = PartialReply("m", NO_RATE_LIMITS)
    gathering.take(delta("It is good \ud83d"))
    assert gathering.get_progress().text == "It is good "
    gathering.take(delta("\ude00"))
    assert gathering.get_progress().text == "It is good \U0001f600"


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": "half \ud83d"},
        {"type": "tool_use", "id": "t\ud83d", "name": "\ud83d", "input": {"\ud83d": ["\ud83d"]}},
        {"type": "something_new", "data": {"x": ["\ude00"]}},
    ],
)
def test_half_a_character_in_a_reply_can_be_stored(serve: Serve, block: dict[str, Any]) -> None:
    model, _ = serve(
        in_turn(
            Reply(
                body=json.dumps(
                    {"content": [block], "stop_reason": "end\ud83d", "model": "m\ud83d"}
                )
            )
        )
    )
    reply = model.reply(CALL, ignore)
    assert ModelReplied(
        content=reply.content, stop_reason=reply.stop_reason, usage=reply.usage, model=reply.model
    ).to_json()


def test_half_a_character_in_an_error_can_be_stored(serve: Serve) -> None:
    assert str(model_error_of(serve, error_reply(422, "half \ud83d of it"))).encode()


@pytest.mark.parametrize(
    "garbage",
    [
        (delta(None),),
        (
            {
                "type": "content_block_delta",
                "index": "0",
                "delta": {"type": "text_delta", "text": "a"},
            },
            delta("b"),
        ),
        (
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": 7},
            },
        ),
        ({"type": "message_delta", "delta": {"stop_reason": 7}},),
        ({"type": "message_start", "message": {"model": ["m"]}},),
    ],
    ids=["no text", "no place", "no arguments", "no reason", "no model"],
)
def test_a_non_text_block_in_place_of_text_is_a_server_error(
    serve: Serve, garbage: tuple[dict[str, Any], ...]
) -> None:
    assert isinstance(model_error_of(serve, streams(*garbage)), ModelUnreachable)


@pytest.mark.parametrize(
    "usage", [7, ["x"], {"server_tool_use": 7}, {"server_tool_use": {"web_search_requests": "2"}}]
)
def test_a_missing_usage_counts_as_zero(serve: Serve, usage: object) -> None:
    start = {"type": "message_start", "message": {"usage": usage}}
    model, _ = serve(in_turn(streams(start, delta("x"))))
    assert model.reply(CALL, ignore).usage.cost_microusd == 0

    model, _ = serve(
        in_turn(
            Reply(body=json.dumps({"content": [{"type": "text", "text": "x"}], "usage": usage}))
        )
    )
    assert model.reply(CALL, ignore).usage.cost_microusd == 0


@pytest.mark.parametrize("number", ["NaN", "1e400"])
def test_a_block_with_invalid_json_is_a_server_error(serve: Serve, number: str) -> None:
    block = f'{{"type": "tool_use", "id": "t", "name": "look", "input": {{"a": {number}}}}}'
    event = (
        'event: content_block_start\ndata: {"type": "content_block_start", "index": 0,'
        f' "content_block": {block}}}\n\n'
    )
    assert isinstance(model_error_of(serve, text_reply("x", raw_events=(event,))), ModelUnreachable)


@pytest.mark.parametrize("count", [True, -1, "7", 10**30, 1.5])
def test_an_invalid_token_count_counts_as_zero(serve: Serve, count: object) -> None:
    model, _ = serve(in_turn(text_reply("x", usage={"input_tokens": 3, "output_tokens": count})))
    used = model.reply(CALL, ignore).usage
    assert (used.input_tokens, used.output_tokens) == (3, 0)


def test_an_error_in_a_reply_is_reported_by_its_type(serve: Serve) -> None:
    body = json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    assert isinstance(model_error_of(serve, Reply(body=body)), ModelBusy)


@pytest.mark.parametrize(
    ("depth", "is_understood"), [(90, True), (150, False), (240, False), (300, False)]
)
def test_arguments_are_sent_back_to_the_model_unless_they_are_nested_too_deeply(
    serve: Serve, depth: int, is_understood: bool
) -> None:
    deep: dict[str, Any] = {}
    for _ in range(depth):
        deep = {"a": deep}
    whole = Reply(
        body=json.dumps(
            {"content": [{"type": "tool_use", "id": "t", "name": "look", "input": deep}]}
        )
    )
    model, _ = serve(in_turn(whole, text_reply("so")))
    if not is_understood:
        with pytest.raises(ModelUnreachable):
            model.reply(CALL, ignore)
        return
    reply = model.reply(CALL, ignore)
    stored = ModelReplied(
        content=reply.content, stop_reason=reply.stop_reason, usage=reply.usage, model=reply.model
    )
    assert ModelReplied.from_json(stored.to_json()) == stored
    assert model.reply(
        replace(
            CALL,
            messages=(
                *CALL.messages,
                {"role": "assistant", "content": list(reply.content)},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]},
            ),
        ),
        ignore,
    )
