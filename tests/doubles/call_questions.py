"""Questions about tool calls in tests."""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.agent.checkpoint_store import CallQuestion
from handoff_queue.shared.store.claim import HandoffClaim
from handoff_queue.shared.types.errors import ApprovalAwaited

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"to": {"type": "string"}},
    "required": ["to"],
    "additionalProperties": False,
}


def a_question(call_id: str = "toolu_1", to: str = "a@example.com") -> CallQuestion:
    """Return the question about a mail."""
    return CallQuestion(
        call_id,
        "send_mail",
        {"to": to},
        SCHEMA,
        "each call of send_mail needs an approval",
        {"to": ("user", "web")},
    )


def ask(claimed: HandoffClaim, *questions: CallQuestion, wait_s: int = 3_600) -> None:
    """Ask about calls, as an agent does. The claim ends."""
    with pytest.raises(ApprovalAwaited):
        claimed.ask_about_calls(questions or (a_question(),), wait_s)
