"""A Messages-API server on loopback that streams each reply over a fixed time, and counts: `python -m benchmarks.streaming_server 2.0 4`.

Of the turns of a handoff (here four) all but the last one call a tool, with as many words before it as the last one's answer has.

Says its URL on the first line. `GET /count` tells how many calls are in flight now, the most there were at once, and all so far.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

EVENTS = 40
"""Deltas of a reply: what an answer of two hundred words comes in."""
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nrequest-id: req_bench\r\ntransfer-encoding: chunked\r\n\r\n"
_USAGE = {"input_tokens": 500, "output_tokens": 100}


class Server:
    """Knows nothing of a request but that it came whole, and how many turns went before."""

    def __init__(self, takes_s: float, turns: int, text: str) -> None:
        self._takes_s = takes_s
        self._turns = turns
        self._answer, self._call = _events(text), _events(text, calls=True)
        self.now = self.most = self.all = 0

    async def serve(self) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=4096)
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
        async with server:
            await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0)
                body = await reader.readexactly(length)
                if head.startswith(b"get /count"):
                    await self._tell(writer)
                else:
                    is_last = body.count(b'"role":"assistant"') + 1 >= self._turns
                    await self._reply(writer, *(self._answer if is_last else self._call))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _tell(self, writer: asyncio.StreamWriter) -> None:
        body = json.dumps({"now": self.now, "most": self.most, "all": self.all}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()

    async def _reply(self, writer: asyncio.StreamWriter, first: bytes, deltas: list[bytes], last: bytes) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            writer.write(_HEAD + first)
            for delta in deltas:
                await asyncio.sleep(self._takes_s / EVENTS)
                writer.write(delta)
            writer.write(last)
            await writer.drain()
            self.all += 1
        finally:
            self.now -= 1


def _events(text: str, *, calls: bool = False) -> tuple[bytes, list[bytes], bytes]:
    """What comes at once, what comes over time, and what comes at the end. `calls`: a call of the tool `now`."""
    message: dict[str, object] = {
        "id": "msg_bench",
        "type": "message",
        "role": "assistant",
        "model": "bench",
        "content": [],
        "stop_reason": None,
        "usage": _USAGE,
    }
    size = -(-len(text) // EVENTS)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    deltas = [{"index": 0, "delta": {"type": "text_delta", "text": piece}} for piece in pieces]
    start = _event("message_start", message=message) + _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    stop = {"delta": {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}, "usage": _USAGE}
    tool = {"type": "tool_use", "id": "toolu_bench", "name": "now", "input": {}}
    call = _event("content_block_start", index=1, content_block=tool) + _event("content_block_stop", index=1) if calls else b""
    end = _event("content_block_stop", index=0) + call + _event("message_delta", **stop) + _event("message_stop")
    return start, [_event("content_block_delta", **delta) for delta in deltas], end + b"0\r\n\r\n"


def _event(kind: str, **fields: Any) -> bytes:
    data = f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


if __name__ == "__main__":
    from benchmarks.instant_model import answer_to

    answer = {**answer_to({}), "output": "## A part\n\n" + "It says what it says, as it was said before. " * 20}
    asyncio.run(Server(float(sys.argv[1]), int(sys.argv[2]), json.dumps(answer)).serve())
