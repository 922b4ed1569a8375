"""The headline compares the usage of a job with its budget and its quote."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.types.cost_quote import Estimate, Quote
from handoff_queue.shared.types.events import (
    ApprovalAsked,
    Event,
    JobEnded,
    JobStatus,
    Quoted,
    RetryRequested,
)
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.cli.display.job_status import (
    NO_PAST,
    NO_PRICE,
    format_headline,
    format_quote,
    format_usage_and_quote,
    list_usage_and_limits,
)
from handoff_queue.supervisor.cli.display.job_view import JobView
from handoff_queue.supervisor.cli.display.tree import render_tree
from tests.supervisor.cli.job_events import JOB, PLANNED, SUBMITTED, issued, view_of


def estimate(likely: float, most: float) -> Estimate:
    return Estimate(likely=likely, most=most, drawn_likely=likely, drawn_most=most)


QUOTED = Quoted(
    quote=Quote(microusd=estimate(2_000, 4_000), seconds=estimate(30, 45), handoffs=9, jobs=30)
)
BEFORE: tuple[Event, ...] = (SUBMITTED, PLANNED, QUOTED)
SUBMITTED_AT = 101.0
"""Time at which `view_of` submits the job, in seconds."""


def with_usage(view: JobView, microusd: int | None, *, cut_calls: int = 0) -> JobView:
    assert view.job is not None
    return replace(view, job=replace(view.job, cost_microusd=microusd, cut_calls=cut_calls))


def test_the_headline_compares_turns_tokens_and_cost_with_their_limits() -> None:
    limits = JobLimits(max_turns=40, max_tokens=50_000, max_microusd=500_000)
    view = view_of(SUBMITTED.model_copy(update={"limits": limits}), PLANNED)

    assert format_headline(view).split("  ") == [
        JOB,
        "running",
        "9 s",
        "4 of 40 turns",
        "2,400 of 50,000 tokens",
        "$0.0015 of $0.5000",
    ]


def test_a_figure_without_a_limit_is_shown_alone() -> None:
    info = view_of(*BEFORE).job
    assert info is not None

    assert list_usage_and_limits(info, JobLimits(max_turns=None)) == [
        "4 turns",
        "2,400 tokens",
        "$0.0015",
    ]
    assert list_usage_and_limits(replace(info, cut_calls=1), JobLimits(max_tokens=9_000))[1:] == [
        "≤ 2,400 of 9,000 tokens",
        "≤ $0.0015",
    ]


def test_time_and_cost_are_compared_with_the_quote() -> None:
    view = view_of(*BEFORE, now=SUBMITTED_AT + 12)

    assert (
        format_usage_and_quote(view)
        == "12 s of likely 30 s, at most 45 s; $0.0015 of likely $0.0020, at most $0.0040"
    )
    assert format_usage_and_quote(view_of(SUBMITTED, PLANNED)) is None


def test_usage_above_the_quote_is_marked_as_over() -> None:
    view = with_usage(view_of(*BEFORE, now=SUBMITTED_AT + 50), 4_100)

    assert (
        format_usage_and_quote(view)
        == "50 s of likely 30 s, over 45 s; $0.0041 of likely $0.0020, over $0.0040"
    )


def test_an_unknown_cost_is_not_compared_with_a_quote() -> None:
    assert (
        format_usage_and_quote(with_usage(view_of(*BEFORE, now=SUBMITTED_AT + 12), None))
        == "12 s of likely 30 s, at most 45 s"
    )


def test_a_wait_for_a_person_is_not_part_of_the_quoted_time() -> None:
    question = ApprovalAsked(what=ApprovalOf.PLAN, why="-", wait_s=9_000)
    view = view_of(*BEFORE, question, now=SUBMITTED_AT + 500)

    assert (
        format_usage_and_quote(view)
        == "3.0 s of likely 30 s, at most 45 s; $0.0015 of likely $0.0020, at most $0.0040"
    )


FAILED_AND_RETRIED: tuple[Event, ...] = (
    issued("left", "researcher"),
    JobEnded(status=JobStatus.FAILED, reason="-"),
    RetryRequested(),
)
"""The retry comes six events after the submission, with one second per event."""


def info_of(microusd: int | None, cut_calls: int = 0) -> HandoffInfo:
    return HandoffInfo("done", cost_microusd=microusd, cut_calls=cut_calls)


@pytest.mark.parametrize(
    ("handoffs", "since"),
    [
        ({"left.1": info_of(1_000)}, "4.0 s, $0"),
        ({"left.1": info_of(1_000), "left.2": info_of(1_200)}, "4.0 s, $0.0012"),
        ({"left.1": info_of(None), "left.2": info_of(1_200, 1)}, "4.0 s, ≤ $0.0012"),
        ({"left.2": info_of(None)}, "4.0 s"),
    ],
)
def test_the_quote_of_a_retried_job_covers_its_first_run(
    handoffs: dict[str, HandoffInfo], since: str
) -> None:
    again = issued("left", "researcher", attempt=2)
    view = view_of(*BEFORE, *FAILED_AND_RETRIED, again, now=SUBMITTED_AT + 9, handoffs=handoffs)

    assert (
        format_usage_and_quote(view)
        == "the first run likely 30 s, at most 45 s; likely $0.0020, at most $0.0040; since the"
        f" retry {since}"
    )


def test_a_quote_made_in_the_retry_covers_the_retry() -> None:
    failed_before_its_plan = (
        SUBMITTED,
        JobEnded(status=JobStatus.FAILED, reason="-"),
        RetryRequested(),
    )
    view = view_of(*failed_before_its_plan, PLANNED, QUOTED, now=SUBMITTED_AT + 12)

    shown = format_usage_and_quote(view)

    assert shown is not None
    assert "of likely 30 s, at most 45 s" in shown
    assert "first run" not in shown


def test_a_retried_job_without_a_quote_has_none() -> None:
    assert format_usage_and_quote(view_of(SUBMITTED, PLANNED, *FAILED_AND_RETRIED)) is None


def test_the_tree_has_the_quote_below_its_headline() -> None:
    out = io.StringIO()
    Console(file=out, width=120, highlight=False, markup=False).print(
        render_tree(view_of(*BEFORE, now=SUBMITTED_AT + 12))
    )

    assert "quoted: 12 s of likely 30 s, at most 45 s" in out.getvalue().splitlines()[1]


def test_a_quote_of_a_job_with_batches_has_the_part_at_half_price_and_the_deadline() -> None:
    quote = Quote(
        microusd=estimate(2_000, 4_000),
        half_price_microusd=1_500,
        live_seconds=estimate(30, 45),
        deadline_s=21_600,
        handoffs=9,
    )

    assert format_quote(quote) == (
        "likely $0.0020, at most $0.0040; $0.0015 of the likely cost is for calls in batches,"
        " at half price; all other calls are at the full price; at most 21,600 s, the deadline,"
        " because each call waits up to 24 h for its batch; without these waits likely 30.0 s"
        " (from 9 earlier handoffs)"
    )


@pytest.mark.parametrize(("handoffs", "line"), [(0, NO_PAST), (9, NO_PRICE)])
def test_a_quote_without_figures_says_why(handoffs: int, line: str) -> None:
    assert format_quote(Quote(handoffs=handoffs)) == line


def test_a_line_of_a_quote_names_the_quoted_jobs_that_it_is_based_on() -> None:
    quote = Quote(microusd=estimate(2_000, 4_000), handoffs=1, jobs=2)

    assert format_quote(quote).endswith(
        " (from 1 earlier handoff, and the outcome of 2 earlier quotes)"
    )
