"""Research that a person rejected, when no time is left to repair it."""

from __future__ import annotations

from handoff_queue.shared.types.events import JobStatus
from handoff_queue.supervisor.lifecycle.commands import EndJob
from tests.doubles.life import done
from tests.supervisor.lifecycle.test_approval_policy import RESEARCH, asked, at


def test_rejected_research_that_no_time_was_left_to_mend_does_not_leave_unasked() -> None:
    life = at(RESEARCH)
    life.rejects("Wrong.")
    life.goes_on()
    life.now += 100
    life.goes_on()

    assert (asked(life), life.step("b").result) == (RESEARCH, life.result_of("b.1"))
    life.rejects()
    assert life.goes_on() == [
        EndJob(JobStatus.FAILED, "the research was rejected, and it cannot be made again")
    ]
    assert life.state.is_withheld


def test_or_it_leaves_when_it_is_approved_after_all() -> None:
    life = at(RESEARCH)
    life.rejects("Wrong.")
    life.goes_on()
    life.now += 100
    life.goes_on()
    life.approves()
    life.goes_on()

    assert life.state.status is JobStatus.PARTIAL


def test_research_that_was_mended_in_time_is_not_asked_about_when_the_time_is_over() -> None:
    life = at(RESEARCH)
    life.rejects("Wrong.")
    life.goes_on()
    done(life, "b")
    life.approves()
    life.now += 100
    life.goes_on()

    assert (asked(life), life.state.status) == (None, JobStatus.PARTIAL)
