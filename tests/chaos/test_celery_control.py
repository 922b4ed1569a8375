"""The control of `handoff chaos`: the same faults break promises of plain Celery.

`python -m benchmarks.celery_control` also kills at random and at every failpoint.
"""

from __future__ import annotations

import pytest

from benchmarks.celery_control.gaps import OURS_WITH_GAPS, PLAIN_WITH_GAPS, CeleryGap
from benchmarks.celery_control.run import try_failpoints, try_gaps
from handoff_queue.chaos.failpoint_cases import FailpointAction
from handoff_queue.chaos.report import find_broken_promises, format_table
from handoff_queue.chaos.run import Options
from handoff_queue.shared.local.fork_server import ForkServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SEED = 20_261_122


def discard_line(_line: str) -> None:
    """Discard a line of progress."""


def test_plain_chords_repeat_calls_after_lost_answers(
    fork_server: ForkServer | None,
) -> None:
    # Without kills: a handoff that a kill loses cannot finish twice.
    records = try_failpoints(
        Options(SEED, fork_server=fork_server), discard_line, [FailpointAction.DROP]
    )

    assert not records.not_reached, format_table(records)
    assert {"handoffs with two results", "calls repeated that were not in flight"} <= set(
        find_broken_promises(records)
    ), format_table(records)


def test_a_job_ends_in_every_gap_of_chords(fork_server: ForkServer | None) -> None:
    outcomes = try_gaps(OURS_WITH_GAPS, discard_line, fork_server)

    assert all(
        outcome.calm and outcome.was_hit and outcome.has_ended for outcome in outcomes.values()
    ), outcomes


def test_plain_chords_are_stuck_in_every_gap(fork_server: ForkServer | None) -> None:
    stuck = set[CeleryGap]()
    # The redelivery of Celery may save a chord in one try, so each gap gets nine tries. On a busy
    # machine, a job without a fault may count as stuck: its try then proves nothing.
    for _ in range(9):
        outcomes = try_gaps(PLAIN_WITH_GAPS, discard_line, fork_server)
        for gap, outcome in outcomes.items():
            if outcome.calm and outcome.was_hit and not outcome.has_ended:
                stuck.add(gap)
        if stuck == set(CeleryGap):
            break

    assert stuck == set(CeleryGap)
