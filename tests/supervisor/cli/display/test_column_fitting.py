"""Tables and trees fit the width and the height of the terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import replace

import pytest
from rich.console import Console

from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.types.events import Event, JobEnded, JobStatus
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.cli.display.job_status import format_headline
from handoff_queue.supervisor.cli.display.job_view import JobView
from handoff_queue.supervisor.cli.display.tables import choose_rows, cut_middle, cut_name, cut_words
from handoff_queue.supervisor.cli.display.tree import render_tree
from handoff_queue.supervisor.client.waiting_reasons import WaitingReason
from tests.supervisor.cli.job_events import PLANNED, SUBMITTED, finished, issued, view_of

PLANNER = (SUBMITTED, issued("planner", "planner", group=None), finished("planner"))
LONG = "check_the_supplier_contract_carefully_"
RUNNING = HandoffInfo(
    "running",
    turns=1,
    input_tokens=900,
    output_tokens=100,
    cost_microusd=1_500,
    doing="thinking",
    started_at=107.5,
)


def rendered_lines(
    view: JobView, width: int = 80, height: int = 24, *, below: int = 0
) -> list[str]:
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        height=height,
        highlight=False,
        markup=False,
        force_terminal=True,
        color_system=None,
    )
    console.print(render_tree(view, below=below))
    return out.getvalue().splitlines()


def planned_steps(*names: str) -> Event:
    outline = PLANNED.steps[0]
    return PLANNED.model_copy(
        update={"steps": tuple(outline.model_copy(update={"id": StepId(name)}) for name in names)}
    )


def job_with_steps(
    of: int, *, done: Iterable[int], failed: Iterable[int] = (), running: Iterable[int]
) -> JobView:
    """Return a view of a job with `of` steps, in these states. The other steps wait."""
    ended = [*((n, ResultStatus.OK) for n in done), *((n, ResultStatus.FAILED) for n in failed)]
    name = "page_{:04d}".format
    events = [
        event
        for n, status in ended
        for event in (issued(name(n), "reader"), finished(name(n), status=status, error="torn"))
    ]
    running = list(running)
    events += [issued(name(n), "reader") for n in running]
    return view_of(
        *PLANNER,
        planned_steps(*map(name, range(1, of + 1))),
        *events,
        handoffs={f"{name(n)}.1": RUNNING for n in running},
    )


def test_failed_running_and_next_steps_of_a_large_plan_are_shown_and_others_counted() -> None:
    view = job_with_steps(1_000, done=range(1, 401), failed=[401], running=range(402, 410))
    view = replace(
        view,
        waiting_reasons=(
            WaitingReason("a worker of `poet`", "start one with `handoff worker poet`", ("left",)),
        ),
    )

    lines = rendered_lines(view)

    assert len(lines) <= 24
    assert "page_0401" in lines[1]
    assert "✗" in lines[1]
    assert [line.split()[2] for line in lines[2:10]] == [f"page_{n:04d}" for n in range(402, 410)]
    assert "page_0410" in lines[10]
    assert "of 1,001: 401 done, 1 failed, 8 at work, 591 wait" in " ".join(lines)
    assert any("! step left waits for a worker of `poet`" in line for line in lines)


def test_failed_steps_leave_room_for_running_steps() -> None:
    lines = rendered_lines(
        job_with_steps(200, done=[], failed=range(1, 101), running=range(101, 133))
    )

    assert len(lines) <= 24
    assert sum("✗" in line for line in lines) == sum("●" in line for line in lines) == 11


def test_the_text_below_the_tree_keeps_its_lines() -> None:
    assert len(rendered_lines(job_with_steps(100, done=[], running=[1]), below=2)) <= 22


def test_on_a_low_terminal_the_steps_take_most_lines() -> None:
    lines = rendered_lines(job_with_steps(50, done=[1], running=[7]), 20, 5, below=1)

    assert len(lines) == 4
    assert "●" in lines[1]
    assert "and 49 more" in lines[3]


def test_missing_roles_leave_room_for_the_steps() -> None:
    lacks = tuple(WaitingReason(f"a worker of `w{n}`", "start one") for n in range(30))
    lines = rendered_lines(
        replace(job_with_steps(100, done=[], running=[1]), waiting_reasons=lacks)
    )

    assert len(lines) <= 24
    assert "! and 24 more reasons to wait" in lines[-1]
    assert "page_0001" in "".join(lines)


def test_steps_that_fit_keep_the_order_of_the_plan() -> None:
    lines = rendered_lines(job_with_steps(4, done=[1, 3], failed=[2], running=[4]))

    assert [line.split()[2] for line in lines[2:]] == [f"page_000{n}" for n in (1, 2, 3, 4)]


def test_detail_rows_stay_below_their_step() -> None:
    ranks, heads = [4, 1, 0, 1, 3, 3], [0, 1, 1, 3, 4, 5]

    assert choose_rows(ranks, heads, 4) == [1, 2, 3, 4]


@pytest.mark.parametrize("width", [60, 80])
def test_a_long_name_is_cut_in_the_middle_so_that_the_rest_of_the_row_is_seen(width: int) -> None:
    names = [f"{LONG}{n:04d}" for n in (1, 2)]
    events = (issued(names[0], "reader"), issued(names[1], "reader"), finished(names[1]))
    info = HandoffInfo(
        "done",
        turns=3,
        input_tokens=1_000,
        cost_microusd=1_200,
        started_at=101.0,
        finished_at=105.5,
    )
    view = view_of(
        *PLANNER,
        planned_steps(*names),
        *events,
        handoffs={f"{names[0]}.1": RUNNING, f"{names[1]}.1": info},
    )
    runs, finished_row = rendered_lines(view, width)[-2:]

    for words in ("0001", "turn 2", "thinking", "2.5 s"):
        assert words in runs
    for words in ("0002", "ok", "3 turns", "4.5 s", "$0.0012"):
        assert words in finished_row
    assert ("$0.0015" in runs) or width < 80
    assert max(map(len, (runs, finished_row))) <= width


def test_long_names_and_states_are_cut_to_the_width() -> None:
    assert cut_middle("page_0001", 9) == "page_0001"
    assert cut_middle(f"{LONG}0170", 12) == "check…y_0170"
    assert cut_name(f"{LONG}0170 (reader)", 30) == "check_the_…fully_0170 (reader)"
    assert cut_name(f"{LONG}0170 (researcher)", 14) == cut_middle(f"{LONG}0170", 14)
    assert (
        cut_words("turn 2  thinking  3 tool calls  2.5 s  1,000 tokens", 30)
        == "turn 2  thinking  2.5 s"
    )
    assert cut_words("failed  2.5 s  there is no such document", 24) == "failed  2.5 s  there is…"


@pytest.mark.parametrize("mode", [Mode.SINGLE, Mode.PIPELINE, Mode.AUTO])
def test_a_job_without_a_planner_has_no_row_for_a_planner(mode: Mode) -> None:
    asked = SUBMITTED.model_copy(update={"mode": mode})

    assert "planner" not in "".join(rendered_lines(view_of(asked)))
    assert "job  waits for a supervisor" in rendered_lines(view_of(asked))[1]
    assert "planner" not in "".join(
        rendered_lines(view_of(asked, PLANNED, issued("left", "researcher")))
    )


def test_the_clock_of_a_job_stops_if_it_is_cancelled_before_it_has_a_plan() -> None:
    view = view_of(SUBMITTED, JobEnded(status=JobStatus.CANCELLED), now=500.0)

    assert "planner" not in "".join(rendered_lines(view))
    assert format_headline(view).split("  ")[2] == "1 s"


def test_a_handoff_whose_worker_has_died_waits_to_be_run_again() -> None:
    back = HandoffInfo("issued", claims=1, issued_at=90.0, started_at=91.0)
    lines = rendered_lines(
        view_of(
            *PLANNER, planned_steps("left"), issued("left", "reader"), handoffs={"left.1": back}
        )
    )

    assert "waits for another attempt" in lines[2]
    assert "in its queue" not in lines[2]
