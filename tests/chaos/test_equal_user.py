"""Each fault of a shared run is a breach in the report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoff_queue.chaos.equal_user import (
    NOT_IN_BATCHES,
    PAID_TWICE,
    EqualHandoff,
    EqualRecords,
)

RUN = EqualHandoff("7-equal-0", "j-1", "ok", 10.0, 12.0, "So it is.", 360, None, False)
COPY = replace(RUN, job_id="j-2", began_at=12.1, ended_at=12.2, tokens=0, copied_from="j-1")
LATER = replace(RUN, job_id="j-3", began_at=12.0, ended_at=14.0)
GIVEN_UP = replace(RUN, status="failed", output="None", is_given_up=True)
KEPT = [
    pytest.param([RUN, COPY], id="a run and its copy"),
    pytest.param([RUN, COPY, LATER], id="a run after the end of the first"),
    pytest.param([GIVEN_UP, LATER], id="a run that took over"),
    pytest.param([RUN, replace(RUN, group="7-equal-1", job_id="j-4")], id="another request"),
]
BROKEN = [
    pytest.param([RUN, replace(LATER, began_at=11.9)], id="two runs at once"),
    pytest.param([RUN, replace(COPY, output="Another.")], id="another result"),
    pytest.param([RUN, replace(COPY, copied_from="j-9")], id="a run of nobody"),
    pytest.param([GIVEN_UP, COPY], id="a copy of a failed run"),
    pytest.param([RUN, replace(COPY, tokens=120)], id="a copy that paid"),
    pytest.param([replace(RUN, status="failed")], id="a failure without kills"),
    pytest.param([replace(RUN, live_calls=1), COPY], id="a live call of a run with batches"),
]


@pytest.mark.parametrize("handoffs", KEPT)
def test_shared_runs_without_faults_have_no_breach(handoffs: list[EqualHandoff]) -> None:
    assert EqualRecords(handoffs).find_breaches() == {PAID_TWICE: [], NOT_IN_BATCHES: []}


@pytest.mark.parametrize("handoffs", BROKEN)
def test_a_fault_of_a_shared_run_is_a_breach(handoffs: list[EqualHandoff]) -> None:
    breaches = EqualRecords(handoffs).find_breaches()

    assert sorted(map(len, breaches.values())) == [0, 1]


def test_the_report_counts_equal_handoffs_and_copies() -> None:
    batched = replace(RUN, group="7-equal-1", batch_calls=3)

    assert EqualRecords([RUN, COPY, batched]).collect_figures() == {
        "equal handoffs": 3,
        "copied results": 1,
        "calls of shared runs in batches": 3,
    }
