"""A team continues its own gaps from its earlier state, exactly once after every crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.types.errors import VersionConflict
from handoff_queue.shared.types.events import HandoffIssued, JobStatus, JobSubmitted
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.cli.display.job_view import (
    JobView,
    NewEvents,
    with_children,
    with_events,
    with_fresh_info,
)
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.engine.child_jobs import ChildJobs
from handoff_queue.supervisor.lifecycle.reduce import fold
from tests.supervisor.engine.test_child_jobs import child_ids_of, run_tree
from tests.supervisor.shell import Shell
from tests.supervisor.workflows.workflow_files import make_workflow

pytestmark = pytest.mark.slow

ONE_TEAM = """
    id: team, specialist: supervisor, task: "Compare Qdrant, Milvus and Weaviate for filtering."
"""


def run_with_failing_step(shell: Shell, job_id: JobId, child: JobId) -> list[str]:
    """Run the job to its end. One step of the child fails with every specialist.

    Return the failed step, then the successful steps.
    """
    fails, successes = "", set[str]()
    for _ in range(60):
        shell.advance(child)
        for event in shell.open(child):
            fails = fails or event.step_id
            shell.do(
                child, event, ResultStatus.FAILED if event.step_id == fails else ResultStatus.OK
            )
            successes |= {event.step_id} - {fails}
        shell.advance(job_id)
        if shell.jobs.info(job_id).status.has_ended:
            return [fails, *sorted(successes)]
    raise AssertionError(shell.kinds(child))


def team_with_gap(shell: Shell, folder: Path) -> tuple[JobId, JobId, list[str]]:
    job_id = shell.jobs.submit(
        Request(
            "Compare them.",
            workflow=make_workflow(folder, ONE_TEAM),
            limits=JobLimits(max_rounds=0),
        )
    )
    shell.advance(job_id)
    child = child_ids_of(shell, job_id)[0]
    return job_id, child, run_with_failing_step(shell, job_id, child)


def test_the_gap_of_a_team_names_the_teams_gaps(shell: Shell, tmp_path: Path) -> None:
    job_id, child, (failed, *_) = team_with_gap(shell, tmp_path)

    (gap,) = shell.jobs.result(job_id).gaps
    assert gap["why"].startswith(f"incomplete: its child job {child} lacks {failed} (")


def issued_handoffs(shell: Shell, job_id: JobId) -> list[str]:
    return [event.handoff_id for event in shell.events(job_id) if isinstance(event, HandoffIssued)]


def test_finish_lets_the_team_fill_its_gaps_and_nothing_else(shell: Shell, tmp_path: Path) -> None:
    job_id, child, (failed, *_) = team_with_gap(shell, tmp_path)
    before, turns = issued_handoffs(shell, child), shell.jobs.info(child).turns

    shell.jobs.retry(job_id)
    run_tree(shell, job_id)

    assert shell.jobs.result(child).gaps == ()
    assert issued_handoffs(shell, child)[len(before) :] == [
        f"{failed}.2",
        "write.2",
        "assessor.2",
    ], "what builds on it, too"
    assert child_ids_of(shell, job_id) == [child, child]
    assert shell.jobs.info(job_id).children == (child,)
    assert shell.kinds(child).count("job_ended") == shell.kinds(child).count("parent_told") == 2
    of_each = [
        handoff["usage"]["turns"]
        for handoff in shell.jobs.result(job_id).handoffs
        if handoff["child"]
    ]
    assert of_each == [turns, shell.jobs.info(child).turns - turns], (
        "the second counts what came since"
    )


def test_a_lasting_gap_leaves_the_answers_of_the_team_and_its_parent_unchanged(
    shell: Shell, tmp_path: Path
) -> None:
    job_id, child, (failed, *_) = team_with_gap(shell, tmp_path)
    answer, before = (
        shell.jobs.result(job_id).answer,
        (issued_handoffs(shell, job_id), issued_handoffs(shell, child)),
    )

    shell.jobs.retry(job_id)
    assert run_tree(shell, job_id, ResultStatus.FAILED) is JobStatus.PARTIAL

    assert issued_handoffs(shell, job_id) == [*before[0], "team.2"]
    assert {name.partition(".")[0] for name in issued_handoffs(shell, child)[len(before[1]) :]} == {
        failed
    }
    after = shell.jobs.result(job_id)
    assert (
        str(after.answer).partition("Missing or incomplete")[0]
        == str(answer).partition("Missing or incomplete")[0]
    )
    assert f"its child job {child} lacks {failed} (" in after.gaps[0]["why"]


def test_an_abandoned_team_is_finished_from_its_last_state(shell: Shell, tmp_path: Path) -> None:
    job_id = shell.jobs.submit(
        Request(
            "Compare them.",
            workflow=make_workflow(tmp_path, ONE_TEAM),
            limits=JobLimits(max_rounds=0),
        )
    )
    shell.advance(job_id)
    (child,) = child_ids_of(shell, job_id)
    shell.advance(child)
    first, *others = shell.open(child)
    shell.do(child, first)
    shell.advance(child)
    shell.jobs.cancel(job_id)
    shell.advance(job_id)

    shell.jobs.retry(job_id)
    shell.advance(job_id)
    assert "retry_requested" not in shell.kinds(child), "it has not stopped yet"
    run_tree(shell, job_id)

    assert shell.jobs.result(child).gaps == ()
    again = issued_handoffs(shell, child)
    assert first.handoff_id.replace(".1", ".2") not in again
    assert {issued.handoff_id.replace(".1", ".2") for issued in others} <= {*again}
    assert "planner.2" not in again


def test_another_supervisor_takes_over_after_a_crash_before_a_team_continues(
    shell: Shell, tmp_path: Path
) -> None:
    job_id, child, _ = team_with_gap(shell, tmp_path)
    shell.jobs.retry(job_id)
    shell.dispatcher.dies_waking = True
    with pytest.raises(KeyboardInterrupt):
        shell.advance(job_id)
    shell.dispatcher.dies_waking = False

    shell.another().advance(job_id)
    run_tree(shell, job_id)

    assert shell.jobs.result(child).gaps == ()
    assert shell.kinds(child).count("retry_requested") == 1


def test_a_report_of_an_earlier_end_hides_no_later_end_from_the_parent(
    shell: Shell, tmp_path: Path
) -> None:
    job_id, child, _ = team_with_gap(shell, tmp_path)
    journal = shell.store.journal.read(child)
    has_ended = next(
        place
        for place, recorded in enumerate(journal, start=1)
        if recorded.event.type == "job_ended"
    )
    not_told = fold(child, None, journal[:has_ended])
    assert not_told is not None
    shell.jobs.retry(job_id)
    shell.advance(job_id)

    with pytest.raises(VersionConflict):
        ChildJobs(shell.store, PayloadCache(shell.store), shell.dispatcher).tell(not_told)
    run_tree(shell, job_id)

    assert shell.kinds(child).count("parent_told") == 2


def test_a_new_team_fills_the_gaps_if_nothing_of_the_first_is_kept(
    shell: Shell, tmp_path: Path
) -> None:
    job_id, child, _ = team_with_gap(shell, tmp_path)
    shell.store.jobs.delete(child)
    shell.jobs.retry(job_id)

    run_tree(shell, job_id)

    assert shell.jobs.result(child_ids_of(shell, job_id)[-1]).gaps == ()
    assert len({*child_ids_of(shell, job_id)}) == 2


def test_a_repeated_team_step_gives_a_new_team_the_earlier_results_and_gaps(
    shell: Shell, tmp_path: Path
) -> None:
    job_id, first, (failed, *successes) = team_with_gap(shell, tmp_path)

    shell.jobs.retry(job_id, "team")
    shell.advance(job_id)

    _, second = child_ids_of(shell, job_id)
    submission = shell.events(second)[0]
    assert isinstance(submission, JobSubmitted)
    assert successes
    assert {f"prev_{step}" for step in successes} == {item.step for item in submission.given} - {
        "prev_synthesizer"
    }
    request = shell.store.payloads.get(second, [submission.request.digest])[
        submission.request.digest
    ]
    assert f"Its gaps: {failed} (" in request
    assert first != second


def test_a_third_team_gets_the_results_of_two_earlier_teams(shell: Shell, tmp_path: Path) -> None:
    job_id, _, (_, *successes) = team_with_gap(shell, tmp_path)
    for _ in range(2):
        shell.jobs.retry(job_id, "team")
        shell.advance(job_id)
        third = child_ids_of(shell, job_id)[-1]
        run_with_failing_step(shell, job_id, third)

    submission = shell.events(third)[0]
    assert isinstance(submission, JobSubmitted)
    assert {f"prev2_{step}" for step in successes} <= {item.step for item in submission.given}


def updated_view(shell: Shell, view: JobView) -> tuple[JobView, NewEvents]:
    """Return the current view with its children, and their new events."""
    events = shell.store.journal.read(view.job_id, view.version)
    return with_children(
        shell.jobs, with_fresh_info(shell.jobs, with_events(shell.jobs, view, events))
    )


def test_a_watcher_sees_the_team_continue(shell: Shell, tmp_path: Path) -> None:
    job_id, child, (failed, *_) = team_with_gap(shell, tmp_path)
    before, _ = updated_view(shell, JobView(job_id))
    shell.jobs.retry(job_id)
    shell.advance(job_id)
    shell.advance(child)

    _, new_events = updated_view(shell, before)

    assert [recorded.event.type for recorded in new_events[child]] == [
        "retry_requested",
        "handoff_issued",
    ]
    assert new_events[child][1].event == next(
        event for event in shell.events(child) if getattr(event, "handoff_id", "") == f"{failed}.2"
    )
