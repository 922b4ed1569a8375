"""Environment variables `HANDOFF_...` that nothing reads, such as a setting with a typing error."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable

from handoff_queue.shared.settings.settings import PATHS, PREFIX, Settings
from handoff_queue.shared.text.word_forms import close_names

OTHERS = frozenset({
    *PATHS,
    "HANDOFF_CHAOS_DEDUPLICATES",  # benchmarks/celery_control
    "HANDOFF_DEBUG",  # supervisor/cli/errors.py
    "HANDOFF_MAKE_DOCS",  # Makefile
    "HANDOFF_MAKE_JOB",
})  # fmt: skip
"""Variables of this project that are not settings."""
_SHOWN_CHARS = 100
_SERVICE_HOST = re.compile(r"(HANDOFF(?:_.+)?)_SERVICE_HOST")
"""Kubernetes sets this variable, and others with the same beginning, for each service of a
namespace (service links).
"""


def list_known_variables() -> frozenset[str]:
    """Return the names of all variables `HANDOFF_...` that this project reads."""
    names = [PREFIX + name.upper() for name in Settings.model_fields]
    return OTHERS.union(names)


def build_unknown_variables_warning(environment: Collection[str] = os.environ) -> str | None:
    """Return one line that names the variables `HANDOFF_...` that are not known, each with the
    closest known name. Return None if all are known.

    The line is a warning: another version or another program may read such a variable.
    """
    own_variables = sorted(name for name in environment if name.upper().startswith(PREFIX))
    if not own_variables:
        return None
    known = list_known_variables()
    services: list[str] = []
    for name in own_variables:
        if match := _SERVICE_HOST.fullmatch(name):
            services += [f"{match[1]}_SERVICE_", f"{match[1]}_PORT"]
    unknown: list[str] = []
    for name in own_variables:
        if name.upper() not in known and not name.startswith(tuple(services)):
            unknown.append(_with_closest(name, known))
    if not unknown:
        return None
    return f"unknown environment variables are ignored: {', '.join(unknown)}"


def _with_closest(name: str, known: Collection[str]) -> str:
    """Return the name and the closest known name. The common beginning is not compared: it would
    make all names similar.
    """
    rest = [variable.removeprefix(PREFIX) for variable in sorted(known)]
    close = _with_all_words(name[len(PREFIX) :], rest) or close_names(name[len(PREFIX) :], rest)
    if not close:
        return name[:_SHOWN_CHARS]
    return f"{name[:_SHOWN_CHARS]} (did you mean {PREFIX}{close[0]}?)"


def _with_all_words(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names of several words, all of which are words of a name, as DAY_USD for
    MAX_USD_PER_DAY. The name with the most words is the first.
    """
    words = _split_words(name)
    candidates: list[str] = []
    for candidate in known:
        if "_" in candidate and _split_words(candidate) <= words:
            candidates.append(candidate)
    return sorted(candidates, key=lambda candidate: len(_split_words(candidate)), reverse=True)


def _split_words(name: str) -> set[str]:
    """Return the words of a variable's name, without the S of a plural."""
    return {word.rstrip("S") for word in name[:_SHOWN_CHARS].upper().split("_")}
