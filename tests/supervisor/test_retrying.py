"""A job that its budget has ended goes on only with more of it."""

from __future__ import annotations

from typing import Any

import pytest

from shared.ledger.blobs import ref
from shared.ledger.jobs import JobStanding
from shared.wire.errors import UserError
from shared.wire.events import Event, HandoffFinished, JobEnded, JobStatus, Recorded, RetryRequested
from shared.wire.handoff import ResultStatus, StopReason
from shared.wire.ids import HandoffId, JobId
from shared.wire.limits import JobLimits
from shared.wire.usage import NOTHING_USED
from supervisor.lifecycle.evolve import begin, fold_on
from supervisor.retrying import NewLimits, retry_of
from tests.doubles.jobs import submission

JOB = JobId("j-0123456789ab")
STOPPED = HandoffFinished(
    handoff_id=HandoffId("a.1"),
    status=ResultStatus.PARTIAL,
    result=ref("a result"),
    stop_reason=StopReason.JOB_BUDGET,
    usage=NOTHING_USED,
    turns=1,
    confidence=0.0,
)
ENDED = JobEnded(status=JobStatus.PARTIAL)


def journal(*events: Event) -> list[Recorded]:
    first = submission(limits=JobLimits(max_turns=12, max_microusd=100_000))
    return [Recorded(n, 1_000.0, event) for n, event in enumerate([first, *events], start=1)]


def books(**changes: Any) -> JobStanding:
    values: dict[str, Any] = {"turns": 12, "input_tokens": 900, "output_tokens": 100, "cost_microusd": 80_000, **changes}
    return JobStanding(job_id=JOB, status="partial", version=3, title="", submitted_at=0.0, cancelled=False, **values)


def test_without_more_it_is_refused_with_what_is_spent() -> None:
    with pytest.raises(UserError, match=r"12 turns of 12 turns, \$0.08 of \$0.1\): raise it with --max-turns N or --max-usd X"):
        retry_of(journal(STOPPED, ENDED), books(), None, NewLimits())


def test_a_limit_that_is_spent_already_is_refused() -> None:
    with pytest.raises(UserError, match="has used 12 turns already"):
        retry_of(journal(STOPPED, ENDED), books(), None, NewLimits(max_turns=12))


def test_with_more_the_job_has_the_new_limit_and_keeps_the_others() -> None:
    events = journal(STOPPED, ENDED)
    event = retry_of(events, books(), None, NewLimits(max_turns=24))
    state = fold_on(begin(JOB, events[0]), [*events[1:], Recorded(4, 2_000.0, event)])

    assert (state.submitted.limits.max_turns, state.submitted.limits.max_microusd) == (24, 100_000)


def test_a_job_that_ended_for_another_reason_needs_no_more() -> None:
    assert retry_of(journal(ENDED), books(), None, NewLimits()) == RetryRequested()
    assert retry_of(journal(STOPPED, ENDED, RetryRequested(max_turns=24), ENDED), books(), None, NewLimits()) == RetryRequested()
