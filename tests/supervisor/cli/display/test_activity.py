"""The activity line counts the running handoffs and names the silent handoffs."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.types.events import Child, StepOutline
from handoff_queue.shared.types.ids import JobId, StepId
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.cli.display.activity import (
    EVERY_S,
    MAX_HANDOFFS_A_LINE,
    SILENT_AFTER_S,
    format_activity,
)
from handoff_queue.supervisor.cli.display.event_lines import iterate_new_waits
from handoff_queue.supervisor.cli.display.job_view import TICK_S, JobView
from handoff_queue.supervisor.cli.display.tree import render_tree
from tests.supervisor.cli.job_events import PLANNED, SUBMITTED, finished, issued, view_of

RUNNING = HandoffInfo(
    "running", turns=1, doing="search_documents", started_at=98.0, heartbeat_at=109.0
)
DEFERRED = replace(RUNNING, state="waiting", doing="rate limit", deferred_until=150.0)
SILENT = replace(RUNNING, heartbeat_at=103.0)


def view_of_handoffs(**infos_by_step: HandoffInfo) -> JobView:
    """Return a view with one handoff for each step."""
    outlines = tuple(
        StepOutline(id=StepId(step), specialist="researcher") for step in infos_by_step
    )
    handoffs = [issued(step, "researcher") for step in infos_by_step]
    plan = PLANNED.model_copy(update={"steps": outlines})
    return view_of(
        SUBMITTED,
        plan,
        *handoffs,
        handoffs={f"{step}.1": info for step, info in infos_by_step.items()},
    )


def tree_of(view: JobView) -> str:
    out = io.StringIO()
    Console(file=out, width=140, highlight=False, markup=False).print(render_tree(view))
    return out.getvalue()


def test_a_log_shows_the_running_handoffs_and_the_usage_so_far() -> None:
    sign = (
        "so far 4 of 200 turns, 2,400 tokens, $0.0015; running: left (researcher) turn 2,"
        " search_documents, 12 s"
    )

    assert format_activity(view_of_handoffs(left=RUNNING)) == sign


def test_the_tool_calls_of_a_running_handoff_are_counted() -> None:
    assert (format_activity(view_of_handoffs(left=replace(RUNNING, tool_calls=1))) or "").endswith(
        "turn 2, search_documents, 1 tool call, 12 s"
    )


def test_a_silent_handoff_comes_first_in_a_log_and_is_marked_in_the_tree() -> None:
    view = view_of_handoffs(left=RUNNING, right=SILENT)
    shown = format_activity(view) or ""

    assert shown.index(
        "right (researcher) turn 2, search_documents, 12 s, no heartbeat for 7 s"
    ) < shown.index("left (researcher)")
    assert [
        line.split()[2] for line in tree_of(view).splitlines() if "no heartbeat for 7 s" in line
    ] == ["right"]


def test_without_a_running_handoff_there_is_no_line() -> None:
    assert format_activity(view_of_handoffs(left=HandoffInfo("issued"))) is None
    view = view_of(
        SUBMITTED,
        PLANNED,
        issued("left", "researcher"),
        finished("left"),
        handoffs={"left.1": RUNNING},
    )
    assert format_activity(view) is None, (
        "it has ended, whatever its state was when it was read last"
    )
    assert format_activity(JobView(view.job_id)) is None


def test_many_running_handoffs_are_counted_and_the_silent_handoffs_are_named() -> None:
    view = view_of_handoffs(**{f"s{number}": RUNNING for number in range(30)}, quiet=SILENT)

    line = format_activity(view) or ""
    assert line.count(" turn 2, ") == MAX_HANDOFFS_A_LINE
    assert "quiet (researcher)" in line
    assert line.endswith(f"; and {31 - MAX_HANDOFFS_A_LINE} more")


def test_a_handoff_of_a_child_job_is_shown_with_the_id_of_its_job() -> None:
    child = JobId("j-00000000cccc")
    handed = issued("team", "supervisor", group=None).model_copy(
        update={"child": Child(job_id=child, limits=JobLimits())}
    )
    team = PLANNED.model_copy(
        update={"steps": (StepOutline(id=StepId("team"), specialist="supervisor"),)}
    )
    view = view_of(SUBMITTED, team, handed, handoffs={"team.1": replace(SILENT, doing="")})
    view = replace(view, children={child: replace(view_of_handoffs(left=RUNNING), job_id=child)})

    assert (format_activity(view) or "").endswith(
        f"running: {child} left (researcher) turn 2, search_documents, 12 s"
    )
    assert "no heartbeat" not in tree_of(view)


def test_an_activity_line_appears_in_a_log_within_5_seconds() -> None:
    assert EVERY_S + TICK_S < 5.0 <= SILENT_AFTER_S


def test_a_deferred_handoff_is_shown_next_to_running_handoffs() -> None:
    view = view_of_handoffs(left=RUNNING, right=DEFERRED)

    assert (format_activity(view) or "").endswith("12 s; right (researcher) waits 40 s: rate limit")


def test_a_handoff_that_waits_for_a_batch_names_the_batch() -> None:
    doing = "waits for batch msgbatch_1 since 2026-11-29 09:00:00 UTC"
    view = view_of_handoffs(left=replace(DEFERRED, doing=doing))

    assert (format_activity(view) or "").endswith(f"running: left (researcher) {doing}")


def test_a_log_reports_once_that_a_handoff_is_deferred() -> None:
    before, after = view_of_handoffs(left=RUNNING), view_of_handoffs(left=DEFERRED)

    assert list(iterate_new_waits(before, after)) == ["left (researcher): waits 40 s: rate limit"]
    assert list(iterate_new_waits(after, replace(after, now=after.now + 5))) == []
    assert list(iterate_new_waits(after, replace(after, now=after.now + 60))) == [], (
        "its time is over, and it waits for a slot"
    )
