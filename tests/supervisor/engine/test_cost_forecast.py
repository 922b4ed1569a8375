"""The forecast of a job's closing calls is at least the amount that these calls reserve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import SecretStr

from handoff_queue.shared.agent.opening_message import MAX_SHOWN_BYTES
from handoff_queue.shared.agent.prices import Prices
from handoff_queue.shared.runtime.models import Models
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.events import HandoffIssued
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.handoff import AgentHandoff, ResultStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.engine.cost_forecast import UNWRITTEN_CHARS, CostForecast
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.roles.briefs import read_role
from tests.doubles.jobs import handoff_key
from tests.supervisor.shell import Shell
from tests.supervisor.workflows.workflow_files import ROW_STEP, make_workflow, numbered_rows

PAGE = 'The storage engine is "written" in Rust, says its own page.\n' * 90
"""About as long as the forecast assumes for a missing result."""
SCHEMA = {
    "type": "object",
    "properties": {"best": {"type": "string", "description": "the one to take"}},
    "required": ["best"],
}


def state_of(shell: Shell, job_id: JobId) -> JobState:
    state = fold(job_id, None, shell.store.journal.read(job_id))
    assert state is not None
    return state


def forecast_of(shell: Shell, job_id: JobId) -> Sequence[WorstCase]:
    with_key = Settings(anthropic_api_key=SecretStr("k"), offline=False)
    return CostForecast(Models(with_key), Prices(), shell.fact_checker).compute_foreseen_calls(
        state_of(shell, job_id)
    )


def reserved_tokens(shell: Shell, job_id: JobId, role: str) -> int:
    """Return the input tokens that the role's first call reserves."""
    issued = next(
        event
        for event in shell.events(job_id)
        if isinstance(event, HandoffIssued) and event.assigned_to == role
    )
    text = shell.store.payloads.get(job_id, [issued.handoff.digest])[issued.handoff.digest]
    first = shell.role_runner.prepare(
        state_of(shell, job_id), AgentHandoff.from_json(text), text
    ).claiming.first
    assert first is not None
    return first.input_tokens


@pytest.mark.slow
@pytest.mark.parametrize("pages", [0, 1, 15])
def test_the_forecast_is_at_least_the_final_reservation(shell: Shell, pages: int) -> None:
    job_id = shell.jobs.submit(
        Request("Compare Qdrant and Milvus", answer_schema=SCHEMA, mode=Mode.TEAM)
    )
    shell.advance(job_id)
    at_first = forecast_of(shell, job_id)
    while steps := shell.open(job_id):
        for event in steps:
            is_sink = (
                event.step_id in state_of(shell, job_id).sinks
            )  # without this result the job needs the synthesizer
            shell.do(
                job_id,
                event,
                ResultStatus.FAILED if is_sink else ResultStatus.OK,
                output=PAGE * pages,
            )
        last = forecast_of(shell, job_id)
        shell.advance(job_id)

    actual = [reserved_tokens(shell, job_id, role) for role in ("assessor", "synthesizer")]
    assert len(PAGE) < UNWRITTEN_CHARS
    closing_calls = last[
        : len(actual)
    ]  # after them comes the judge's call, once a step was sent back
    assert all(
        most.input_tokens >= really for most, really in zip(closing_calls, actual, strict=True)
    )
    assert pages > 1 or all(
        most.input_tokens >= really for most, really in zip(at_first, actual, strict=True)
    )
    assert all(
        most.input_tokens < 3 * really for most, really in zip(closing_calls, actual, strict=True)
    ), "nor much more"


def test_the_forecast_counts_the_messages_of_users(shell: Shell) -> None:
    job_id = shell.jobs.submit(Request("Compare Qdrant and Milvus", mode=Mode.TEAM))
    shell.advance(job_id)
    for _ in range(3):
        shell.jobs.say(job_id, "Milvus " * 1_000)
    last = forecast_of(shell, job_id)
    while steps := shell.open(job_id):
        for event in steps:
            shell.do(job_id, event)
        last = forecast_of(shell, job_id)
        shell.advance(job_id)

    assert last[0].input_tokens >= reserved_tokens(shell, job_id, "assessor")


