"""A watcher that reconnects shows the same tree, because only the events determine the tree."""

from __future__ import annotations

import io
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.types.events import HandoffIssued, RetryRequested
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.cli.display.event_lines import iterate_lines
from handoff_queue.supervisor.cli.display.job_view import JobUpdate, JobView
from handoff_queue.supervisor.cli.display.tree import render_tree
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from tests.doubles.handoffs import JOB
from tests.doubles.random_job import RandomJob
from tests.property_settings import draws

CUTS = st.lists(st.floats(0, 1), max_size=5)
"""Positions of lost connections, as fractions of the journal's length."""


def finished_job(seed: int, retries: int) -> RandomJob:
    """Return a random job that ran to its end, and was retried `retries` times."""
    job = RandomJob(Random(seed))
    job.run()
    for _ in range(retries):
        job.append(RetryRequested())
        job.run()
    return job


def initial_view(job: RandomJob) -> JobView:
    """Return the view before the first event, with the current store and all texts."""
    first, last = job.journal[0], job.journal[-1]
    info = JobInfo(
        JobId(JOB),
        job.state.status,
        last.version,
        "Compare",
        first.at,
        turns=4,
        input_tokens=2_000,
        output_tokens=400,
        cost_microusd=1_500,
        cancelled=False,
    )
    names = [event.handoff_id for event in job.events(HandoffIssued)]
    handoffs = {
        name: HandoffInfo("done", turns=number, input_tokens=10, cost_microusd=7)
        for number, name in enumerate(names)
    }
    return JobView(
        JobId(JOB),
        now=last.at,
        job=info,
        handoffs=handoffs,
        texts=ResultTexts(job.payloads),
    )


def rendered(view: JobView) -> str:
    out = io.StringIO()
    Console(file=out, width=160, highlight=False, markup=False).print(render_tree(view))
    return out.getvalue()


@draws(60)
@given(st.integers(0, 10**9), st.integers(0, 1), CUTS)
def test_a_reconnected_watcher_shows_the_same_tree_and_each_log_line_once(
    seed: int, retries: int, cuts: list[float]
) -> None:
    job = finished_job(seed, retries)
    at_once = initial_view(job).apply_events(job.journal)
    at = sorted({0, len(job.journal), *(int(cut * len(job.journal)) for cut in cuts)})

    view, lines = initial_view(job), list[tuple[float, str]]()
    for since, until in pairwise(at):
        before, events = view.state, job.journal[since:until]
        view = view.apply_events(events)
        lines += iterate_lines(JobUpdate(view, tuple(events)), before)

    assert view.state == at_once.state
    assert rendered(view) == rendered(at_once)
    assert lines == list(iterate_lines(JobUpdate(at_once, tuple(job.journal))))
