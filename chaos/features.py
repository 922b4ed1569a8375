"""The features of this system that a few jobs of a run use. They are several models of one handoff,
notes, calls in batches, and calls of the Claude Agent SDK. `chaos.forks` has the forks.

Records of a feature name their promises, and the report prints them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from handoff_queue.chaos.expected_handoffs import compute_expected_handoffs
from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.model_answers import find_writers
from handoff_queue.chaos.model_server import Call
from handoff_queue.chaos.notes import WRITES_NOTE, NoteRecords
from handoff_queue.chaos.planned_jobs import (
    FINDS_AT,
    SWITCHED_MODELS,
    TENANTS,
    CallKey,
    PlannedJob,
    compute_price,
)
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.handoff_info import read_agents
from handoff_queue.shared.store.redis.connection import translate_errors
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.budget_measures import INPUT, MONEY, OUTPUT
from handoff_queue.shared.types.events import HandoffFinished
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.memory_notes import Note
from handoff_queue.shared.types.usage import Usage

LOST = "replies of several models that were lost or misnamed"
TOO_LOW = "reservations below the price of the dearest model"
"""Names of the promises in the report."""
BATCH_CALL_PAID_TWICE = "calls in batches that were paid twice"
BATCH_CALL_OUTSIDE = "calls outside of a batch while there was time"
"""Names of the promises in the report."""
BATCH_DEADLINE_S = 3_600
"""Deadline of a job whose calls go into batches. It is so long that no slack ends in a run."""
NOT_BY_THE_CLI = "calls for the Claude Agent SDK that its program did not ask for"
"""Name of the promise in the report. All other promises hold for these calls, too."""


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
        return max(compute_price(usage, model) for model in SWITCHED_MODELS)


@dataclass(frozen=True, slots=True)
class SwitchRecords:
    """Records of all handoffs with several models."""

    calls: Sequence[Call]
    results: Sequence[WrittenResult]
    """Results of the handoffs that ended as planned."""
    reservations: Sequence[SeenReservation]

    def find_breaches(self) -> dict[str, list[str]]:
        """Return the breaches of each promise: name of the promise -> one line each."""
        too_low: list[str] = []
        for seen in self.reservations:
            if seen.microusd < seen.min_microusd:
                too_low.append(
                    f"{seen.job} {seen.handoff}: {seen.microusd} micro-dollars for a call that"
                    f" may cost {seen.min_microusd}"
                )
        return {LOST: list(self._find_wrong_writers()), TOO_LOW: too_low}

    def collect_figures(self) -> dict[str, int]:
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
            for fault in _find_faults(handoff_calls):
                yield f"{job} {handoff}: {fault}"
        for result in self.results:
            last = max(calls[result.job, result.handoff], key=lambda call: call.key.turn)
            last_writer = find_writers(result.output)
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


def _find_faults(calls: Sequence[Call]) -> Iterator[str]:
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


class FeatureRecords(Protocol):
    """Records of one feature at the end of a run."""

    def find_breaches(self) -> dict[str, list[str]]:
        """Return the breaches of each promise: name of the promise -> one line each."""

    def collect_figures(self) -> dict[str, int]:
        """Return the amounts that a reader needs to judge the run: name -> number."""


@dataclass(slots=True)
class SwitchWatch:
    """Watches handoffs with several models: their reservations, and at last their results."""

    store: Store
    ids: Mapping[str, JobId]
    """Job ids by job's name."""
    _seen: dict[SeenReservation, None] = field(default_factory=dict)

    def observe(self, jobs: Collection[PlannedJob]) -> None:
        """Record the reservations of the running handoffs.

        Raises:
            StoreError: Redis cannot be reached.
        """
        for job in jobs:
            if job.shape is Shape.SWITCHED:
                self._observe_job(job)

    def _observe_job(self, job: PlannedJob) -> None:
        job_id, connection = self.ids[job.name], self.store.connection
        roles = read_agents(connection, job_id, _list_switching_handoffs(job))
        with translate_errors():
            pipe = connection.redis.pipeline(transaction=False)
            for handoff, role in roles.items():
                names = [amount.reserved for amount in (INPUT, OUTPUT, MONEY)]
                pipe.hmget(keys.handoff(job_id, role, handoff), names)
            answers = pipe.execute()
        for handoff, amounts in zip(roles, answers, strict=True):
            if None not in amounts:
                self._seen[SeenReservation(job.name, handoff, *map(int, amounts))] = None

    def collect_records(self, jobs: Collection[PlannedJob], calls: Sequence[Call]) -> SwitchRecords:
        """Return the records of these jobs."""
        results: list[WrittenResult] = []
        switched_calls: list[Call] = []
        for job in jobs:
            if job.shape is Shape.SWITCHED:
                handoffs = set(_list_switching_handoffs(job))
                results += self._read_results(job, handoffs)
                for call in calls:
                    if call.key.job == job.name and call.key.handoff in handoffs:
                        switched_calls.append(call)
        return SwitchRecords(switched_calls, results, list(self._seen))

    def _read_results(self, job: PlannedJob, handoffs: set[HandoffId]) -> list[WrittenResult]:
        job_id = self.ids[job.name]
        results: list[WrittenResult] = []
        for recorded in self.store.journal.read(job_id):
            event = recorded.event
            if not isinstance(event, HandoffFinished) or event.status is not ResultStatus.OK:
                continue
            if event.handoff_id in handoffs:
                digest = event.result.digest
                text = self.store.payloads.get(job_id, (), results=[digest])[digest]
                results.append(
                    WrittenResult(
                        job.name,
                        event.handoff_id,
                        compute_expected_handoffs(job)[event.handoff_id].turns,
                        event.model,
                        event.replies_by_model,
                        str(HandoffResult.from_json(text).output),
                    )
                )
        return results


