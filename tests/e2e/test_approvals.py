"""A job that waits for a person's approval: it survives restarts, and continues after the
answer.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from handoff_queue.shared.local.fork_server import ForkedProcess
from handoff_queue.shared.store import keys
from handoff_queue.shared.types.errors import INTERRUPTED
from handoff_queue.shared.types.events import Approved, JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals, OnTimeout
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.cli.errors import NOT_ENDED
from handoff_queue.supervisor.client.request import Request
from tests.e2e.commands import BAD_INPUT, DOCUMENTS, Handoff, error_line
from tests.e2e.fleet import Fleet
from tests.running_system import RunningSystem
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow


def submit_with_approvals(
    fleet: Fleet, name: str, *subjects: ApprovalOf, **policy: object
) -> JobId:
    fleet.add_plan(name, {"a": "", "b": "a"})
    approvals = Approvals.model_validate({"what": subjects, **policy})
    return fleet.jobs.submit(
        Request(f"plan {name}", approvals=approvals, limits=JobLimits(max_seconds=20))
    )


def wait_for_question(fleet: Fleet, job_id: JobId, subject: ApprovalOf) -> None:
    wait_until(
        lambda: fleet.jobs.info(job_id).approval == subject,
        timeout_s=30,
        expected=f"the question about the {subject}",
    )


def kill_supervisors(fleet: Fleet) -> None:
    for name, pid in fleet.system.processes.get_pids().items():
        if name.startswith("s"):
            fleet.kill(pid)
    wait_until(fleet.is_complete, timeout_s=60, expected="the fleet")


def test_a_job_waits_across_a_restart_of_all_supervisors_and_its_time_does_not_run(
    fleet: Fleet,
) -> None:
    job_id = submit_with_approvals(
        fleet, "approve", *(subject for subject in ApprovalOf if subject is not ApprovalOf.COST)
    )
    wait_for_question(fleet, job_id, ApprovalOf.PLAN)
    members = [
        member for member in fleet.redis.zrange(keys.DUE, 0, -1) if job_id.encode() in member
    ]
    assert members == [job_id.encode()], "only the end of the wait is due"
    assert fleet.redis.zscore(keys.DUE, job_id) > 1000 * (
        fleet.jobs.store.connection.now() + 29 * 24 * 3_600
    )
    kill_supervisors(fleet)
    assert fleet.jobs.info(job_id).approval == "plan"
    fleet.jobs.reject(job_id, "In other words.")
    wait_until(
        lambda: fleet.model.calls["approve", "planner", 1] == 2,
        timeout_s=30,
        expected="the second plan",
    )
    wait_for_question(fleet, job_id, ApprovalOf.PLAN)
    fleet.jobs.approve(job_id)
    wait_for_question(fleet, job_id, ApprovalOf.RESEARCH)
    fleet.jobs.reject(job_id, "Once more.", ["b"])
    wait_until(
        lambda: fleet.model.calls["approve", "b", 1] == 2, timeout_s=30, expected="the step again"
    )
    wait_for_question(fleet, job_id, ApprovalOf.RESEARCH)
    fleet.jobs.approve(job_id)
    wait_for_question(fleet, job_id, ApprovalOf.ANSWER)
    kill_supervisors(fleet)
    fleet.jobs.approve(job_id)

    result = fleet.wait_for_success(job_id)

    assert [approval["decision"] for approval in result.approvals] == [
        "rejected",
        "approved",
        "rejected",
        "approved",
        "approved",
    ]
    assert fleet.model.calls["approve", "a", 1] == 1, "an approved step does not run again"


def test_an_approval_without_an_answer_in_time_has_the_chosen_effect(fleet: Fleet) -> None:
    continuing = submit_with_approvals(
        fleet, "silence", ApprovalOf.PLAN, timeout_s=1, on_timeout=OnTimeout.GO_ON
    )
    stopping = submit_with_approvals(fleet, "unanswered", ApprovalOf.PLAN, timeout_s=1)

    fleet.wait_for_success(continuing)
    result = fleet.wait_for_end(stopping)

    assert [
        recorded.event.by
        for recorded in fleet.jobs.events(continuing, follow=False)
        if isinstance(recorded.event, Approved)
    ] == ["timeout"]
    assert (result.status, result.notes) == (
        JobStatus.CANCELLED,
        ("the plan was not approved within 1 s",),
    )


def test_commands_list_open_questions_deliver_an_answer_and_refuse_a_second_answer(
    fleet: Fleet, handoff: Handoff, tmp_path: Path
) -> None:
    job_id = submit_with_approvals(fleet, "typed", ApprovalOf.PLAN, ApprovalOf.ANSWER)
    url = fleet.system.redis_url
    wait_for_question(fleet, job_id, ApprovalOf.PLAN)
    (tmp_path / "plan.yaml").write_text(
        "steps:\n- {id: a, specialist: poet, task: Rhyme.}\n- {id: b}\n"
    )

    listed = handoff.run("list", HANDOFF_REDIS_URL=url).stdout
    invalid = handoff.run("approve", job_id, "--edit", "plan.yaml", HANDOFF_REDIS_URL=url)
    job_text = handoff.run("show", job_id, "--full", HANDOFF_REDIS_URL=url).stdout
    (tmp_path / "plan.yaml").write_text(job_text.partition("=== plan\n")[2].partition("\n===")[0])
    valid = handoff.run(
        "approve", job_id, "--edit", "plan.yaml", "--note", "As it is.", HANDOFF_REDIS_URL=url
    )
    wait_for_question(fleet, job_id, ApprovalOf.ANSWER)
    drafted = handoff.run("show", job_id, "--full", HANDOFF_REDIS_URL=url).stdout
    other = handoff.run("approve", job_id, "--question", "1", HANDOFF_REDIS_URL=url)
    rejected = handoff.run("reject", job_id, "--note", "Shorter.", HANDOFF_REDIS_URL=url)
    wait_for_question(fleet, job_id, ApprovalOf.ANSWER)
    fleet.jobs.approve(job_id)
    fleet.wait_for_success(job_id)
    late = handoff.run("approve", job_id, HANDOFF_REDIS_URL=url)

    assert f"`handoff approve {job_id}` or `handoff reject {job_id} --note TEXT`" in listed
    assert (invalid.returncode, len(invalid.stderr.splitlines())) == (BAD_INPUT, 3), invalid.stderr
    assert (valid.returncode, rejected.returncode) == (0, 0), valid.stderr + rejected.stderr
    assert "=== approval of the plan: approved" in drafted
    asked = re.search(r"=== approval of the answer: it waits, as question (\d+)", drafted)
    assert asked
    assert f"answer its question {asked[1]}" in error_line(other, BAD_INPUT)
    assert "So it is." in drafted.partition("=== approval of the answer")[2]
    assert error_line(late, BAD_INPUT).startswith(
        f"handoff: {job_id} does not wait for an approval: it has ended: answer a job"
    )


def test_a_rejection_with_the_users_own_plan_reaches_the_planner_before_the_next_question(
    fleet: Fleet, handoff: Handoff, tmp_path: Path
) -> None:
    job_id = submit_with_approvals(fleet, "drafted", ApprovalOf.PLAN)
    url = fleet.system.redis_url
    wait_for_question(fleet, job_id, ApprovalOf.PLAN)
    (tmp_path / "broken.yaml").write_text("steps: [\n")
    (tmp_path / "poet.yaml").write_text("steps:\n- {id: a, specialist: poet, task: Rhyme.}\n")
    (tmp_path / "mine.yaml").write_text(
        "steps:\n- {id: c, specialist: generalist, task: Do c of drafted.}\n"
    )

    invalid = {
        name: handoff.run("reject", job_id, "--edit", name, HANDOFF_REDIS_URL=url)
        for name in ("none.yaml", "broken.yaml", "poet.yaml")
    }
    assert fleet.jobs.info(job_id).approval == "plan"
    fleet.model.plans["drafted"] = {"c": ""}
    valid = handoff.run(
        "reject", job_id, "--edit", "mine.yaml", "--note", "One step.", HANDOFF_REDIS_URL=url
    )
    wait_until(
        lambda: fleet.model.calls["drafted", "planner", 1] == 2,
        timeout_s=30,
        expected="the second plan",
    )
    wait_for_question(fleet, job_id, ApprovalOf.PLAN)
    job_text = handoff.run("show", job_id, "--full", HANDOFF_REDIS_URL=url).stdout
    fleet.jobs.approve(job_id)
    result = fleet.wait_for_success(job_id)
    late = handoff.run("reject", job_id, "--edit", "mine.yaml", HANDOFF_REDIS_URL=url)

    assert "none.yaml" in error_line(invalid["none.yaml"], BAD_INPUT)
    assert "broken.yaml" in error_line(invalid["broken.yaml"], BAD_INPUT)
    assert "there is no specialist poet" in error_line(invalid["poet.yaml"], BAD_INPUT)
    assert valid.returncode == 0, valid.stderr
    assert "own_plan:" in job_text.partition("=== approval of the plan: rejected")[2]
    second = [handoff for handoff in result.handoffs if handoff["assigned_to"] == "planner"][1][
        "task_description"
    ]
    assert '"note": "One step.", "users_own_plan": {"steps": [{"id": "c"' in second
    assert (result.plan or {})["steps"][0]["id"] == "c"
    assert fleet.model.calls["drafted", "a", 1] == 0, "no step of the rejected plan was handed over"
    assert error_line(late, BAD_INPUT).startswith(
        f"handoff: {job_id} does not wait for an approval: it has ended: answer a job"
    )


def test_run_refuses_approvals_without_a_person_to_answer(handoff: Handoff) -> None:
    completed = handoff.run("run", "Compare.", "--approve", "plan")

    assert "--approve needs a terminal, or a broker (HANDOFF_REDIS_URL)" in error_line(
        completed, BAD_INPUT
    )


@contextmanager
def on_a_terminal(
    handoff: Handoff, *arguments: str, **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes] | ForkedProcess, int]]:
    """Start the command on a terminal that cannot draw, with the file `out` as its stdout."""
    with (
        (handoff.folder / "out").open("w") as output,
        handoff.on_a_terminal(
            *arguments, output=output.fileno(), TERM="dumb", **environment
        ) as started,
    ):
        yield started


def test_a_resumed_run_that_waits_for_a_person_ends_at_once_without_a_terminal(
    tmp_path: Path,
) -> None:
    handoff, question = Handoff(tmp_path), "approval of its plan. y: approve"
    arguments = ("run", "What is HNSW?", "--docs", str(DOCUMENTS), "--mode", "team")
    with on_a_terminal(handoff, *arguments, "--approve", "plan") as (process, terminal):
        assert "`handoff approve" not in read_until(terminal, question), (
            "it cannot reach this Redis"
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == INTERRUPTED
        job_id = re.findall(r"handoff retry (j-[a-z2-7]+)", read_until(terminal, "continues it"))[
            -1
        ]

    completed = handoff.run("retry", job_id)

    assert completed.returncode == NOT_ENDED, completed.stderr
    last = completed.stderr.splitlines()[-1]
    assert "waits for a person, and there is no terminal to ask in" in last
    assert f"`handoff retry {job_id}` continues it in a terminal" in last
    assert "`handoff approve" not in completed.stderr
    with on_a_terminal(handoff, "retry", job_id) as (process, terminal):
        read_until(terminal, question)
        os.write(terminal, b"y\n")
        read_until(terminal, " offline")
        assert process.wait(60) == 0


def test_run_on_a_terminal_asks_in_place_and_continues_with_the_answer(
    system: RunningSystem, tmp_path: Path
) -> None:
    """The job runs on a broker. The test of the resumed run asks in a private run."""
    handoff, url = Handoff(tmp_path), system.redis_url
    arguments = [
        "run",
        "What is HNSW?",
        "--docs",
        str(DOCUMENTS),
        "--mode",
        "team",
        "--approve",
        "plan",
        "--approve",
        "answer",
    ]
    with on_a_terminal(handoff, *arguments, HANDOFF_REDIS_URL=url) as (process, terminal):
        output = read_until(terminal, "approval of its plan. y: approve")
        assert "specialist: researcher" in output
        os.write(terminal, b"Fewer steps, please.\n")
        read_until(terminal, "approval of its plan. y: approve")
        os.write(terminal, b"y\n")
        assert "HNSW" in read_until(terminal, "approval of its answer. y: approve")
        os.write(terminal, b"y\n")
        assert "ok" in read_until(terminal, " offline")
        assert process.wait(MAX_WAIT_S) == 0
        assert "HNSW" in handoff.read("out")


def read_until(terminal: int, text: str) -> str:
    """Read from the terminal until its output contains the text, and return the output."""
    output = ""
    while text not in output:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, output
        output += os.read(terminal, 65_536).decode(errors="replace")
    return output
