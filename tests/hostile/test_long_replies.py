"""A reply that is slow to read, or that never ends. A worker does no other handoff while one
expression searches a reply, or while it copies a long text for each new piece.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from handoff_queue.shared.agent.compaction import find_call_names, find_quoted_passages
from handoff_queue.shared.providers.anthropic.stream import PartialReply
from handoff_queue.shared.types.errors import ModelError, ModelUnreachable
from handoff_queue.shared.types.rate_limits import NO_RATE_LIMITS
from tests.doubles.raw_server import HEADERS, START, STOP, Conversation, RawServer, chunk
from tests.doubles.served_model import model_at
from tests.shared.agent.scripted_server import CALL, ignore

MAX_S = 10.0
"""Each text takes less than 1 s. Before, each took more than 20 s."""
SEARCHES: dict[str, tuple[Callable[[str], object], str]] = {
    "names of calls": (find_call_names, "a" * 400_000),
    "opening quotation marks": (find_quoted_passages, "“" * 1_600_000),
    "opening angle marks": (find_quoted_passages, "«" * 1_600_000),
}
DELTAS: dict[str, dict[str, Any]] = {
    "thinking": {"type": "thinking_delta", "thinking": "a" * 50},
    "citations": {"type": "citations_delta", "citation": {"type": "char_location"}},
}
_JSON = "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
_DELTA = (
    'data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "'
)
ENDLESS: dict[str, tuple[bytes, bytes]] = {
    "text": (HEADERS + chunk(START), chunk(_DELTA + "word " * 20_000 + '"}}\n\n')),
    "comments": (HEADERS, chunk(":" + "a" * 100_000 + "\n\n")),
    "a line": (HEADERS + chunk("data: "), chunk("a" * 100_000)),
    "JSON": (f"HTTP/1.1 200 OK\r\n{_JSON}".encode(), chunk('{"content": [' + "[]," * 30_000)),
    "an error": (f"HTTP/1.1 500 Error\r\n{_JSON}".encode(), chunk("a" * 100_000)),
}
"""The beginning of each reply, and the part that the server repeats."""


@pytest.mark.parametrize("search", SEARCHES)
def test_a_long_summary_is_searched_in_a_short_time(search: str) -> None:
    find, text = SEARCHES[search]
    begun = time.process_time()

    find(text)

    assert time.process_time() - begun < MAX_S


@pytest.mark.slow
@pytest.mark.parametrize("kind", DELTAS)
def test_a_reply_of_many_pieces_is_put_together_in_a_short_time(kind: str) -> None:
    reply = PartialReply("model", NO_RATE_LIMITS)
    reply.take({"type": "message_start", "message": {}})
    reply.take({"type": "content_block_start", "index": 0, "content_block": {"type": kind}})
    delta = {"type": "content_block_delta", "index": 0, "delta": DELTAS[kind]}
    begun = time.process_time()

    for _ in range(200_000):
        reply.take(delta)

    assert time.process_time() - begun < MAX_S
    reply.take({"type": "message_stop"})
    (block,) = reply.reply(None).content
    assert len(block[kind]) >= 200_000


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENDLESS)
def test_a_reply_without_an_end_is_cut(kind: str) -> None:
    begin, repeated = ENDLESS[kind]

    def talk(conversation: Conversation) -> None:
        conversation.request()
        conversation.say(begin)
        while True:
            conversation.say(repeated)

    with RawServer(talk) as server, model_at(server.url) as model:
        with pytest.raises(ModelUnreachable, match="50,000,000 bytes"):
            model.reply(CALL, ignore)
        assert server.left.wait(10)


@pytest.mark.slow
def test_an_event_of_many_lines_is_read_in_a_short_time() -> None:
    def talk(conversation: Conversation) -> None:
        conversation.request()
        conversation.say(HEADERS + chunk(START))
        for _ in range(300):
            conversation.say(chunk(":      \n" * 1_000))
        conversation.say(chunk("\n" + STOP) + b"0\r\n\r\n")

    begun = time.process_time()

    with RawServer(talk) as server, model_at(server.url) as model:
        model.reply(CALL, ignore)

    assert time.process_time() - begun < MAX_S


@pytest.mark.slow
@pytest.mark.parametrize("status", [200, 400])
def test_a_server_chooses_no_codec_that_is_slow(status: int) -> None:
    head = f"HTTP/1.1 {status} -\r\ncontent-type: application/json; charset=punycode\r\n"
    body = "{-" + "a" * 1_000_000

    def talk(conversation: Conversation) -> None:
        conversation.request()
        conversation.say(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())

    begun = time.process_time()
    with RawServer(talk) as server, model_at(server.url) as model, pytest.raises(ModelError):
        model.reply(CALL, ignore)

    assert time.process_time() - begun < MAX_S


def test_a_reply_of_too_many_blocks_is_refused() -> None:
    reply = PartialReply("model", NO_RATE_LIMITS)
    begin = {"type": "content_block_start", "content_block": {"type": "text"}}
    for index in range(10_000):
        reply.take({**begin, "index": index})

    with pytest.raises(ValueError, match="too many blocks"):
        reply.take({**begin, "index": 10_000})


def test_a_whole_reply_or_the_reply_of_a_batch_with_too_many_blocks_is_refused() -> None:
    block = {"type": "text", "text": "a"}
    reply = PartialReply("model", NO_RATE_LIMITS)

    reply.take_whole({"content": [block] * 10_000})
    with pytest.raises(ValueError, match="too many blocks"):
        reply.take_whole({"content": [block] * 10_001})


def test_the_name_of_a_model_in_a_reply_has_at_most_200_characters() -> None:
    reply = PartialReply("model", NO_RATE_LIMITS)

    reply.take_whole({"model": "m" * 3_000_000, "stop_reason": "s" * 300, "content": []})

    assert (reply.model, reply.stop_reason) == ("m" * 200, "s" * 200)
