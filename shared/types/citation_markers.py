"""Markers in an output, such as `[c1]` and `[step.c1]`, that refer to claims. Pure.

The sources of claims have names, too. A stored result or a file of a tool is
`tool:HANDOFF/TOOL#NUMBER`. A handoff's id is unique in its job only, so the name changes when the
source goes to another job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from handoff_queue.shared.types.handoff import Citation, Claim
from handoff_queue.shared.types.ids import StepId

_NAME = r"(?:[a-z][a-z0-9_-]{0,47}\.)?c[0-9]{1,4}"
MARKER = re.compile(rf"\[({_NAME}(?:\s*[,;]\s*{_NAME})*)\]")
"""One or more claim ids in brackets: `[c1]`, `[find.c2, c3]`."""
_ID = re.compile(rf"^\[?({_NAME}|[0-9]{{1,4}})\]?$")
_HANDOFF = r"[a-z][a-z0-9_-]{0,47}\.[0-9]{1,6}"
_NOTE = r"memory:[^\s()]{1,300} \([^()]{0,1000}\)"
"""The source of a note with the name of its document. The name does not change with the job."""
_TOOL_SOURCE = re.compile(rf"{_NOTE}|\btool:({_HANDOFF}(?:\.{_HANDOFF}){{0,20}})(?=/)")


def split_claim_ids(text: str) -> list[str]:
    """Return the claim ids between the brackets of a marker."""
    return [claim_id.strip() for claim_id in re.split("[,;]", text)]


def qualify_claim_id(claim_id: str, step: StepId) -> str | None:
    """Return the id of a claim with its step, such as `step.c1` for `c1`, for `[c1]` and for
    `1`. An id with a step is returned unchanged. Return None if the text is not an id.
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
    """Return the output with each marker qualified, one id in each bracket, and the ids in the
    order of their first use. Ids without a claim are removed.

    Args:
        known: qualified ids of the claims.
        dangling: list to which ids without a claim are added.
    """
    used_ids: dict[str, None] = {}

    def rename(match: re.Match[str]) -> str:
        markers: list[str] = []
        for claim_id in split_claim_ids(match[1]):
            name = qualify_claim_id(claim_id, step)
            if name in known and name is not None:
                used_ids[name] = None
                markers.append(f"[{name}]")
            elif claim_id not in dangling:
                dangling.append(claim_id)
        return "".join(markers)

    return map_texts(output, lambda text: MARKER.sub(rename, text)), list(used_ids)


def rename_markers(output: Any, names: Mapping[str, str]) -> Any:
    """Return the output with other ids in its markers.

    Args:
        names: new ids by the old ones.
    """

    def rename(match: re.Match[str]) -> str:
        claim_ids = split_claim_ids(match[1])
        return f"[{', '.join(names.get(claim_id, claim_id) for claim_id in claim_ids)}]"

    return map_texts(output, lambda text: MARKER.sub(rename, text))


def map_texts(value: Any, replace_text: Callable[[str], str]) -> Any:
    """Return a JSON value with `replace_text` applied to each text, except keys."""
    if isinstance(value, str):
        return replace_text(value)
    if isinstance(value, list):
        return [map_texts(item, replace_text) for item in value]
    if isinstance(value, dict):
        return {key: map_texts(item, replace_text) for key, item in value.items()}
    return value


def rename_tool_sources(text: str, rename: Callable[[str], str]) -> str:
    """Return a text with other names of tool results.

    Args:
        rename: returns the new name of a handoff. The result of a child job has two or more
            handoffs in its name, with dots: `x.1.find.1`.
    """

    def replace_name(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        return f"tool:{rename(match[1])}"

    return _TOOL_SOURCE.sub(replace_name, text)


def rename_sources_of(claim: Claim, rename: Callable[[str], str]) -> Claim:
    """Return a claim with other names of its sources, also in its text.

    Args:
        rename: returns a text with the new names.
    """
    sources: list[Citation] = []
    for citation in claim.sources:
        sources.append(citation.model_copy(update={"source": rename(citation.source)}))
    return claim.model_copy(update={"text": rename(claim.text), "sources": tuple(sources)})
