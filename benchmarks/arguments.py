"""Values of the command lines of the benchmarks. argparse answers a wrong value with one line and
exit code 2, before anything runs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Collection, Sequence


def parse_positive(text: str) -> int:
    """Parse a positive integer.

    Raises:
        argparse.ArgumentTypeError: it is not one.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def parse_not_negative(text: str) -> int:
    """Parse an integer that is not negative.

    Raises:
        argparse.ArgumentTypeError: it is not one.
    """
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def parse_seconds(text: str) -> float:
    """Parse seconds.

    Raises:
        argparse.ArgumentTypeError: the text is not a number of seconds.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def filter_names(
    parser: argparse.ArgumentParser, option: str, texts: Sequence[str], names: Collection[str]
) -> list[str]:
    """Return the names that contain one of the texts. No texts: all names.

    Raises:
        SystemExit: no name contains one of the texts. The line lists the names.
    """
    for text in texts:
        if not any(text in name for name in names):
            parser.error(f"{option}: no name contains {text!r}: choose from {'; '.join(names)}")
    matches: list[str] = []
    for name in names:
        if not texts or any(text in name for text in texts):
            matches.append(name)
    return matches
