"""The bytes that a server may still send."""

from __future__ import annotations

from handoff_queue.shared.types.json_values import JsonCounter

MAX_BYTES = 8_000_000
"""Most bytes that a server sends until its next call. The largest image has 5,000,000 bytes of
base64.
"""
REQUEST_BYTES = 40_000
"""Bytes that each request to a server over HTTP counts as: 200 requests until the next call. A
server may end a stream and ask for another one at once, or ask the worker in its stream.
"""

PIECE_BYTES = 400
"""Bytes that each piece of an answer over HTTP counts as, in addition to its length: 20,000 pieces
until the next call. A server may send each byte as a chunk, which costs more processor time.
"""
GROUP_BYTES = 200
"""Bytes that each JSON object and each array counts as, in addition to its length. An empty text of
a result has 26 bytes of JSON, and takes about 2,500 bytes of memory.
"""
ELEMENT_BYTES = 80
"""Bytes that each comma between values counts as, in addition to its length. A number in the place
of a part of a result has 2 bytes of JSON, and its errors take about 2,300 bytes of memory.
"""
LINE_BYTES = 400
"""Bytes that each end of a line counts as, in addition to its length. Over stdin and stdout, each
line is a message, and a line without JSON costs about 100 microseconds.
"""


class TooManyBytes(OSError):
    """The server has sent too much."""


class ByteAllowance:
    """The bytes that a server may send until the next call. Each call begins with all bytes."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._left_bytes = max_bytes
        self.is_exceeded = False

    def refill(self) -> None:
        """Begin a call."""
        self._left_bytes = self._max_bytes

    def take(self, count: int) -> None:
        """Count bytes that the server has sent.

        Raises:
            TooManyBytes: there are too many.
        """
        self._left_bytes -= count
        if self._left_bytes < 0:
            self.is_exceeded = True
            raise TooManyBytes(f"sent more than {self._max_bytes:,} bytes")


class JsonStream:
    """Counts the pieces of a stream of JSON, and the values in them."""

    def __init__(self, allowance: ByteAllowance) -> None:
        self._allowance = allowance
        self._counter = JsonCounter()

    def take(self, piece: bytes) -> None:
        """Count a piece that the server has sent. Raises as `ByteAllowance.take`."""
        values = self._counter.count(piece)
        self._allowance.take(
            len(piece)
            + GROUP_BYTES * values.groups
            + ELEMENT_BYTES * values.commas
            + LINE_BYTES * (piece.count(b"\n") + piece.count(b"\r"))
        )
