"""Markers in an output, `[c1]` and `[step.c1]`: how its statements point to claims. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from handoff_queue.shared.types.ids import StepId

_NAME = r"(?:[a-z][a-z0-9_-]{0,47}\.)?c[0-9]{1,4}"
MARKER = re.compile(rf"\[({_NAME}(?:\s*[,;]\s*{_NAME})*)\]")
"""Claim ids in brackets: `[c1]`, `[find.c2, c3]`."""
_ID = re.compile(rf"^\[?({_NAME}|[0-9]{{1,4}})\]?$")


def qualify_claim_id(claim_id: str, step: StepId) -> str | None:
    """Return the id with its step in front: `c1` -> `step.c1`, or None if it is not an id. A bare
    number counts as an id.
    """
    match = _ID.match(claim_id.strip())
    if match is None:
        return None
    name = match.group(1)
    if name.isdigit():
        name = f"c{name}"
    if "." in name:
        return name
    return f"{step}.{name}"


def qualify_markers(
    output: Any, step: StepId, known: Collection[str], dangling: list[str]
) -> tuple[Any, list[str]]:
    """Return the output with every marker qualified, one id per bracket, and the ids in the order
    of their first use.

    Markers without a claim are removed, and their names are added to `dangling`.
    """
    used: dict[str, None] = {}

    def rename(match: re.Match[str]) -> str:
        kept = []
        for given in re.split(r"\s*[,;]\s*", match.group(1)):
            name = qualify_claim_id(given, step)
            if name in known and name is not None:
                used[name] = None
                kept.append(f"[{name}]")
            elif given not in dangling:
                dangling.append(given)
        return "".join(kept)

    return in_every_text(output, lambda text: MARKER.sub(rename, text)), list(used)


def in_every_text(value: Any, replaced: Callable[[str], str]) -> Any:
    """Return a JSON value with each text replaced, except keys."""
    if isinstance(value, str):
        return replaced(value)
    if isinstance(value, list):
        return [in_every_text(item, replaced) for item in value]
    if isinstance(value, dict):
        return {key: in_every_text(item, replaced) for key, item in value.items()}
    return value
