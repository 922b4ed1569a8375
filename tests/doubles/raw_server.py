"""A server on loopback that sends raw bytes, for replies that a correct HTTP server never sends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

HEADERS = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
START = (
    'event: message_start\ndata: {"type": "message_start", "message": {"id": "m", "type":'
    ' "message", "role": "assistant", "model": "some-model", "content": [], "stop_reason": null,'
    ' "usage": {"input_tokens": 10, "output_tokens": 1}}}\n\n'
)
STOP = (
    'event: message_delta\ndata: {"type": "message_delta", "delta": {"stop_reason": "end_turn"},'
    ' "usage": {"output_tokens": 2}}\n\nevent: message_stop\ndata: {"type": "message_stop"}\n\n'
)
END = b"0\r\n\r\n"
"""End of a chunked body. The client may reuse the connection."""
PING = 'event: ping\ndata: {"type": "ping"}\n\n'
_WHOLE = (
    b'{"id": "m", "type": "message", "role": "assistant", "model": "some-model", "content":'
    b' [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn", "usage": {"input_tokens":'
    b' 10, "output_tokens": 1}}'
)
REPLY = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(_WHOLE)
    + _WHOLE
)
"""Complete response with a length. The client may reuse the connection."""


def chunk(text: str) -> bytes:
    data = text.encode()
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


Talk = Callable[["Conversation"], None]


class Conversation:
    """Server's end of one connection."""

    def __init__(self, connection: socket.socket, number: int) -> None:
        self.connection = connection
        self.number = number
        """Number of the connection in order of arrival, from 1."""

    def request(self) -> bytes:
        """Read the next request to its end, and return its head. Return b"" if the client left."""
        text = b""
        while b"\r\n\r\n" not in text and (part := self.connection.recv(65536)):
            text += part
        head, _, body = text.partition(b"\r\n\r\n")
        length = next(
            (
                int(line[15:])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length:")
            ),
            0,
        )
        while len(body) < length and (part := self.connection.recv(65536)):
            body += part
        return text

    def say(self, data: bytes) -> None:
        self.connection.sendall(data)


class RawServer:
    """A server that passes each connection to `talk`, in a thread, inside its `with` block."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.left = threading.Event()
        """Set when a client leaves an unfinished conversation."""
        self.over = threading.Event()
        """Set when the server stops, to end conversations that wait for it."""
        self.accepted = 0
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.accepted += 1
                thread = threading.Thread(
                    target=self._hold, args=(Conversation(connection, self.accepted),), daemon=True
                )
                self._threads.append(thread)
                thread.start()

    def _hold(self, conversation: Conversation) -> None:
        with conversation.connection:
            try:
                self._talk(conversation)
            except OSError:
                self.left.set()

    def repeat(self, conversation: Conversation, data: bytes, every_s: float) -> None:
        """Send `data` every `every_s` seconds until the client leaves or the server stops."""
        while not self.over.wait(every_s):
            conversation.say(data)
