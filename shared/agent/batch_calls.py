"""Model calls in batches of the provider: one call in each batch.

The intention is stored before the batch is created, and the id of the batch after it. Between two
questions about the batch, the handoff is deferred: it has no slot and no claim.

After a kill between the two writes, it is not known whether the batch exists. The provider's list
of batches names no calls. `adopt_batch` therefore reads the results of each batch of that time, and
adopts the batch that has this call. Only if there is no such batch, the worker creates another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from handoff_queue.shared.agent.batch_rules import (
    CANCEL_POLL_S,
    CLOCK_SKEW_S,
    BatchRules,
    OpenBatch,
)
from handoff_queue.shared.agent.prices import encode_json
from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.observability.failpoints import run_between
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.text.times import format_utc
from handoff_queue.shared.types.batches import BatchOutcome, BatchState, BatchStatus
from handoff_queue.shared.types.checkpoints import (
    BatchClosed,
    BatchCreated,
    BatchIntended,
    Checkpoint,
    WorstCase,
)
from handoff_queue.shared.types.errors import (
    Deferred,
    ModelBusy,
    ModelError,
    ModelRejected,
    ModelUnreachable,
    NeverSent,
    Unsendable,
)
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.model import ModelCall, ModelReply
from handoff_queue.shared.types.presence import WAITS_FOR
from handoff_queue.shared.types.usage import Usage

READING = "reading the result of a batch"
"""Activity while a worker asks for the result of a batch."""
CREATING = "creating a batch"
"""Activity while a worker creates a batch."""
BATCH_LOST = "the batch of this call did not end in time, or its result cannot be read"
"""Error of a call whose batch is given up. The call counts at its upper bound."""
_log = get_log(__name__)


class BatchLost(Exception):
    """The batch of a call is given up. The provider may still bill the call."""


@dataclass(frozen=True, slots=True)
class BatchCalls:
    """The batches of one claimed handoff."""

    rules: BatchRules
    dependencies: RunDependencies

    def build_intention(
        self, call: ModelCall, worst: WorstCase, checkpoints: Sequence[Checkpoint]
    ) -> BatchIntended:
        """Return the checkpoint to store before the batch of a call is created."""
        request = encode_json((call.model, call.system.text, call.messages, call.tools))
        request_digest = compute_digest(request.decode())
        place = f"{self.dependencies.handoff_name}/{len(checkpoints)}/{request_digest}"
        return BatchIntended(
            custom_id=f"handoff-{compute_digest(place)[:40]}",
            model=call.model,
            at=self.dependencies.now(),
            most=Usage(
                input_tokens=worst.input_tokens,
                output_tokens=worst.output_tokens,
                cost_microusd=worst.microusd,
            ),
        )

    def create(self, intended: BatchIntended, call: ModelCall) -> BatchCreated | BatchClosed:
        """Create the batch of a call whose intention is stored. Return the checkpoint to store
        then.

        Raises:
            Deferred: it is not known whether the provider has created the batch.
            Interrupted: the claim is lost.
        """
        # After a stop of this process, the heartbeat asks the store whether the claim is still
        # valid.
        self.dependencies.checkpoints.heartbeat(CREATING)
        try:
            state = run_between(
                "batch",
                "create",
                lambda: self.rules.provider.create(intended.custom_id, call),
                ModelUnreachable,
            )
        except (ModelBusy, NeverSent) as error:
            goes_live = isinstance(error, Unsendable)
            return self.make_closed_checkpoint(intended, str(error), goes_live=goes_live)
        except ModelRejected as error:
            return self.make_closed_checkpoint(intended, str(error), goes_live=True)
        except ModelError as error:
            _log.warning("a batch may have been created", why=str(error))
            raise Deferred(self.rules.first_poll_s, "it may be in a batch") from error
        _log.info("the provider has created a batch", batch=state.batch_id)
        return BatchCreated(
            custom_id=intended.custom_id, batch_id=state.batch_id, at=self.dependencies.now()
        )

    def cancel(self, created: BatchCreated | BatchClosed) -> None:
        """Cancel a batch that no job needs. An error is only logged."""
        if isinstance(created, BatchCreated):
            try:
                self.rules.provider.cancel(created.batch_id)
            except ModelError as error:
                _log.warning(
                    "a batch could not be cancelled", batch=created.batch_id, why=str(error)
                )

    def build_deferral(self, since: float, subject: str) -> Deferred:
        """Return the error that gives the slot back until the next question about a batch.

        Args:
            since: creation of the batch, in Unix seconds.
            subject: the thing that the handoff waits for, in words.
        """
        now = self.dependencies.now()
        wait_s = self.rules.compute_poll_s(since, now)
        if now >= self.rules.until:
            wait_s = min(wait_s, CANCEL_POLL_S)
        return Deferred(wait_s, f"{WAITS_FOR}{subject} since {format_utc(since)}")

    def reply(self, batch: OpenBatch, created: BatchCreated) -> ModelReply | BatchClosed:
        """Return the reply to a call in a batch, or the checkpoint of a batch without a reply.
        When the slack is over, the batch is cancelled. Its reply counts if it has one.

        Raises:
            Deferred: the batch has not ended.
            BatchLost: the cancelled batch has not ended in time, or has no such call.
            ModelError: the provider gives no answer.
        """
        state = self.rules.provider.retrieve(created.batch_id)
        if state.status is BatchStatus.ENDED:
            return self._build_reply(batch.intended, created)
        if self.dependencies.now() >= self.rules.until:
            self.check_not_lost()
            if state.status is BatchStatus.IN_PROGRESS:
                self.rules.provider.cancel(state.batch_id)
        raise self.build_deferral(created.at, f"batch {created.batch_id}")

    def _build_reply(
        self, intended: BatchIntended, created: BatchCreated
    ) -> ModelReply | BatchClosed:
        """Return the reply to a call in an ended batch, or the checkpoint of a batch without one.

        Raises:
            BatchLost: the batch has no such call.
            ModelError: the provider gives no answer.
        """

        def ask() -> BatchOutcome | None:
            return self.rules.provider.fetch_outcome(
                created.batch_id, created.custom_id, intended.model
            )

        outcome = run_between("batch", "read", ask, ModelUnreachable)
        if outcome is None:
            raise BatchLost
        if outcome.reply is None:
            return self.make_closed_checkpoint(intended, outcome.why, goes_live=True)
        return outcome.reply

    def is_lost_after(self, error: ModelError) -> bool:
        """Return whether a batch is given up after the provider has given no answer about it. It is
        given up if the slack is over, or if another question would fail, too.
        """
        return not error.retryable or self._is_overdue

    def build_deferral_after(self, batch: OpenBatch, error: ModelError) -> Deferred:
        """Return the error that lets the handoff ask again later, after the provider has given no
        answer about a batch.
        """
        _log.warning("the provider does not answer about a batch", why=str(error))
        return self.build_deferral(batch.since, "the provider's answer about its batch")

    def check_not_lost(self) -> None:
        """Raise BatchLost if the batch must have ended by now, so that a live call fits in."""
        if self._is_overdue:
            raise BatchLost

    @property
    def _is_overdue(self) -> bool:
        """Return whether a batch that has not ended is given up now."""
        return self.dependencies.now() >= self.rules.compute_give_up_time(self.dependencies.ends_at)

    def make_closed_checkpoint(
        self, intended: BatchIntended, why: str, *, goes_live: bool
    ) -> BatchClosed:
        """Return the checkpoint of a batch without a reply.

        Args:
            why: the reason, for the journal and for the log.
            goes_live: True if the next try may be a live call.
        """
        _log.info("a batch has ended without a reply", why=why, goes_live=goes_live)
        return BatchClosed(custom_id=intended.custom_id, why=why, goes_live=goes_live)


def adopt_batch(calls: BatchCalls, batch: OpenBatch) -> BatchCreated | BatchClosed:
    """Return the checkpoint for a batch that may have been created. It names the batch that has the
    call, or a closed batch if no batch of the account has it.

    Raises:
        Deferred: a batch of that time has not ended, so its calls are not known.
        BatchLost: the slack is over, and such a batch has still not ended.
        ModelError: the provider gives no answer.
    """
    intended = batch.intended
    may_be_in_open_batch = False
    for state in calls.rules.provider.list_batches_since(intended.at - CLOCK_SKEW_S):
        if not batch.may_be(state):
            continue
        calls.dependencies.checkpoints.heartbeat(READING)
        if state.status is not BatchStatus.ENDED:
            may_be_in_open_batch = True
        elif _has_call(calls, state, intended):
            _log.info("this attempt continues with an existing batch", batch=state.batch_id)
            return BatchCreated(
                custom_id=intended.custom_id, batch_id=state.batch_id, at=intended.at
            )
    if not may_be_in_open_batch:
        return calls.make_closed_checkpoint(intended, "the batch was not created", goes_live=False)
    calls.check_not_lost()
    raise calls.build_deferral(intended.at, "a batch of unknown id")


def _has_call(calls: BatchCalls, state: BatchState, intended: BatchIntended) -> bool:
    """Return whether an ended batch has the call."""
    outcome = calls.rules.provider.fetch_outcome(state.batch_id, intended.custom_id, intended.model)
    return outcome is not None
