"""Every place that sets or shows the limits of a job knows each measure of the budget."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.types.budget_measures import MEASURES, Measure
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.cli.commands import load_command
from handoff_queue.supervisor.cli.display.job_status import list_usage_and_limits
from handoff_queue.supervisor.cli.request_options import (
    RequestOptions,
    build_limits,
    build_new_limits,
)
from handoff_queue.supervisor.cli.submit import SubmissionLine
from tests.supervisor.cli.job_events import view_of

pytestmark = pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.limit)


def parameter_of(measure: Measure) -> str:
    """Name of the option as a parameter of a command, and as a field of a line of `--file`."""
    return measure.option.removeprefix("--").replace("-", "_")


@pytest.mark.parametrize("name", ["submit", "run", "quote", "schedule", "retry", "fork"])
def test_a_command_has_the_option_of_each_limit(measure: Measure, name: str) -> None:
    command = load_command(name)

    assert parameter_of(measure) in {option.name for option in command.params}


def test_an_option_of_a_submission_sets_the_limit_of_the_job(measure: Measure) -> None:
    options: dict[str, Any] = {parameter_of(measure): 7}

    assert measure.get_limit(build_limits(RequestOptions("x", **options)))


def test_an_option_of_a_retry_raises_the_limit_of_the_job(measure: Measure) -> None:
    options: dict[str, Any] = dict.fromkeys(signature(build_new_limits).parameters)

    assert measure.get_limit(build_new_limits(**{**options, parameter_of(measure): 7}))


def test_a_line_of_a_file_of_jobs_sets_each_limit(measure: Measure) -> None:
    assert parameter_of(measure) in SubmissionLine.model_fields


def test_the_headline_of_a_job_shows_each_limit(measure: Measure) -> None:
    info = view_of().job
    assert info is not None
    unlimited = JobLimits(max_turns=None)
    limited = unlimited.model_copy(update={measure.limit: 7_000_000})

    assert list_usage_and_limits(info, limited) != list_usage_and_limits(info, unlimited)


def test_the_docs_name_each_option(measure: Measure) -> None:
    page = Path(__file__).parents[3] / "docs/how-to/budgets.md"

    assert measure.option in page.read_text()
