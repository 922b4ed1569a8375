"""Each job of an evaluation is a sample: its handoffs copy no result."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.supervisor.client.client import Client, Request
from handoff_queue.supervisor.evaluation.job_runner import (
    EvaluationBudget,
    EvaluationJob,
    JobRunner,
)


class Stopped(Exception):
    """The test has seen enough."""


@dataclass(slots=True)
class StopAtSecondPoll:
    """Check of a runner that stops it after the jobs have started."""

    polls: list[None] = field(default_factory=list)

    def __call__(self) -> None:
        if self.polls:
            raise Stopped
        self.polls.append(None)


def test_the_jobs_of_an_evaluation_share_no_runs(jobs: Client) -> None:
    trials = [EvaluationJob(f"trial {number}", Request("Compare things.")) for number in (1, 2)]
    runner = JobRunner(jobs, EvaluationBudget(None, 2), StopAtSecondPoll())
    runner.add(trials)

    with pytest.raises(Stopped):
        list(runner.run())

    redis = jobs.store.connection.redis
    assert [redis.hget(keys.job(trial.job_id), "alone") for trial in trials] == [b"1", b"1"]


def test_other_jobs_share_runs_if_their_specialists_do(jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare things."))

    assert jobs.store.connection.redis.hget(keys.job(job_id), "alone") is None
