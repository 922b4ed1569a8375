"""The live tree shows each handoff with its state and its time."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.types.events import (
    JobEnded,
    JobStatus,
    UserMessageSent,
    UserMessageTaken,
)
from handoff_queue.shared.types.handoff import ResultStatus, SharedRun, make_ref
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.plan import Patch
from handoff_queue.shared.types.review import Decision, Revision, Verdict
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.cli.display.job_view import (
    JobView,
)
from handoff_queue.supervisor.cli.display.step_copies import (
    MAX_ROWS,
)
from handoff_queue.supervisor.cli.display.tree import render_tree
from handoff_queue.supervisor.client.waiting_reasons import WaitingReason
from tests.supervisor.cli.job_events import (
    JOB,
    PLANNED,
    RESULT_TEXTS,
    SUBMITTED,
    finished,
    issued,
    replanner_events,
    reviewed,
    view_of,
)

PLANNER = (SUBMITTED, issued("planner", "planner", group=None), finished("planner"), PLANNED)


def rendered(view: JobView, width: int = 120) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, markup=False).print(render_tree(view))
    return out.getvalue()


def row(view: JobView, name: str) -> str:
    return next(line for line in rendered(view).splitlines() if f" {name}" in line)


def test_the_headline_shows_the_state_of_the_job() -> None:
    assert rendered(view_of(*PLANNER)).splitlines()[0].split("  ") == [
        JOB,
        "running",
        "9 s",
        "4 of 200 turns",
        "2,400 tokens",
        "$0.0015",
    ]


def test_figures_that_include_a_cut_call_are_upper_bounds() -> None:
    view = view_of(
        *PLANNER,
        issued("left", "researcher"),
        finished("left"),
        handoffs={"left.1": HandoffInfo("done", cut_calls=1)},
    )
    assert view.job is not None
    view = replace(view, job=replace(view.job, cut_calls=1))

    assert "≤ 2,400 tokens  ≤ $0.0015" in rendered(view).splitlines()[0]
    assert "≤ " in row(view, "left")
    assert "≤ " not in rendered(view_of(*PLANNER, issued("left", "researcher"), finished("left")))


def test_a_fact_checker_has_a_row_below_the_steps() -> None:
    view = view_of(*PLANNER, issued("fact_gate", "legal", group="g2", attempt=2))

    assert "in its queue" in row(view, "fact_gate (legal) 2")


def test_a_row_of_the_replanner_shows_its_change_and_the_new_steps() -> None:
    step = Step(id=StepId("config"), specialist="ops", task="Check the configuration.")
    look = replanner_events(Patch(add=(step,), drop=(StepId("both"),), why="-"))
    asked = PLANNER[0].model_copy(update={"mode": Mode.ADAPTIVE})
    view = view_of(asked, *PLANNER[1:], issued("replanner", "replanner", group=None), *look)

    assert "config (ops) added; both dropped: -" in row(view, "replanner")
    assert "Check the configuration." in row(view, "config")
    assert " both (writer)" not in rendered(view)


def test_a_job_without_an_evaluation_waits_for_a_supervisor() -> None:
    assert "waits for a supervisor" in row(view_of(SUBMITTED), "planner")


def test_a_step_shows_the_reason_of_its_wait() -> None:
    assert "waits for left" in row(view_of(*PLANNER), "both")


def test_an_unclaimed_handoff_is_shown_as_queued() -> None:
    view = view_of(
        *PLANNER,
        issued("left", "researcher"),
        handoffs={"left.1": HandoffInfo("issued", issued_at=105.0)},
    )

    assert "in its queue for 5 s" in row(view, "left")


def test_a_running_handoff_shows_turn_activity_tool_calls_seconds_and_tokens() -> None:
    usage = HandoffInfo("running", turns=1, tool_calls=3, input_tokens=900, output_tokens=100)
    info = replace(usage, doing="search_documents", started_at=107.5)
    view = view_of(*PLANNER, issued("left", "researcher"), handoffs={"left.1": info})

    assert "left (researcher)" in row(view, "left")
    for text in ("turn 2", "search_documents", "3 tool calls", "2.5 s", "1,000 tokens"):
        assert text in row(view, "left")


@pytest.mark.parametrize(
    ("status", "mark"),
    [
        (ResultStatus.OK, "✓"),
        (ResultStatus.PARTIAL, "◐"),
        (ResultStatus.FAILED, "✗"),
        (ResultStatus.NEEDS_INPUT, "?"),
    ],
)
def test_a_finished_handoff_shows_how_it_ended(status: ResultStatus, mark: str) -> None:
    view = view_of(
        *PLANNER,
        issued("left", "researcher"),
        finished("left", status=status, error="no such document"),
    )

    assert f"{mark} left" in rendered(view)
    assert ("no such document" in row(view, "left")) is (status is not ResultStatus.OK)


def test_a_copied_result_names_the_handoff_that_paid() -> None:
    shared = SharedRun(job_id=JobId("j-0000000000aa"), handoff_id=HandoffId("find.1"))
    done = finished("left").model_copy(update={"shared": shared})
    view = view_of(*PLANNER, issued("left", "researcher"), done)

    assert "shared with j-0000000000aa find.1, paid there" in row(view, "left")


def test_the_lost_claims_of_a_finished_handoff_are_shown() -> None:
    info = HandoffInfo("done", turns=2, lost_claims=2)
    view = view_of(
        *PLANNER, issued("left", "researcher"), finished("left"), handoffs={"left.1": info}
    )

    assert "2 lost claims" in row(view, "left")


def test_a_verdict_is_shown_at_its_round() -> None:
    revise = Verdict(
        verdict=Decision.REVISE, revisions=(Revision(step=StepId("left"), problem="no source"),)
    )
    events = (
        issued("left", "researcher"),
        finished("left"),
        issued("assessor", "assessor", group=None),
        finished("assessor"),
    )
    view = view_of(*PLANNER, *events, reviewed(revise))

    assert "REVISE left" in row(view, "assessor")
    assert "again: no source" in row(view, "left")


def test_a_later_attempt_is_marked() -> None:
    view = view_of(
        *PLANNER,
        issued("left", "researcher"),
        finished("left"),
        issued("left", "researcher", attempt=2, group="g2"),
    )

    assert "attempt 2" in row(view, "left")


def test_foreign_text_cannot_control_the_terminal() -> None:
    view = view_of(
        *PLANNER,
        issued("left", "researcher"),
        finished("left", status=ResultStatus.FAILED, error="\x1b]0;owned\x07[bold]x"),
    )

    assert "\x1b" not in rendered(view)
    assert "[bold]x" in rendered(view)


def test_a_line_is_never_wider_than_the_screen() -> None:
    view = view_of(
        *PLANNER,
        issued("left", "researcher"),
        finished("left", status=ResultStatus.FAILED, error="word " * 50),
    )

    assert all(len(line) <= 60 for line in rendered(view, width=60).splitlines())


def test_a_large_plan_is_cut_to_the_screen() -> None:
    outlines = tuple(
        PLANNED.steps[0].model_copy(update={"id": StepId(f"s{number}")}) for number in range(100)
    )
    view = view_of(*PLANNER[:3], PLANNED.model_copy(update={"steps": outlines}))

    assert len(rendered(view).splitlines()) == MAX_ROWS + 2
    assert "and 61 more" in rendered(view)


def test_a_missing_role_is_shown_below_the_steps() -> None:
    view = replace(
        view_of(*PLANNER),
        waiting_reasons=(
            WaitingReason("a worker of `poet`", "start one with `handoff worker poet`", ("left",)),
        ),
    )

    assert (
        rendered(view)
        .splitlines()[-1]
        .endswith("! step left waits for a worker of `poet`: start one with `handoff worker poet`")
    )


def test_the_view_of_an_ended_job_has_ended() -> None:
    assert view_of(*PLANNER, JobEnded(status=JobStatus.FAILED, reason="nobody")).has_ended


def test_a_row_says_at_which_turn_its_agent_took_a_message() -> None:
    text, message_id = make_ref("Ignore prices before 2020."), "0123456789abcdef"
    RESULT_TEXTS[text.digest] = "Ignore prices before 2020."
    sent = UserMessageSent(message_id=message_id, text=text)
    taken = UserMessageTaken(message_id=message_id, handoff_id=HandoffId("left.1"), turn=3)
    running = (*PLANNER, issued("left", "researcher"), sent)

    assert "not taken yet: Ignore prices" in row(view_of(*running), "message")
    assert "said at turn 3: Ignore prices" in row(view_of(*running, taken), "left")
    assert "message" not in rendered(view_of(*running, taken))


def test_the_row_of_a_role_says_at_which_turn_it_took_a_message() -> None:
    text, message_id = make_ref("Mind the units."), "0123456789abcdef"
    RESULT_TEXTS[text.digest] = "Mind the units."
    view = view_of(
        *PLANNER,
        issued("assessor", "assessor", group=None),
        UserMessageSent(message_id=message_id, text=text, step=StepId("left")),
        UserMessageTaken(message_id=message_id, handoff_id=HandoffId("assessor.1"), turn=2),
    )

    assert "said at turn 2: Mind the units." in row(view, "assessor")


def test_a_message_that_no_running_agent_took_has_its_own_row() -> None:
    text = make_ref("Mind the units.")
    RESULT_TEXTS[text.digest] = "Mind the units."
    sent = UserMessageSent(message_id="f" * 16, text=text, step=StepId("left"))
    done = (*PLANNER, issued("left", "researcher"), finished("left"), sent)
    later = issued("assessor", "assessor", group=None)

    assert "in the task of later agents: Mind" in row(view_of(*done, later), "message to left")
    ended = JobEnded(status=JobStatus.OK)
    assert "before an agent took it: Mind" in row(view_of(*done, ended), "message to left")
