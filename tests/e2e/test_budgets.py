"""Budgets hold over many real processes, also for agents that never finish.

The model server counts the calls, because a provider charges for each call that it receives.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import BudgetSpent
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import JobLimits, NewLimits, OnLimit
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import (
    Json,
    MessagesServer,
    Reply,
    answer_properties,
    first_message_text,
    json_reply,
    tool_call_reply,
)
from tests.e2e.fleet import ENVELOPE, PASS, SHORT_LEASES
from tests.running_system import (
    ALL_SPECIALISTS,
    SUPERVISOR,
    RunningSystem,
    model_environment,
    running_system,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


class GreedyModel:
    """A model whose specialists always call tools, and whose assessor always objects in new
    words.
    """

    def __init__(self) -> None:
        self.paid: Counter[str] = Counter()
        """Number of received calls by the name in the request."""
        self.release: defaultdict[str, threading.Event] = defaultdict(threading.Event)
        """Jobs of fifty specialists get no answer after their fourth call until the test sets
        this event.
        """

    def __call__(self, request: Json) -> Reply:
        prompt = first_message_text(request)
        match = next(
            iter(re.findall(r"plan (\w+) of (\d+)|Do s\d+ of (\w+)\.", prompt)), ("", "", "")
        )
        name = match[0] or match[2]
        self.paid[name] += 1
        properties = answer_properties(request)
        if "steps" in properties:
            tasks = [(f"s{n}", f"Do s{n} of {name}.") for n in range(int(match[1]))]
            steps = [
                {
                    "id": step,
                    "specialist": "generalist",
                    "task": task,
                    "depends_on": [],
                    "fallback": "-",
                }
                for step, task in tasks
            ]
            return json_reply({"steps": steps, "synthesis": "merge", "why": ""})
        if "verdict" in properties:
            if name != "endless":
                return json_reply(PASS)
            problem = (
                "The storage claim has no source.",
                "No source is given for the claim about storage.",
            )[self.paid[name] > 3]
            return json_reply(
                {
                    "verdict": "REVISE",
                    "revisions": [{"step": "s0", "problem": problem}],
                    "open_points": [],
                }
            )
        if name == "endless":
            return json_reply(ENVELOPE)
        return tool_call_reply(
            ("now", {}),
            text="So far.",
            stall=self.release[name] if "fifty" in name and self.paid[name] > 4 else None,
        )


@pytest.fixture(scope="module")
def greedy() -> GreedyModel:
    return GreedyModel()


@pytest.fixture(scope="module")
def system(
    tmp_path_factory: pytest.TempPathFactory, greedy: GreedyModel
) -> Iterator[RunningSystem]:
    """Start a supervisor, and two workers with 25 slots each."""
    with (
        MessagesServer(greedy) as server,
        running_system(
            tmp_path_factory.mktemp("budgets"), (), model_environment(server, **SHORT_LEASES)
        ) as running,
    ):
        running.start_worker("s1", *SUPERVISOR[1:], 4)
        for name in ("w1", "w2"):
            running.start_worker(name, *ALL_SPECIALISTS[1:], 25)
        running.processes.wait_until_ready()
        yield running


@pytest.fixture
def jobs(system: RunningSystem) -> Iterator[Client]:
    connected = client.connect(system.redis_url, Settings(offline=True))
    yield connected
    connected.store.connection.close()


@pytest.mark.parametrize(
    ("on_limit", "calls_before_kill"), [(OnLimit.WRAP_UP, 9), (OnLimit.STOP, 10)]
)
def test_fifty_specialists_on_a_budget_of_ten_calls_make_ten_calls_kills_included(
    system: RunningSystem,
    jobs: Client,
    greedy: GreedyModel,
    on_limit: OnLimit,
    calls_before_kill: int,
) -> None:
    """With `WRAP_UP`, the tenth call is kept for the review."""
    name = f"fifty_{on_limit.name.lower()}"
    limits = JobLimits(max_turns=10, max_steps=50, on_limit=on_limit)
    job_id = jobs.submit(Request(f"plan {name} of 50", limits=limits))
    wait_until(
        lambda: greedy.paid[name] == calls_before_kill and jobs.info(job_id).turns >= 4,
        timeout_s=60,
        expected="calls",
    )
    pid = system.processes.get_pids()["w1"]
    os.kill(pid, signal.SIGKILL)
    greedy.release[name].set()

    result = jobs.result(job_id, wait_s=90)

    assert result.status is JobStatus.PARTIAL or (
        on_limit is OnLimit.STOP and result.status is JobStatus.FAILED
    )
    assert "the job's budget is spent" in " ".join(result.notes)
    assert (greedy.paid[name], result.usage["turns"]) == (10, 10)
    wait_until(lambda: "w1" in system.processes.get_pids(), timeout_s=30, expected="the worker")


def test_a_review_that_rewords_its_request_ends_with_open_points(
    jobs: Client, greedy: GreedyModel
) -> None:
    result = jobs.result(jobs.submit(Request("plan endless of 1")), wait_s=60)

    assert result.status is JobStatus.PARTIAL
    assert [verdict["verdict"] for verdict in result.verdicts] == [
        "REVISE",
        "REVISE",
    ], "it may have three rounds, and ends after two"
    assert "The review asked for the same again" in " ".join(result.notes)
    assert "No source is given" in str(result.answer)
    assert greedy.paid["endless"] == 1 + 2 * len(result.verdicts)


def test_a_specialist_that_only_calls_tools_ends_at_its_turn_limit_with_its_work(
    jobs: Client, greedy: GreedyModel
) -> None:
    result = jobs.result(
        jobs.submit(Request("plan runaway of 1", limits=JobLimits(max_turns_per_handoff=5))),
        wait_s=60,
    )

    assert result.status is JobStatus.PARTIAL
    (specialist,) = (
        step_result for step_result in result.results if step_result["step_id"] == "s0"
    )
    assert (specialist["stop_reason"], specialist["turns"], specialist["output"]) == (
        "max_turns",
        5,
        "So far.",
    )
    assert greedy.paid["runaway"] == 1 + 5 + 1


def test_a_job_that_asks_for_budget_waits_for_its_user_and_continues_with_more(
    jobs: Client, greedy: GreedyModel
) -> None:
    job_id = jobs.submit(
        Request("plan asking of 1", limits=JobLimits(max_turns=3, on_limit=OnLimit.ASK))
    )
    wait_until(
        lambda: "decision" in jobs.info(job_id).waiting_for,
        timeout_s=60,
        expected="the question",
    )
    assert "continue the job with a higher limit" in jobs.info(job_id).waiting_for
    assert greedy.paid["asking"] == 3
    jobs.retry(job_id, limits=NewLimits(max_turns=6))
    wait_until(
        lambda: greedy.paid["asking"] == 6 and "decision" in jobs.info(job_id).waiting_for,
        timeout_s=60,
        expected="the second question",
    )

    jobs.cancel(job_id)

    assert jobs.result(job_id, wait_s=30).status is JobStatus.CANCELLED


def priced_model(request: Json) -> Reply:
    """Answer as a model whose every call costs some cents."""
    properties = answer_properties(request)
    if "steps" in properties:
        step = {
            "id": "s0",
            "specialist": "generalist",
            "task": "Do it.",
            "depends_on": [],
            "fallback": "-",
        }
        return json_reply({"steps": [step], "synthesis": "merge", "why": ""}, usage=EXPENSIVE_USAGE)
    return json_reply(PASS if "verdict" in properties else ENVELOPE, usage=EXPENSIVE_USAGE)


EXPENSIVE_USAGE = {"input_tokens": 1_000, "output_tokens": 1_500}


def test_a_day_with_too_little_budget_to_begin_a_job_takes_no_more_jobs(
    tmp_path: Path,
) -> None:
    """The first job that cannot begin fails, and the next submission is refused.

    The rest of the day's budget is then smaller than the worst case of a call. It is larger than
    the actual cost of a call.
    """
    with (
        MessagesServer(priced_model) as server,
        running_system(
            tmp_path,
            settings=model_environment(server, **SHORT_LEASES, HANDOFF_TENANT_DAY_USD="0.5"),
        ) as system,
    ):
        jobs, statuses = system.jobs(), list[JobStatus]()

        def submit_one_by_one() -> None:
            for number in range(20):
                statuses.append(
                    jobs.result(
                        jobs.submit(Request(f"Answer question {number}.", mode=Mode.TEAM)),
                        wait_s=60,
                    ).status
                )

        with pytest.raises(BudgetSpent, match="there is more at 00:00 UTC") as refused:
            submit_one_by_one()
        today = jobs.store.daily_budgets.read_today("default").tenant
        jobs.store.connection.close()

    assert statuses[0] is JobStatus.OK
    assert statuses[-1] is JobStatus.FAILED, "the last job had no budget for its first call"
    assert statuses.count(JobStatus.FAILED) == 1, "the submission after it was refused"
    assert today.microusd < today.most_microusd < today.microusd + today.needed_microusd
    assert "and a call may need $" in str(refused.value)


class ExpensiveModel:
    """A model whose planner makes five steps, and whose specialists make expensive calls and
    never finish.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        """Number of calls by role."""
        self.release = threading.Event()
        """Calls of specialists after their first get no answer until the test sets this event."""

    def __call__(self, request: Json) -> Reply:
        properties = answer_properties(request)
        if "steps" in properties:
            steps = [
                {
                    "id": f"s{n}",
                    "specialist": "coder",
                    "task": f"Do s{n}.",
                    "depends_on": [],
                    "fallback": "-",
                }
                for n in range(5)
            ]
            usage = {"input_tokens": 5_000, "output_tokens": 2_000}
            return json_reply({"steps": steps, "synthesis": "merge", "why": ""}, usage=usage)
        if "verdict" in properties:
            self.calls["assessor"] += 1
            return json_reply(PASS)
        (step,) = set(re.findall(r"Do (s\d)\.", first_message_text(request)))
        self.calls[step] += 1
        stall = self.release if self.calls[step] > 1 else None
        return tool_call_reply(
            ("read_document", {"path": "none.md"}),
            text="So far.",
            usage={"input_tokens": 40_000, "output_tokens": 100},
            stall=stall,
        )

    def has_called(self, times: int) -> bool:
        return all(self.calls[f"s{n}"] >= times for n in range(5))


def test_half_a_dollar_pays_for_the_review_of_five_steps_after_two_kills(
    tmp_path: Path,
) -> None:
    model = ExpensiveModel()
    with (
        MessagesServer(model) as server,
        running_system(tmp_path, settings=model_environment(server, **SHORT_LEASES)) as system,
    ):
        jobs = system.jobs()
        job_id = jobs.submit(
            Request("Do five things.", mode=Mode.TEAM, limits=JobLimits(max_microusd=500_000))
        )
        for calls_of_each in (2, 3):
            wait_until(
                partial(model.has_called, calls_of_each),
                timeout_s=60,
                expected="calls that wait for an answer",
            )
            os.kill(system.processes.get_pids()["everyone"], signal.SIGKILL)
        model.release.set()
        result = jobs.result(job_id, wait_s=90)
        jobs.store.connection.close()

    assert model.calls["assessor"] == 1, result.notes
    assert [verdict["verdict"] for verdict in result.verdicts] == ["PASS"]
    assert result.status is JobStatus.PARTIAL
    assert 0 < (result.usage["cost_usd"] or 0) <= 0.5
    assert "So far." in str(result.answer)