@pytest.mark.slow
def test_the_forecast_for_many_results_is_bounded_by_the_prompt_size(
    shell: Shell, tmp_path: Path
) -> None:
    def read_of(count: int) -> int:
        job_id = shell.jobs.submit(
            Request("Look.", workflow=make_workflow(tmp_path, ROW_STEP), items=numbered_rows(count))
        )
        shell.advance(job_id)
        return forecast_of(shell, job_id)[0].input_tokens

    assert read_of(400) - read_of(300) < MAX_SHOWN_BYTES / 10, "of the plan alone"
    assert read_of(300) > MAX_SHOWN_BYTES


def test_a_small_budget_keeps_the_cost_of_a_review_with_its_default_model(shell: Shell) -> None:
    limits = JobLimits(max_microusd=500_000, max_tokens=10**6)
    job_id = shell.jobs.submit(Request("Compare Qdrant and Milvus", limits=limits, mode=Mode.TEAM))
    shell.advance(job_id)
    (review,) = forecast_of(shell, job_id)

    assert (review.microusd or 0) > 163_840, "what it may write alone costs that"
    kept = shell.store.connection.redis.hmget(keys.job(job_id), "keep_usd", "keep_tokens")
    assert kept == [b"100000", b"200000"], "of a model that is free, and of few tokens, a fifth"


def test_the_reserve_covers_the_fact_checker_and_no_other_specialist_may_use_it(
    shell: Shell,
) -> None:
    limits = JobLimits(max_turns=100)
    request = Request(
        "Compare Qdrant and Milvus",
        limits=limits,
        mode=Mode.TEAM,
        gates=Gates(fact_checker="writer"),
    )
    job_id = shell.jobs.submit(request)
    shell.advance(job_id)
    review, check = forecast_of(shell, job_id)

    assert (check.microusd or 0) > 0
    own_limits = (
        read_role("assessor").max_output_tokens,
        shell.fact_checker(state_of(shell, job_id)).max_output_tokens,
    )
    assert (review.output_tokens, check.output_tokens) == own_limits
    assert shell.store.connection.redis.hget(keys.job(job_id), "keep_turns") == b"2"
    while steps := [event for event in shell.open(job_id) if not event.is_fact_check]:
        for event in steps:
            assert not shell.store.connection.redis.hexists(
                handoff_key(shell.store, job_id, event.handoff_id), "closes"
            )
            shell.do(job_id, event, ResultStatus.OK)
        shell.advance(job_id)
    (event,) = shell.open(job_id)
    assert (
        shell.store.connection.redis.hget(
            handoff_key(shell.store, job_id, event.handoff_id), "closes"
        )
        == b"1"
    )


def test_no_team_begins_with_less_than_the_forecast_of_its_first_call(shell: Shell) -> None:
    job_id = shell.jobs.submit(Request("Compare Qdrant and Milvus", mode=Mode.TEAM))
    shell.advance(job_id)
    with_key = Settings(anthropic_api_key=SecretStr("k"), offline=False)

    least = CostForecast(
        Models(with_key), Prices(), shell.fact_checker
    ).compute_first_child_job_call(state_of(shell, job_id))

    actual = reserved_tokens(shell, job_id, "planner")
    assert actual / 3 < least.input_tokens <= actual
    assert least.microusd


def test_a_supervisor_without_a_key_for_the_requested_model_forecasts_nothing(shell: Shell) -> None:
    job_id = shell.jobs.submit(Request("Compare Qdrant and Milvus", mode=Mode.TEAM))
    shell.advance(job_id)
    state = state_of(shell, job_id)
    state = state.model_copy(
        update={"submitted": state.submitted.model_copy(update={"model": "some-model"})}
    )

    assert CostForecast(
        Models(Settings(offline=True)), Prices(), shell.fact_checker
    ).compute_foreseen_calls(state) == [WorstCase(0, 0, 0)]
