"""Recovery of a batch after a kill between its creation and the checkpoint of its id.

Then it is not known whether the batch exists. The provider's list of batches names no calls. The
next worker therefore reads the results of each batch of that time, and adopts the batch that has
this call. It creates another batch only if there is no such batch.
"""

from __future__ import annotations

from handoff_queue.shared.agent.batch_calls import READING, BatchCalls
from handoff_queue.shared.agent.batch_rules import CLOCK_SKEW_S, OpenBatch
from handoff_queue.shared.observability.logs import log_of
from handoff_queue.shared.types.batches import BatchState, BatchStatus
from handoff_queue.shared.types.checkpoints import BatchClosed, BatchCreated, BatchIntended

_log = log_of(__name__)


def adopt_batch(batches: BatchCalls, batch: OpenBatch) -> BatchCreated | BatchClosed:
    """Return the checkpoint for a batch that may have been created: the batch that has the call,
    or a closed batch if no batch of the account has it.

    Raises:
        Deferred: a batch of that time has not ended, so its calls are not known.
        BatchLost: the slack is over, and such a batch has still not ended.
        ModelError: the provider gives no answer.
    """
    intended = batch.intended
    may_be_in_open_batch = False
    for state in batches.rules.batches.created_since(intended.at - CLOCK_SKEW_S):
        if not batch.may_be(state):
            continue
        batches.dependencies.checkpoints.heartbeat(READING)
        if state.status is not BatchStatus.ENDED:
            may_be_in_open_batch = True
        elif _has_call(batches, state, intended):
            _log.info("batch adopted", batch=state.batch_id)
            return BatchCreated(
                custom_id=intended.custom_id, batch_id=state.batch_id, at=intended.at
            )
    if not may_be_in_open_batch:
        return batches.closed(intended, "the batch was not created", goes_live=False)
    batches.check_not_lost()
    raise batches.deferral(intended.at, "a batch of unknown id")


def _has_call(batches: BatchCalls, state: BatchState, intended: BatchIntended) -> bool:
    """Return whether an ended batch has the call."""
    outcome = batches.rules.batches.outcome(state.batch_id, intended.custom_id, intended.model)
    return outcome is not None
