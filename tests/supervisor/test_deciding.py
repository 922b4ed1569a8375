"""What follows on a role's result stands in the journal with it, and never at its cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from shared.celery_app import make_app
from shared.wire.events import CancelRequested, JobStatus
from shared.wire.ids import JobId
from shared.wire.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE, THINK_QUEUE
from supervisor.lifecycle.commands import Command
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.seen import Seen
from supervisor.lifecycle.state import JobState
from tests.supervisor.shell import SETTINGS, Shell


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    made = Shell(redis_url, make_app("test", redis_url, SETTINGS, (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, THINK_QUEUE)))
    made.serve("researcher", "writer", "generalist")
    yield made
    made.close()


def once_there_is_a_plan(monkeypatch: pytest.MonkeyPatch, happens: Callable[[JobId], object]) -> None:
    """This happens whenever something is decided on it, before."""

    def decide_then(state: JobState, seen: Seen, now: float) -> tuple[Command, ...]:
        if state.plan is not None:
            happens(state.job_id)
        return decide(state, seen, now)

    monkeypatch.setattr("supervisor.deciding.decide", decide_then)


def test_a_plan_and_its_first_handoffs_stand_in_the_journal_at_once(shell: Shell) -> None:
    job_id = shell.submit()
    shell.advance(job_id)

    issued, *others = shell.ledger.journal.read(job_id)[1:]
    assert issued.event.type == "handoff_issued"
    assert [one.event.type for one in others[:3]] == ["handoff_finished", "plan_made", "handoff_issued"]
    assert len({one.at for one in others}) == 1


def test_a_result_stands_where_nothing_can_be_decided_on_it(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    once_there_is_a_plan(monkeypatch, lambda _: 1 / 0)
    job_id = shell.submit()

    shell.advance(job_id)

    assert shell.kinds(job_id)[1:] == ["handoff_issued", "handoff_finished", "plan_made"]
    assert not shell.jobs.standing(job_id).status.ended, "it is tried again"


def test_what_came_meanwhile_is_decided_on_too(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancel, between the decision on a plan and its commit."""
    cancels = iter([CancelRequested()])
    once_there_is_a_plan(
        monkeypatch, lambda job_id: [shell.ledger.journal.append(job_id, one, {"cancelled": 1}) for one in cancels] and None
    )
    job_id = shell.submit()

    shell.advance(job_id)

    assert shell.kinds(job_id)[1:] == ["handoff_issued", "cancel_requested", "handoff_finished", "plan_made", "job_ended"]
    assert shell.jobs.standing(job_id).status is JobStatus.CANCELLED
