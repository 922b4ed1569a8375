"""A watcher sees the child jobs of the watched job."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from handoff_queue.shared.store.jobs import HandoffStanding, JobStanding
from handoff_queue.shared.types.events import Child, JobStatus, PlanMade, StepOutline
from handoff_queue.shared.types.ids import JobId, StepId
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.cli.display.event_lines import changes
from handoff_queue.supervisor.cli.display.job_view import JobView, update_of
from handoff_queue.supervisor.cli.display.tree import picture
from handoff_queue.supervisor.client.waiting_reasons import MissingRole
from tests.supervisor.cli.moments import JOB, PLANNED, REF, SUBMITTED, issued, recorded, view_of

CHILD = JobId("j-00000000cccc")
TEAM = PlanMade(
    plan=REF,
    steps=(StepOutline(id=StepId("team"), specialist="supervisor", title="Find it all out"),),
)
HANDED_OVER = issued("team", "supervisor", group=None).model_copy(
    update={"child": Child(job_id=CHILD, limits=JobLimits())}
)
BELOW = (SUBMITTED.model_copy(update={"depth": 1}), PLANNED, issued("left", "researcher"))
WORKS = {
    "left.1": HandoffStanding(
        "running", claims=1, worker="w1:7", turns=1, doing="search_documents", started_at=105.0
    )
}


def watched() -> JobView:
    """Return a job with a child job, in which one step runs."""
    view = view_of(
        SUBMITTED,
        TEAM,
        HANDED_OVER,
        standings={"team.1": HandoffStanding("running", claims=1, worker=CHILD, turns=2)},
    )
    child = replace(view_of(*BELOW, standings=WORKS), job_id=CHILD)
    return replace(view, children={CHILD: child})


def drawn(view: JobView) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=140, highlight=False, markup=False).print(picture(view))
    return out.getvalue().splitlines()


def test_events_of_a_child_job_are_indented_with_its_id() -> None:
    view = watched()
    news = {JOB: recorded(SUBMITTED, TEAM, HANDED_OVER), CHILD: recorded(*BELOW)}

    said = list(changes(None, update_of(view, news)))

    assert f"team (supervisor): handed over, as {CHILD}" in said
    assert f"team (supervisor): works, in {CHILD}" in said
    assert [line for line in said if line.startswith("  ")] == [
        f"  {CHILD}: submitted with 3 documents",
        f"  {CHILD} plan: 2 steps: left (researcher), both (writer)",
        f"  {CHILD} left (researcher): handed over",
        f"  {CHILD} left (researcher): works, in w1:7",
    ]
    assert list(changes(view, update_of(view, {}))) == [], "nothing is said twice"


def test_a_plan_with_sub_supervisors_is_told_with_its_bill() -> None:
    (told,) = (
        line
        for line in changes(None, update_of(watched(), {JOB: recorded(SUBMITTED, TEAM)}))
        if line.startswith("plan: ")
    )

    assert told.startswith("plan: 1 step: team (supervisor); 1 sub-team of at most ")


def test_a_slice_that_is_too_small_for_a_team_is_reported_at_its_start() -> None:
    view = watched()
    books = JobStanding(
        JOB,
        JobStatus.RUNNING,
        3,
        "",
        100.0,
        0,
        0,
        0,
        0,
        cancelled=False,
        teams_lack="too little: 1 turn",
    )
    view = replace(view, books=books)

    assert f"team (supervisor): handed over, as {CHILD}, with too little: 1 turn" in changes(
        None, update_of(view, {JOB: recorded(SUBMITTED, TEAM, HANDED_OVER)})
    )
    assert "! its sub-teams get too little: 1 turn" in "\n".join(drawn(view))


def test_the_tree_has_the_steps_of_a_child_below_its_own() -> None:
    lines = drawn(watched())

    (own,) = (number for number, line in enumerate(lines) if "team (supervisor)" in line)
    assert CHILD in lines[own]
    (below,) = (number for number, line in enumerate(lines) if "left (researcher)" in line)
    assert below > own
    assert "turn 2  search_documents" in lines[below]
    assert lines[below].index("left") > lines[own].index("team")


def test_a_role_that_child_jobs_miss_is_named_once() -> None:
    nobody = MissingRole(
        "a worker of `writer`", "start one with `handoff worker writer`", ("both",)
    )
    view = watched()
    child = replace(view.children[CHILD], missing=(nobody,))
    view = replace(view, missing=(nobody,), children={CHILD: child})

    assert sum("a worker of `writer`" in line for line in drawn(view)) == 1
