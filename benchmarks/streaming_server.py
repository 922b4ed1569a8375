"""A Messages-API server on loopback that counts calls. Its replies take a fixed time, streamed
or whole.

`python -m benchmarks.streaming_server turns 2.0 4`: each handoff has four turns. All turns except
the last call a tool, and all have the same number of words. `python -m benchmarks.streaming_server
jobs 1.0 reconcile`: each call gets the answer that its schema asks for. This is a plan, a step's
result or a verdict. The synthesis has the given method.

It stays next to `MessagesServer`, which checks each request and has a thread for each connection. A
call takes 0.16 ms of the server's processor time here, and 0.96 ms there.

It prints its URL on the first line. `GET /count` returns the calls in flight now, their
maximum, and the number of all calls.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nrequest-id:"
    b" req_bench\r\ntransfer-encoding: chunked\r\n\r\n"
)
_WHOLE = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nrequest-id: req_bench\r\ncontent-length:"
    b" %d\r\n\r\n%b"
)
_USAGE = {"input_tokens": 500, "output_tokens": 100}


@dataclass(frozen=True, slots=True)
class SentReply:
    """A reply in the form in which it is sent."""

    first: bytes
    """Bytes that are sent at once."""
    deltas: tuple[bytes, ...]
    """Bytes that are sent over time."""
    last: bytes
    """Bytes that are sent at the end."""
    whole_reply: bytes
    """The whole reply, for a request without a stream."""


Choose = Callable[[bytes], SentReply]
"""A function that returns the reply to a request's body."""


class StreamingServer:
    """A server that parses only the length of a request and whether it asks for a stream.
    `choose` reads the rest.
    """

    def __init__(self, takes_s: float, choose: Choose) -> None:
        self._takes_s = takes_s
        self._choose = choose
        self.now = self.most = self.all = 0

    async def serve(self) -> None:
        server = await asyncio.start_server(self._handle_connection, "127.0.0.1", 0, backlog=4096)
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
        async with server:
            await server.serve_forever()

    async def _handle_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = 0
                for line in head.split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        length = int(line[15:])
                        break
                body = await reader.readexactly(length)
                if head.startswith(b"get /count"):
                    await self._tell(writer)
                else:
                    await self._send_reply(
                        writer, self._choose(body), is_streamed=b'"stream":true' in body
                    )
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _tell(self, writer: asyncio.StreamWriter) -> None:
        body = json.dumps({"now": self.now, "most": self.most, "all": self.all}).encode()
        writer.write(_WHOLE % (len(body), body))
        await writer.drain()

    async def _send_reply(
        self, writer: asyncio.StreamWriter, reply: SentReply, *, is_streamed: bool
    ) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            if is_streamed:
                writer.write(_STREAM + reply.first)
                for delta in reply.deltas:
                    await asyncio.sleep(self._takes_s / len(reply.deltas))
                    writer.write(delta)
                writer.write(reply.last)
            else:
                await asyncio.sleep(self._takes_s)
                writer.write(_WHOLE % (len(reply.whole_reply), reply.whole_reply))
            await writer.drain()
            self.all += 1
        finally:
            self.now -= 1


def build_reply(text: str, events: int, *, calls: bool = False) -> SentReply:
    """Return a reply.

    Args:
        events: maximum number of deltas.
        calls: True to call the tool `now` after the text.
    """
    message: dict[str, Any] = {
        "id": "msg_bench",
        "type": "message",
        "role": "assistant",
        "model": "bench",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _USAGE,
    }
    size = -(-len(text) // events)
    pieces: list[str] = []
    for at in range(0, len(text), size):
        pieces.append(text[at : at + size])
    deltas: list[dict[str, object]] = []
    for piece in pieces:
        deltas.append({"index": 0, "delta": {"type": "text_delta", "text": piece}})
    start = _encode_event("message_start", message=message) + _encode_event(
        "content_block_start", index=0, content_block={"type": "text", "text": ""}
    )
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    if calls:
        tools = [{"type": "tool_use", "id": "toolu_bench", "name": "now", "input": {}}]
    else:
        tools = []
    call = b"".join(
        _encode_event("content_block_start", index=1, content_block=tool)
        + _encode_event("content_block_stop", index=1)
        for tool in tools
    )
    over = _encode_event("message_delta", delta=stop, usage=_USAGE) + _encode_event("message_stop")
    end = _encode_event("content_block_stop", index=0) + call + over + b"0\r\n\r\n"
    whole_message = {**message, **stop, "content": [{"type": "text", "text": text}, *tools]}
    return SentReply(
        start,
        tuple(_encode_event("content_block_delta", **delta) for delta in deltas),
        end,
        json.dumps(whole_message).encode(),
    )


def _encode_event(kind: str, **fields: Any) -> bytes:
    data = f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def in_turns(turns: int) -> Choose:
    """Return a function that answers with 200 words in 40 pieces, and calls a tool in each
    turn but the last.
    """
    from benchmarks.timed_model import answer_to

    text = json.dumps(
        {
            **answer_to({}),
            "output": "## A part\n\n" + "It says what it says, as it was said before. " * 20,
        }
    )
    answer, call = build_reply(text, 40), build_reply(text, 40, calls=True)
    return lambda body: answer if body.count(b'"role":"assistant"') + 1 >= turns else call


def for_jobs(synthesis: str) -> Choose:
    """Return a function that chooses the answer by the schema of a call, for the jobs of the
    table. An answer has about a hundred tokens in 10 pieces.
    """
    from benchmarks.timed_model import answer_to
    from handoff_queue.shared.types.plan import Synthesis
    from handoff_queue.testing import answer_properties

    by_field = {}
    for field in ("steps", "verdict", "output"):
        by_field[field] = build_reply(
            json.dumps(answer_to({"properties": {field: {}}}, Synthesis(synthesis))), 10
        )

    def choose(body: bytes) -> SentReply:
        properties = answer_properties(json.loads(body))
        for field, reply in by_field.items():
            if field in properties:
                return reply
        return by_field["output"]

    return choose


KINDS: dict[str, Callable[[str], Choose]] = {
    "turns": lambda turns: in_turns(int(turns)),
    "jobs": for_jobs,
}

if __name__ == "__main__":
    kind, seconds, argument = sys.argv[1:]
    asyncio.run(StreamingServer(float(seconds), KINDS[kind](argument)).serve())
