"""A model call in a measurement: its duration, and how it is made."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Way(StrEnum):
    """Ways to make a call and to receive its reply."""

    FUNCTION = "function"
    """A function that waits, in the calling process: the rest of the time is the cost of the
    queue.
    """
    STREAMED = "streamed"
    """The provider's SDK over HTTP, with a server on loopback that streams the reply."""
    WHOLE = "whole"
    """Like `streamed`, but peers ask for the reply in one piece, which is cheaper and shows no
    progress. This project streams in any case.
    """


@dataclass(frozen=True, slots=True, order=True)
class Call:
    """`1`, `1:streamed` or `1:whole` on the command line."""

    seconds: float
    way: Way = Way.FUNCTION

    @classmethod
    def parsed(cls, text: str) -> Self:
        """Parse the argument.

        Raises:
            argparse.ArgumentTypeError: the text is not a call.
        """
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(?::(\w+))?", text)
        if (
            not match
            or (match[2] and match[2] not in list(Way))
            or (match[2] and not float(match[1]))
        ):
            raise argparse.ArgumentTypeError(f"{text!r} is not like 0, 1, 1:streamed or 1:whole")
        return cls(float(match[1]), Way(match[2] or Way.FUNCTION))

    @property
    def is_over_http(self) -> bool:
        return self.way is not Way.FUNCTION

    def __str__(self) -> str:
        return f"{self.seconds:g} s" + (f" {self.way}" if self.is_over_http else "")
