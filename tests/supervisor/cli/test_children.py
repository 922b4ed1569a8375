"""The tree and the log of a job show its child jobs."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.types.events import (
    Child,
    JobEnded,
    JobStatus,
    PlanMade,
    RecordedEvent,
    StepOutline,
)
from handoff_queue.shared.types.ids import JobId, StepId
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.cli.display.event_lines import list_changes
from handoff_queue.supervisor.cli.display.job_view import JobView, build_update
from handoff_queue.supervisor.cli.display.tree import render_tree
from handoff_queue.supervisor.client.waiting_reasons import WaitingReason
from tests.supervisor.cli.job_events import JOB, PLANNED, REF, SUBMITTED, issued, recorded, view_of

CHILD_ID = JobId("j-00000000cccc")
TEAM_PLAN = PlanMade(
    plan=REF,
    steps=(StepOutline(id=StepId("team"), specialist="supervisor", title="Find it all out"),),
)
TEAM_ISSUED = issued("team", "supervisor", group=None).model_copy(
    update={"child": Child(job_id=CHILD_ID, limits=JobLimits())}
)
CHILD_EVENTS = (SUBMITTED.model_copy(update={"depth": 1}), PLANNED, issued("left", "researcher"))
CHILD_HANDOFFS = {
    "left.1": HandoffInfo(
        "running", claims=1, worker="w1:7", turns=1, doing="search_documents", started_at=105.0
    )
}


def view_with_child() -> JobView:
    """Return the view of a job with a child job, in which one step runs."""
    view = view_of(
        SUBMITTED,
        TEAM_PLAN,
        TEAM_ISSUED,
        handoffs={"team.1": HandoffInfo("running", claims=1, worker=CHILD_ID, turns=2)},
    )
    child = replace(view_of(*CHILD_EVENTS, handoffs=CHILD_HANDOFFS), job_id=CHILD_ID)
    return replace(view, children={CHILD_ID: child})


def rendered(view: JobView) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=140, highlight=False, markup=False).print(render_tree(view))
    return out.getvalue().splitlines()


def test_events_of_a_child_job_are_indented_with_its_id() -> None:
    view = view_with_child()
    news = {JOB: recorded(SUBMITTED, TEAM_PLAN, TEAM_ISSUED), CHILD_ID: recorded(*CHILD_EVENTS)}

    lines = list(list_changes(None, build_update(view, news)))

    assert f"team (supervisor): handed over, as {CHILD_ID}" in lines
    assert f"team (supervisor): works, in {CHILD_ID}" in lines
    assert [line for line in lines if line.startswith("  ")] == [
        f"  {CHILD_ID}: submitted with 3 documents",
        f"  {CHILD_ID} plan: 2 steps: left (researcher), both (writer)",
        f"  {CHILD_ID} left (researcher): handed over",
        f"  {CHILD_ID} left (researcher): works, in w1:7",
    ]
    assert list(list_changes(view, build_update(view, {}))) == [], "nothing is said twice"


def test_events_of_a_job_and_its_child_are_in_the_order_of_their_times() -> None:
    first = recorded(SUBMITTED, TEAM_PLAN, TEAM_ISSUED)
    ended = replace(first[-1], at=first[-1].at + 100, event=JobEnded(status=JobStatus.OK))
    of_the_child: list[RecordedEvent] = []
    for event in recorded(*CHILD_EVENTS):
        of_the_child.append(replace(event, at=event.at + 50))
    news = {JOB: [*first, ended], CHILD_ID: of_the_child}

    lines = list_changes(None, build_update(view_with_child(), news))

    below = [number for number, line in enumerate(lines) if line.startswith("  ")]
    assert lines[below[0] - 1] == f"team (supervisor): handed over, as {CHILD_ID}"
    assert lines[below[2] + 1] == f"{JOB}: ok"


def test_a_plan_with_sub_supervisors_is_logged_with_its_cost() -> None:
    (shown,) = (
        line
        for line in list_changes(
            None, build_update(view_with_child(), {JOB: recorded(SUBMITTED, TEAM_PLAN)})
        )
        if line.startswith("plan: ")
    )

    assert shown.startswith("plan: 1 step: team (supervisor); 1 child job of at most ")


def test_a_slice_that_is_too_small_for_a_team_is_reported_at_its_start() -> None:
    view = view_with_child()
    info = JobInfo(
        JOB,
        JobStatus.RUNNING,
        3,
        "",
        100.0,
        cancelled=False,
        child_jobs_lack="too little: 1 turn",
    )
    view = replace(view, job=info)

    assert (
        f"team (supervisor): handed over, as {CHILD_ID}, with too little: 1 turn"
        in list_changes(
            None, build_update(view, {JOB: recorded(SUBMITTED, TEAM_PLAN, TEAM_ISSUED)})
        )
    )
    assert "! its child jobs get too little: 1 turn" in "\n".join(rendered(view))


def test_the_tree_has_the_steps_of_a_child_below_its_own() -> None:
    lines = rendered(view_with_child())

    (team_row,) = (number for number, line in enumerate(lines) if "team (supervisor)" in line)
    assert CHILD_ID in lines[team_row]
    (below,) = (number for number, line in enumerate(lines) if "left (researcher)" in line)
    assert below > team_row
    assert "turn 2  search_documents" in lines[below]
    assert lines[below].index("left") > lines[team_row].index("team")


def test_a_role_that_child_jobs_miss_is_named_once() -> None:
    nobody = WaitingReason(
        "a worker of `writer`", "start one with `handoff worker writer`", ("both",)
    )
    view = view_with_child()
    child = replace(view.children[CHILD_ID], waiting_reasons=(nobody,))
    view = replace(view, waiting_reasons=(nobody,), children={CHILD_ID: child})

    assert sum("a worker of `writer`" in line for line in rendered(view)) == 1
