"""Handoffs with several models, and the promises about the models that write their replies. Pure.

The model server writes the name of the model into each reply. So the requests and the result tell
which replies the system has kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from handoff_queue.chaos.model_answers import writers_in
from handoff_queue.chaos.model_server import Call
from handoff_queue.chaos.planned_jobs import SWITCHED_MODELS, price_of
from handoff_queue.shared.types.usage import Usage

LOST = "replies of several models that were lost or misnamed"
TOO_LOW = "reservations below the price of the dearest model"
"""Names of the promises in the report."""


@dataclass(frozen=True, slots=True)
class WrittenResult:
    """The result of a handoff with several models, as the journal has it."""

    job: str
    handoff: str
    turns: int
    """Number of replies that the plan has."""
    model: str | None
    replies_by_model: Mapping[str, int] | None
    output: str

    def count_replies_by_model(self) -> Counter[str]:
        """Return the number of replies that the result gives to each model."""
        if self.replies_by_model is not None:
            return Counter(self.replies_by_model)
        return Counter({self.model or "": self.turns})


@dataclass(frozen=True, slots=True)
class SeenReservation:
    """A reservation for a call of a handoff with several models, as the store had it."""

    job: str
    handoff: str
    input_tokens: int
    output_tokens: int
    microusd: int

    @property
    def min_microusd(self) -> int:
        """The price of the reserved tokens at the dearest model."""
        usage = Usage(input_tokens=self.input_tokens, output_tokens=self.output_tokens)
        return max(price_of(usage, model) for model in SWITCHED_MODELS)


@dataclass(frozen=True, slots=True)
class SwitchRecords:
    """Records of all handoffs with several models."""

    calls: Sequence[Call]
    results: Sequence[WrittenResult]
    """Results of the handoffs that ended as planned."""
    reservations: Sequence[SeenReservation]

    def breaches(self) -> dict[str, list[str]]:
        """Return the breaches of each promise: name of the promise -> one line each."""
        too_low: list[str] = []
        for seen in self.reservations:
            if seen.microusd < seen.min_microusd:
                too_low.append(
                    f"{seen.job} {seen.handoff}: {seen.microusd} micro-dollars for a call that"
                    f" may cost {seen.min_microusd}"
                )
        return {LOST: list(self._find_wrong_writers()), TOO_LOW: too_low}

    def figures(self) -> dict[str, int]:
        """Return the amounts that a reader needs to judge the run: name -> number."""
        by_second = sum(
            result.count_replies_by_model()[SWITCHED_MODELS[1]] for result in self.results
        )
        return {
            "calls that a model turned away": sum(call.is_refused for call in self.calls),
            "replies of the second model": by_second,
            "reservations seen": len(self.reservations),
        }

    def _find_wrong_writers(self) -> Iterator[str]:
        calls = defaultdict[tuple[str, str], list[Call]](list)
        for call in sorted(self.calls, key=lambda call: call.at):
            calls[call.key.job, call.key.handoff].append(call)
        for (job, handoff), handoff_calls in calls.items():
            for fault in _faults_of(handoff_calls):
                yield f"{job} {handoff}: {fault}"
        for result in self.results:
            last = max(calls[result.job, result.handoff], key=lambda call: call.key.turn)
            last_writer = writers_in(result.output)
            replies = Counter([*last.writers, *last_writer])
            declining_models = {
                call.model for call in calls[result.job, result.handoff] if call.is_refused
            }
            names = result.count_replies_by_model()
            if not _is_named(replies, declining_models, names) or last_writer != (result.model,):
                yield (
                    f"{result.job} {result.handoff}: written by {dict(replies)}, and the result"
                    f" names {dict(names)}, at last {result.model}"
                )


def _is_named(replies: Counter[str], declining_models: Set[str], names: Counter[str]) -> bool:
    """Return whether a result names the written replies. It may also name one reply of each model
    that declined to answer: a kill can lose this reply.
    """
    return replies <= names and names - replies <= Counter(declining_models)


def _faults_of(calls: Sequence[Call]) -> Iterator[str]:
    """Yield the faults of the conversations of one handoff: each call must have all earlier
    replies, and a stored reply never changes.

    Args:
        calls: the calls of the handoff, in order.
    """
    answers = set()
    for call in calls:
        if not call.is_refused:
            answers.add((call.key.turn, call.model))
    stored_writers: tuple[str, ...] = ()
    for call in calls:
        if len(call.writers) != call.key.turn - 1:
            yield f"turn {call.key.turn} had the replies of {', '.join(call.writers) or 'nobody'}"
        common = min(len(stored_writers), len(call.writers))
        if stored_writers[:common] != call.writers[:common]:
            yield f"turn {call.key.turn} had {call.writers}, and an earlier call {stored_writers}"
        stored_writers = max(stored_writers, call.writers, key=len)
    for turn, writer in enumerate(stored_writers, start=1):
        if (turn, writer) not in answers:
            yield f"reply {turn} is under the name of {writer}, which did not write it"
