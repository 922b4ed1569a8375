"""Decisions before the next turn of a handoff: the last turn, the results to clear, a summary of
the earlier turns, a batch.
"""

from __future__ import annotations

from handoff_queue.shared.agent.call_builder import MIN_OUTPUT_TOKENS, CallBuilder
from handoff_queue.shared.agent.compaction import frees_enough
from handoff_queue.shared.agent.conversation import Conversation
from handoff_queue.shared.agent.model_fallback import ModelChoices
from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.agent.summary_messages import AS_OUTPUT, SUMMARIZE, has_text_output
from handoff_queue.shared.agent.tool_result_clearing import ClearingRules, choose_results_to_clear
from handoff_queue.shared.types.checkpoints import AgentPrompted, ContextCleared
from handoff_queue.shared.types.limits import HandoffLimits

MAX_REPEATED_CALLS = 3
"""Repeated calls that brought nothing new, after which the next turn must be the answer."""
MAX_CUT_CALLS = 2
"""Calls of tools that were cut off, after which the next turn must be the answer. Each call
costs the whole length limit of a reply.
"""


class NextTurn:
    """The next turn of one handoff, as its conversation, its limits and its models decide it."""

    def __init__(self, limits: HandoffLimits, builder: CallBuilder, choices: ModelChoices) -> None:
        self._limits = limits
        self._builder = builder
        self._choices = choices
        self._longest_turn_s = 0.0

    @property
    def _dependencies(self) -> RunDependencies:
        return self._builder.dependencies

    def record_duration(self, seconds: float) -> None:
        """Record the duration of a call. A turn is the last one if two calls of the longest
        duration would not fit into the time left.
        """
        self._longest_turn_s = max(self._longest_turn_s, seconds)

    def is_last(self, conversation: Conversation) -> bool:
        """Return whether the next turn must be the answer. The turns, the tokens or the time
        would not suffice for one more turn. Or the model only repeats its calls, or its calls are
        cut off.
        """
        if conversation.turns + 1 >= self._limits.max_turns or conversation.is_told_last:
            return True
        if conversation.repeated_calls >= MAX_REPEATED_CALLS:
            return True
        if conversation.cut_calls >= MAX_CUT_CALLS:
            return True
        if not conversation.turns:
            return False
        if self._dependencies.left_s < 2 * self._longest_turn_s:
            return True
        next_input = self._builder.estimate_input_tokens(conversation)
        two_turns = 2 * next_input + self._limits.max_output_tokens + MIN_OUTPUT_TOKENS
        return self._builder.count_tokens_left(conversation) < two_turns

    def choose_results_to_clear(
        self, conversation: Conversation, *, is_refused: bool = False
    ) -> ContextCleared | None:
        """Return the results to clear before the next call, or None.

        Args:
            is_refused: True if the server has refused the request because of its length.
        """
        expected_tokens = self._builder.estimate_input_tokens(conversation)
        rules = self._dependencies.clearing
        if is_refused:
            rules = ClearingRules(at_tokens=max(1, expected_tokens // 2), keep=0)
        return choose_results_to_clear(conversation, expected_tokens, rules)

    def leaves_to_provider(self, conversation: Conversation, cleared: ContextCleared) -> bool:
        """Return whether the provider clears these results from the next request, by its own count
        of the tokens. The loop clears them if the request could be too long for the model, or if a
        summary is needed also after this clearing.
        """
        context = self._dependencies.provider_context
        if context is None or self.may_send_batch(conversation):
            return False
        expected_tokens = self._builder.estimate_input_tokens(conversation)
        if expected_tokens >= context.longest_prompt:
            return False
        if expected_tokens - cleared.tokens >= self._dependencies.compact_at:
            return False
        return context.clears(choice.name for choice in self._choices.choices)

    def is_summarized_first(self, conversation: Conversation, cleared: ContextCleared) -> bool:
        """Return whether a summary is needed also after this clearing. A clearing before it would
        only make the provider read the whole request again.

        A request that is a twentieth above the limit is cleared, because it may be too long for the
        model.
        """
        limit = self._dependencies.compact_at
        expected_tokens = self._builder.estimate_input_tokens(conversation)
        is_short = expected_tokens < limit + limit // 20
        is_enough = expected_tokens - cleared.tokens < limit
        return is_short and not is_enough and self.needs_summary(conversation)

    def needs_summary(self, conversation: Conversation) -> bool:
        """Return whether a summary must replace the earlier turns before the next call, and one
        more turn is left for it. An answer that is being fixed stays.
        """
        limit = self._dependencies.compact_at
        if conversation.is_just_cleared:  # the estimate of the whole request is high
            limit += limit // 9
        if self._builder.estimate_input_tokens(conversation) < limit or self.is_last(conversation):
            return False
        for checkpoint in conversation.since_reply:
            if isinstance(checkpoint, AgentPrompted):
                return False
        return frees_enough(conversation, limit)

    def build_summary_request(self) -> str:
        """Return the message that asks the model for a summary."""
        if has_text_output(self._builder.schema):
            return f"{SUMMARIZE}{AS_OUTPUT}"
        return SUMMARIZE

    def may_send_batch(self, conversation: Conversation) -> bool:
        """Return whether the next call may go into a batch."""
        rules = self._dependencies.batches
        return rules is not None and rules.may_send(
            conversation.checkpoints, self._dependencies.now()
        )
