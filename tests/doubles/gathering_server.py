"""A Messages-API server that answers only after a given number of calls have arrived.

The server runs in a separate process, because the number of open files of a process is limited. A
client and a server in one process would need two files for each connection.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from handoff_queue.shared.runtime.process_resources import raise_open_file_limit

_MESSAGE = {
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Here."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


@contextmanager
def gathering_server(calls: int) -> Iterator[str]:
    """Start a server that waits for this number of calls, and yield its base URL."""
    command = [sys.executable, "-m", __name__, str(calls)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


async def _serve(calls: int) -> None:
    arrived = 0
    all_arrived = asyncio.Event()
    body = json.dumps(_MESSAGE).encode()
    head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
    answer = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body

    async def answer_call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal arrived
        await reader.readuntil(b"\r\n\r\n")
        arrived += 1
        if arrived == calls:
            all_arrived.set()
        await all_arrived.wait()
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer_call, "127.0.0.1", 0, backlog=4096)
    host, port = server.sockets[0].getsockname()
    print(f"http://{host}:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    raise_open_file_limit()
    asyncio.run(_serve(int(sys.argv[1])))
