"""The ways in which a provider shortens requests, as the facts about a model name them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def build_beta_header(headers: Mapping[str, object], betas: Sequence[str]) -> dict[str, str]:
    """Return the header that turns betas on, with the betas of the client's own headers."""
    own_betas: list[str] = []
    for name, value in headers.items():
        if name.lower() == BETA_HEADER and isinstance(value, str):
            own_betas += [word.strip() for word in value.split(",") if word.strip()]
    return {BETA_HEADER: ",".join(dict.fromkeys([*own_betas, *betas]))}


def read_edits(facts: object) -> frozenset[ContextEdit]:
    """Return the edits that the facts about a model name.

    Args:
        facts: `BetaModelInfo` of the SDK as JSON, or the answer of another server.
    """
    edits: set[ContextEdit] = set()
    if is_supported(facts, ("context_management", CLEAR_TOOL_USES)):
        edits.add(ContextEdit.CLEARING)
    if is_supported(facts, ("compaction", "summarize")):
        edits.add(ContextEdit.COMPACTION)
    return frozenset(edits)


def is_supported(facts: object, place: Iterable[str]) -> bool | None:
    """Return whether a model has a capability. None: the facts do not say.

    Args:
        facts: see `read_edits`.
        place: names that lead to the capability.
    """
    value = facts
    for name in ("capabilities", *place, "supported"):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value if isinstance(value, bool) else None
