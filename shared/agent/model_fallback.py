"""The models that may serve the turns of one handoff, in the order of the specialist's file.

A turn goes to the first model that takes the call soon. A model that fails, or is busy for an
unknown time, is asked last for a while. A model that declines to answer, refuses the request, or
gives an empty answer twice, is left out. The checkpoints say so, and a resumed handoff does not
pay for the same refusal again. A model that declines to write a summary serves the later turns, but
another model is asked for this summary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from handoff_queue.shared.agent.conversation import Conversation
from handoff_queue.shared.types.checkpoints import ModelCallFailed

AVOIDED_S = 60.0
"""Seconds in which the other models come first after a connection or a server failed, or was busy
for an unknown time.
"""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model that may serve a turn."""

    name: str
    bucket: str | None = None
    """Rate-limit bucket of its calls, see `shared.types.rate_limits.ExpectedUsage`. None: its
    calls have no rate limits.
    """


@dataclass(slots=True)
class ModelChoices:
    """The models of one handoff, and the failures that this process has seen."""

    choices: Sequence[ModelChoice]
    """At least one model, in the order of preference."""
    _avoided_until: dict[str, float] = field(default_factory=dict)
    """Time until which each failed model is avoided, by its name."""
    _left_out: set[str] = field(default_factory=set)
    """Models that the budget does not allow, because their prices are not known."""

    @property
    def has_several(self) -> bool:
        """Return whether the specialist's file names more than one model."""
        return len(self.choices) > 1

    def list_usable(self, conversation: Conversation, now: float) -> Sequence[ModelChoice]:
        """Return the models for the next turn, in the order in which they are asked. There is at
        least one.

        A turn that the provider has paused continues with its own model.
        """
        if not self.has_several:
            return self.choices
        reply = conversation.last_reply
        left = self._list_choices_without_refusal(conversation)
        if conversation.is_paused and reply is not None:
            same = [choice for choice in left if choice.name == reply.requested_model]
            if same:
                return same
        declined_name = _find_model_that_declined_summary(conversation)

        def rank(choice: ModelChoice) -> tuple[bool, bool]:
            is_avoided = self._avoided_until.get(choice.name, 0.0) > now
            return is_avoided, choice.name == declined_name

        return sorted(left, key=rank)

    def has_other(self, conversation: Conversation, name: str) -> bool:
        """Return whether another model than this one is left for the handoff."""
        return any(
            choice.name != name for choice in self._list_choices_without_refusal(conversation)
        )

    def has_healthy(self, conversation: Conversation, now: float) -> bool:
        """Return whether a model is left that did not fail lately."""
        first = self.list_usable(conversation, now)[0]
        return self._avoided_until.get(first.name, 0.0) <= now

    def avoid(self, name: str, now: float) -> None:
        """Ask the other models first for `AVOIDED_S`."""
        self._avoided_until[name] = now + AVOIDED_S

    def leave_out(self, names: Iterable[str]) -> None:
        """Ask these models no more."""
        self._left_out.update(names)

    def get_bucket(self, name: str) -> str | None:
        """Return the rate-limit bucket of a model."""
        for choice in self.choices:
            if choice.name == name:
                return choice.bucket
        return None

    def _list_choices_without_refusal(self, conversation: Conversation) -> Sequence[ModelChoice]:
        """Return the models that have not refused this handoff, and that are not left out. If there
        is none, return all models.
        """
        refusals: set[str | None] = set(self._left_out)
        for checkpoint in conversation.checkpoints:
            if isinstance(checkpoint, ModelCallFailed) and checkpoint.rules_out:
                refusals.add(checkpoint.requested_model)
        left = [choice for choice in self.choices if choice.name not in refusals]
        return left or self.choices


def _find_model_that_declined_summary(conversation: Conversation) -> str | None:
    """Return the model that was asked for the next summary before, and has declined."""
    reply = conversation.last_reply
    if reply is None or not conversation.is_summarizing or conversation.summary_requests < 2:
        return None
    return reply.requested_model if reply.stop_reason == "refusal" else None
