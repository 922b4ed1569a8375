"""Names of stored results and files of tools: `tool:HANDOFF/TOOL#NUMBER`. Pure.

A handoff's id is unique in its job only. So a name changes when the source goes to another job.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from handoff_queue.shared.types.handoff import Citation, Claim

_HANDOFF = r"[a-z][a-z0-9_-]{0,47}\.[0-9]{1,6}"
_NOTE = r"memory:[^\s()]{1,300} \([^()]{0,1000}\)"
"""The source of a note with the name of its document. The name does not change with the job."""
_NAME = re.compile(rf"{_NOTE}|\btool:({_HANDOFF}(?:\.{_HANDOFF}){{0,20}})(?=/)")


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

    return _NAME.sub(replace_name, text)


def rename_sources_of(claim: Claim, rename: Callable[[str], str]) -> Claim:
    """Return a claim with other names of its sources, also in its text.

    Args:
        rename: returns a text with the new names.
    """
    sources: list[Citation] = []
    for citation in claim.sources:
        sources.append(citation.model_copy(update={"source": rename(citation.source)}))
    return claim.model_copy(update={"text": rename(claim.text), "sources": tuple(sources)})
