"""The conversation of one attempt at a handoff in memory, and its checkpoints in the store."""

from __future__ import annotations

from handoff_queue.shared.agent.conversation import Conversation, find_calls
from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.types.checkpoints import (
    Checkpoint,
    ContextCleared,
    ContextCompacted,
    ModelReplied,
    ToolObserved,
)


class CheckpointedConversation:
    """The conversation of one attempt, which grows by checkpoints."""

    def __init__(self, conversation: Conversation, dependencies: RunDependencies) -> None:
        self.conversation = conversation
        self.dependencies = dependencies
        """What the attempt uses. With a claim, its checkpoints are the claim's."""

    def store(self, *checkpoints: Checkpoint, deferrable: bool = False) -> None:
        """Store the checkpoints, and then add them to the conversation.

        Args:
            deferrable: see `CheckpointStore.checkpoint`.
        """
        self.dependencies.checkpoints.checkpoint(*checkpoints, deferrable=deferrable)
        self.add(*checkpoints)

    def add(self, *checkpoints: Checkpoint) -> None:
        """Add stored checkpoints to the conversation. Note the arguments of their calls and the
        texts of their tool results for the check of quotes, and results that can be cited.
        """
        self.conversation = self.conversation.add(*checkpoints)
        context = self.dependencies.tool_context
        for checkpoint in checkpoints:
            if isinstance(checkpoint, ContextCleared | ContextCompacted):
                self._hide(checkpoint)
            if isinstance(checkpoint, ModelReplied):
                for call in find_calls(checkpoint):
                    context.record_arguments(str(call.get("name")), call.get("input"))
            if not isinstance(checkpoint, ToolObserved) or checkpoint.is_error:
                continue
            context.record_text(checkpoint.text)
            if checkpoint.source:
                context.record_tool_result(checkpoint.source, checkpoint.text)

    def _hide(self, cleared: ContextCleared | ContextCompacted) -> None:
        """Tell the tools that the model no longer sees these results."""
        for observed in self.conversation.observed:
            if observed.tool_use_id in cleared.tool_use_ids:
                self.dependencies.tool_context.hide_text(observed.text)
