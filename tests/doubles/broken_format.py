"""An answer format that raises an unexpected error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer


@dataclass(frozen=True, slots=True)
class BrokenFormat:
    """Answer format that raises `error` in the chosen methods, and accepts no answer in others."""

    error: Exception
    in_read: bool
    in_salvage: bool

    @property
    def schema(self) -> Mapping[str, Any]:
        return {"type": "object"}

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:
        raise self.error if self.in_read else InvalidAnswer("it is not what was asked for")

    def salvage(self, text: str) -> AcceptedAnswer | None:
        if self.in_salvage:
            raise self.error
        return None
