"""The approval of one tool call by a person: the question and its answer, for the agent loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class CallQuestion:
    """A call that needs a person's approval."""

    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    input_schema: Mapping[str, Any]
    """The JSON Schema of the tool's arguments."""
    why: str
    """Reason of the question, in words of our code."""
    origins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Origins of the texts that contain each argument."""


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """A person's answer, or the default answer after a time limit."""

    is_approved: bool
    note: str | None = None
    arguments: Mapping[str, Any] | None = None
    """Arguments that replace the model's own; None: the call keeps them."""
