"""The provider's own clearing of results and its own summaries, for a handoff whose file asks for
them. The agent loop does the same itself where the provider cannot.

The provider reports how many results it has cleared. It clears the oldest first, so the loop knows
which ones, and stores them as a checkpoint with the reply. Later requests show the loop's notes in
their place, with the names for `read_result`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from handoff_queue.shared.agent.conversation import Conversation, find_calls
from handoff_queue.shared.agent.tool_result_clearing import (
    MIN_FREED,
    ClearingRules,
    list_clearable_results,
)
from handoff_queue.shared.types.checkpoints import ContextCleared, ToolObserved
from handoff_queue.shared.types.context_edits import ContextEdit
from handoff_queue.shared.types.model import ModelCall, ModelReply, ProviderClearing


@dataclass(frozen=True, slots=True)
class ProviderContext:
    """What the provider may do to the requests of a handoff."""

    edits_of: Callable[[str], Collection[ContextEdit]]
    """Returns the edits that the provider offers for a model now."""
    longest_prompt: int
    """See `Prices.longest_prompt`. The loop clears results itself if a request could be longer."""

    def clears(self, models: Iterable[str]) -> bool:
        """Return whether the provider clears results for each of these models."""
        return all(ContextEdit.CLEARING in self.edits_of(model) for model in models)


def choose_provider_clearing(conversation: Conversation, rules: ClearingRules) -> ProviderClearing:
    """Return when the provider clears results from the next request. Results that the model has
    not seen stay, and so does the newest one.
    """
    unseen_results = sum(isinstance(item, ToolObserved) for item in conversation.since_reply)
    return ProviderClearing(
        at_tokens=rules.at_tokens,
        keep=max(1, rules.keep, unseen_results),
        at_least=max(1, rules.at_tokens // MIN_FREED),
    )


def find_results_cleared_by_provider(
    conversation: Conversation, call: ModelCall, reply: ModelReply
) -> ContextCleared | None:
    """Return the results that the provider has cleared from a request, or None. Short results and
    errors are left out: later requests show them again.

    Args:
        conversation: the conversation before the reply.
    """
    if not reply.cleared_calls or call.clearing is None:
        return None
    ids: list[str] = []
    for visible_reply in conversation.shown_replies:
        ids += [str(block["id"]) for block in find_calls(visible_reply)]
    most = max(0, len(ids) - call.clearing.keep)
    oldest = set(ids[: min(reply.cleared_calls, most)])
    cleared_ids: list[str] = []
    for observed in list_clearable_results(conversation):
        if observed.tool_use_id in oldest:
            cleared_ids.append(observed.tool_use_id)
    if not cleared_ids:
        return None
    return ContextCleared(
        tool_use_ids=tuple(cleared_ids), tokens=reply.cleared_tokens, by_provider=True
    )
