"""The check of each call of a handoff against the policy of tools, before the call runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from handoff_queue.shared.agent.conversation import Conversation
from handoff_queue.shared.agent.seen_texts import Seen, SeenText
from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.agent.tool_policy import CallDecision, CallVerdict, ToolPolicy
from handoff_queue.shared.types.checkpoints import (
    Checkpoint,
    ModelReplied,
    ToolObserved,
    UserPrompted,
)
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.model import Block
from handoff_queue.shared.types.origins import (
    CODE_EXECUTION,
    USER,
    WEB,
    Origin,
    origins_or_unknown,
    tool_origin,
    union,
)

_SEARCH_RESULT = "web_search_tool_result"
"""Type of the block with the results of a server-side search."""
_RESULT_OF_CODE = "code_execution_tool_result"
"""End of the types of the blocks with a result of the provider's code execution."""


@dataclass(frozen=True, slots=True)
class CallGuard:
    """Decides the calls of one handoff."""

    handoff: AgentHandoff
    policy: ToolPolicy
    words_of_user: Callable[[], str]
    """Returns the request of the user. It is read from the store at the first use."""

    def decide(
        self, tool: Tool, arguments: dict[str, Any], conversation: Conversation
    ) -> CallDecision:
        """Return the decision on a call after this conversation."""
        if not tool.sends and not tool.acts and not self.policy.names(tool):
            return CallDecision(CallVerdict.ALLOW)
        return self.policy.decide(tool, arguments, self.seen(conversation))

    def is_offered(self, tool: Tool, conversation: Conversation) -> bool:
        """Return whether the model may know of a tool. The provider runs a server-side tool
        within the model call, so the call itself cannot be checked.
        """
        if tool.server_param is None:
            return True
        return self.decide(tool, {}, conversation).verdict is CallVerdict.ALLOW

    def origins(self, conversation: Conversation) -> tuple[Origin, ...]:
        """Return the origins of all that the handoff has seen."""
        groups = [text.origins for text in map(_seen_in, conversation.checkpoints) if text]
        return union(origins_or_unknown(self.handoff.origins), *groups)

    def seen(self, conversation: Conversation) -> Seen:
        """Return all texts that the handoff has seen, and the words of the user."""
        opening = "\n".join(block.get("text", "") for block in conversation.opening["content"])
        texts = [SeenText(opening, origins_or_unknown(self.handoff.origins))]
        words = [self.words_of_user()]
        words += [item.text for item in self.handoff.feedback if item.author == "user"]
        texts += [SeenText(text, (USER,)) for text in words if text]
        texts += [text for text in map(_seen_in, conversation.checkpoints) if text]
        return Seen().plus(*texts)


def _seen_in(checkpoint: Checkpoint) -> SeenText | None:
    """Return the text of others that a checkpoint has, or None."""
    match checkpoint:
        case ToolObserved():
            return SeenText(checkpoint.text, origins_or_unknown(checkpoint.origins))
        case UserPrompted():
            return SeenText(checkpoint.text, (USER,))
        case ModelReplied():
            return _seen_at_provider(checkpoint)
    return None


def _seen_at_provider(reply: ModelReplied) -> SeenText | None:
    """Return the results of tools that the provider has run, or None."""
    results: list[Block] = []
    origins: set[Origin] = set()
    for block in reply.content:
        kind = str(block.get("type"))
        if kind == _SEARCH_RESULT:
            origins.add(WEB)
        elif kind.endswith(_RESULT_OF_CODE):
            origins.add(tool_origin(CODE_EXECUTION))
        else:
            continue
        results.append(block)
    if not results:
        return None
    return SeenText(json.dumps(results, ensure_ascii=False), union(origins))
