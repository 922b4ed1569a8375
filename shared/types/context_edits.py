"""The ways in which a provider shortens requests, as the facts about a model name them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

CLEAR_TOOL_USES = "clear_tool_uses_20250919"
"""Type of the edit that clears old results of tools, in requests, reports and capabilities."""

BETA_HEADER = "anthropic-beta"
CLEARING_BETA = "context-management-2025-06-27"
COMPACTION_BETA = "compact-2026-09-04"
"""Values of this header that context editing and compaction on request need."""


class ContextEdit(StrEnum):
    """A way in which a provider shortens requests."""

    CLEARING = "context editing"
    """It clears old results of tools before the model reads a request."""
    COMPACTION = "compaction"
    """It writes a summary of all messages on request."""


NO_EDITS: frozenset[ContextEdit] = frozenset()


def edits_in(facts: object) -> frozenset[ContextEdit]:
    """Return the edits that the facts about a model name.

    Args:
        facts: `BetaModelInfo` of the SDK as JSON, or the answer of another server.
    """
    edits: set[ContextEdit] = set()
    if _is_supported(facts, "context_management", CLEAR_TOOL_USES):
        edits.add(ContextEdit.CLEARING)
    if _is_supported(facts, "compaction", "summarize"):
        edits.add(ContextEdit.COMPACTION)
    return frozenset(edits)


def _is_supported(facts: object, group: str, name: str) -> bool:
    value = facts
    for key in ("capabilities", group, name):
        if not isinstance(value, Mapping):
            return False
        value = value.get(key)
    return isinstance(value, Mapping) and value.get("supported") is True