@dataclass(slots=True)
class NoteReader:
    """Reads the notes that jobs of the run have written."""

    store: Store
    ids: Mapping[str, JobId]
    """Job ids by job's name."""

    def has_written(self, name: str) -> bool:
        """Return whether the agent that writes the note of this job has ended as planned."""
        for recorded in self.store.journal.read(self.ids[name]):
            event = recorded.event
            if isinstance(event, HandoffFinished) and event.handoff_id == WRITES_NOTE:
                return event.status is ResultStatus.OK
        return False

    def collect_records(self, jobs: Collection[PlannedJob], calls: Sequence[Call]) -> NoteRecords:
        """Return the records of these jobs."""
        writers: dict[str, str] = {}
        unsure: list[str] = []
        turns_of_readers: dict[str, int] = {}
        for job in jobs:
            if job.shape is Shape.RECALLED:
                turns_of_readers[job.name] = FINDS_AT
            elif job.shape is Shape.REMEMBERED and self.has_written(job.name):
                writers[job.name] = self.ids[job.name]
            elif job.shape is Shape.REMEMBERED:
                unsure.append(job.name)
        notes: list[Note] = []
        for tenant in TENANTS:
            notes += self.store.notes.list_with_jobs(tenant)
        return NoteRecords(notes, writers, unsure, turns_of_readers, calls)


def _list_switching_handoffs(job: PlannedJob) -> list[HandoffId]:
    handoffs: list[HandoffId] = []
    for expected in compute_expected_handoffs(job).values():
        if job.find_switching_step(expected.id) is not None:
            handoffs.append(HandoffId(expected.id))
    return handoffs


@dataclass(frozen=True, slots=True)
class BatchRecords:
    """The calls of jobs whose calls go into batches."""

    calls: Sequence[Call]

    def find_breaches(self) -> dict[str, list[str]]:
        """Return the breaches of each promise: name of the promise -> one line each."""
        payments = Counter(call.key for call in self.calls)
        lines: list[str] = []
        for key, times in payments.items():
            if times > 1:
                lines.append(f"{_format_key(key)}: paid {times} times")
        live = []
        for call in self.calls:
            if not call.is_batched:
                live.append(_format_key(call.key))
        return {BATCH_CALL_PAID_TWICE: lines, BATCH_CALL_OUTSIDE: live}

    def collect_figures(self) -> dict[str, int]:
        """Return the amounts that a reader needs to judge the run: name -> number."""
        return {"calls in batches": len(self.calls)}


def collect_batch_records(jobs: Collection[PlannedJob], calls: Sequence[Call]) -> BatchRecords:
    """Return the records of these jobs."""
    names = {job.name for job in jobs if job.shape is Shape.BATCHED}
    return BatchRecords([call for call in calls if call.key.job in names])


def _format_key(key: CallKey) -> str:
    return f"{key.job} {key.handoff}, turn {key.turn}"


@dataclass(frozen=True, slots=True)
class ExternalRecords:
    """The calls of the steps whose specialist has `runner: agent-sdk`."""

    calls: Sequence[Call]

    def find_breaches(self) -> dict[str, list[str]]:
        """Return the breaches of each promise: name of the promise -> one line each."""
        lines: list[str] = []
        for call in self.calls:
            if not call.is_external:
                lines.append(f"{call.key.job} {call.key.handoff}, turn {call.key.turn}")
        return {NOT_BY_THE_CLI: lines}

    def collect_figures(self) -> dict[str, int]:
        """Return the amounts that a reader needs to judge the run: name -> number."""
        return {"calls through the Claude Agent SDK": len(self.calls)}


def collect_external_records(
    jobs: Collection[PlannedJob], calls: Sequence[Call]
) -> ExternalRecords:
    """Return the records of these jobs."""
    names = {}
    for job in jobs:
        if job.shape is Shape.EXTERNAL:
            names[job.name] = job
    external_calls: list[Call] = []
    for call in calls:
        if call.key.job in names and names[call.key.job].is_external_step(call.key.handoff):
            external_calls.append(call)
    return ExternalRecords(external_calls)
