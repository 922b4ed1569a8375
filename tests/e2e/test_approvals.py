"""A job that waits for a person, on real processes: it holds no resource, loses nothing, and then
continues.
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

from handoff_queue.shared.store import keys
from handoff_queue.shared.types.events import Approved, JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals, OnTimeout
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.cli.errors import INTERRUPTED, NOT_ENDED
from handoff_queue.supervisor.client.client import Request
from tests.e2e.commands import BAD_INPUT, DOCUMENTS, Handoff, said
from tests.e2e.fleet import Fleet
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def asks(fleet: Fleet, name: str, *what: ApprovalOf, **policy: object) -> JobId:
    fleet.model.plans[name] = {"a": "", "b": "a"}
    approvals = Approvals.model_validate({"what": what, **policy})
    return fleet.jobs.submit(
        Request(f"plan {name}", approvals=approvals, limits=JobLimits(max_seconds=20))
    )


def asked(fleet: Fleet, job_id: JobId, what: ApprovalOf) -> None:
    wait_until(
        lambda: fleet.jobs.standing(job_id).approval == what,
        timeout_s=30,
        what=f"the question about the {what}",
    )


def kill_supervisors(fleet: Fleet) -> None:
    for name, pid in fleet.system.processes.pids().items():
        if name.startswith("s"):
            fleet.kill(pid)
    wait_until(fleet.is_whole, timeout_s=60, what="the fleet")


def test_a_job_waits_across_a_restart_of_all_supervisors_and_its_time_does_not_run(
    fleet: Fleet,
) -> None:
    job_id = asks(fleet, "approve", *(what for what in ApprovalOf if what is not ApprovalOf.COST))
    asked(fleet, job_id, ApprovalOf.PLAN)
    members = [
        member for member in fleet.redis.zrange(keys.DUE, 0, -1) if job_id.encode() in member
    ]
    assert members == [job_id.encode()], "nothing is due but the end of the wait"
    assert fleet.redis.zscore(keys.DUE, job_id) > 1000 * (
        fleet.jobs.store.connection.now() + 29 * 24 * 3_600
    )
    kill_supervisors(fleet)
    assert fleet.jobs.standing(job_id).approval == "plan"
    fleet.jobs.reject(job_id, "In other words.")
    wait_until(
        lambda: fleet.model.calls["approve", "planner", 1] == 2,
        timeout_s=30,
        what="the second plan",
    )
    asked(fleet, job_id, ApprovalOf.PLAN)
    fleet.jobs.approve(job_id)
    asked(fleet, job_id, ApprovalOf.RESEARCH)
    fleet.jobs.reject(job_id, "Once more.", ["b"])
    wait_until(
        lambda: fleet.model.calls["approve", "b", 1] == 2, timeout_s=30, what="the step again"
    )
    asked(fleet, job_id, ApprovalOf.RESEARCH)
    fleet.jobs.approve(job_id)
    asked(fleet, job_id, ApprovalOf.ANSWER)
    kill_supervisors(fleet)
    fleet.jobs.approve(job_id)

    result = fleet.ends_well(job_id)

    assert [one["decision"] for one in result.approvals] == [
        "rejected",
        "approved",
        "rejected",
        "approved",
        "approved",
    ]
    assert fleet.model.calls["approve", "a", 1] == 1, "what was not rejected is not paid again"


def test_silence_has_the_effect_that_the_user_chose(fleet: Fleet) -> None:
    goes_on = asks(fleet, "silence", ApprovalOf.PLAN, timeout_s=1, on_timeout=OnTimeout.GO_ON)
    stops = asks(fleet, "silent", ApprovalOf.PLAN, timeout_s=1)

    fleet.ends_well(goes_on)
    result = fleet.ends(stops)

    assert [
        one.event.by
        for one in fleet.jobs.events(goes_on, follow=False)
        if isinstance(one.event, Approved)
    ] == ["timeout"]
    assert (result.status, result.notes) == (
        JobStatus.CANCELLED,
        ("the plan was not approved within 1 s",),
    )


def test_commands_list_open_questions_deliver_an_answer_and_refuse_a_second_answer(
    fleet: Fleet, tmp_path: Path
) -> None:
    job_id, handoff = asks(fleet, "typed", ApprovalOf.PLAN, ApprovalOf.ANSWER), Handoff(tmp_path)
    url = fleet.system.redis_url
    asked(fleet, job_id, ApprovalOf.PLAN)
    (tmp_path / "plan.yaml").write_text(
        "steps:\n- {id: a, specialist: poet, task: Rhyme.}\n- {id: b}\n"
    )

    listed = handoff.run("list", HANDOFF_REDIS_URL=url).stdout
    wrong = handoff.run("approve", job_id, "--edit", "plan.yaml", HANDOFF_REDIS_URL=url)
    shown = handoff.run("show", job_id, "--full", HANDOFF_REDIS_URL=url).stdout
    (tmp_path / "plan.yaml").write_text(shown.partition("=== plan\n")[2].partition("\n===")[0])
    right = handoff.run(
        "approve", job_id, "--edit", "plan.yaml", "--note", "As it is.", HANDOFF_REDIS_URL=url
    )
    asked(fleet, job_id, ApprovalOf.ANSWER)
    drafted = handoff.run("show", job_id, "--full", HANDOFF_REDIS_URL=url).stdout
    rejected = handoff.run("reject", job_id, "--note", "Shorter.", HANDOFF_REDIS_URL=url)
    asked(fleet, job_id, ApprovalOf.ANSWER)
    fleet.jobs.approve(job_id)
    fleet.ends_well(job_id)
    late = handoff.run("approve", job_id, HANDOFF_REDIS_URL=url)

    assert f"`handoff approve {job_id}` or `handoff reject {job_id} --note TEXT`" in listed
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (BAD_INPUT, 3), wrong.stderr
    assert (right.returncode, rejected.returncode) == (0, 0), right.stderr + rejected.stderr
    assert "=== approval of the plan: approved" in drafted
    assert "=== approval of the answer: it waits" in drafted
    assert "So it is." in drafted.partition("=== approval of the answer")[2]
    assert said(late, BAD_INPUT) == f"handoff: {job_id} waits for no approval: it has ended"


def test_a_rejection_with_the_users_own_plan_reaches_the_planner_before_the_next_question(
    fleet: Fleet, tmp_path: Path
) -> None:
    job_id, handoff = asks(fleet, "drafted", ApprovalOf.PLAN), Handoff(tmp_path)
    url = fleet.system.redis_url
    asked(fleet, job_id, ApprovalOf.PLAN)
    (tmp_path / "broken.yaml").write_text("steps: [\n")
    (tmp_path / "poet.yaml").write_text("steps:\n- {id: a, specialist: poet, task: Rhyme.}\n")
    (tmp_path / "mine.yaml").write_text(
        "steps:\n- {id: c, specialist: generalist, task: Do c of drafted.}\n"
    )

    wrong = {
        name: handoff.run("reject", job_id, "--edit", name, HANDOFF_REDIS_URL=url)
        for name in ("none.yaml", "broken.yaml", "poet.yaml")
    }
    assert fleet.jobs.standing(job_id).approval == "plan"
    fleet.model.plans["drafted"] = {"c": ""}
    right = handoff.run(
        "reject", job_id, "--edit", "mine.yaml", "--note", "One step.", HANDOFF_REDIS_URL=url
    )
    wait_until(
        lambda: fleet.model.calls["drafted", "planner", 1] == 2,
        timeout_s=30,
        what="the second plan",
    )
    asked(fleet, job_id, ApprovalOf.PLAN)
    watched = handoff.run("show", job_id, "--full", HANDOFF_REDIS_URL=url).stdout
    fleet.jobs.approve(job_id)
    result = fleet.ends_well(job_id)
    late = handoff.run("reject", job_id, "--edit", "mine.yaml", HANDOFF_REDIS_URL=url)

    assert "none.yaml" in said(wrong["none.yaml"], BAD_INPUT)
    assert "broken.yaml" in said(wrong["broken.yaml"], BAD_INPUT)
    assert "there is no specialist poet" in said(wrong["poet.yaml"], BAD_INPUT)
    assert right.returncode == 0, right.stderr
    assert "own_plan:" in watched.partition("=== approval of the plan: rejected")[2]
    second = [one for one in result.handoffs if one["assigned_to"] == "planner"][1][
        "task_description"
    ]
    assert '"note": "One step.", "users_own_plan": {"steps": [{"id": "c"' in second
    assert (result.plan or {})["steps"][0]["id"] == "c"
    assert fleet.model.calls["drafted", "a", 1] == 0, "no step of the rejected plan was handed over"
    assert said(late, BAD_INPUT) == f"handoff: {job_id} waits for no approval: it has ended"


def test_run_refuses_approvals_without_a_person_to_answer(tmp_path: Path) -> None:
    done = Handoff(tmp_path).run("run", "Compare.", "--approve", "plan")

    assert "--approve needs a terminal, or a broker (HANDOFF_REDIS_URL)" in said(done, BAD_INPUT)


@contextmanager
def on_a_terminal(handoff: Handoff, *typed: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The command with a terminal for its questions, and our end of the terminal."""
    ours, theirs = os.openpty()
    with (handoff.folder / "out").open("w") as out:
        process = subprocess.Popen(
            handoff.command(*typed),
            stdin=theirs,
            stdout=out,
            stderr=theirs,
            text=True,
            cwd=handoff.folder,
            env=handoff.environment(TERM="dumb"),
        )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_resumed_run_that_waits_for_a_person_ends_at_once_without_a_terminal(
    tmp_path: Path,
) -> None:
    handoff, wanted = Handoff(tmp_path), "approval of its plan. y: approve"
    typed = ("run", "What is HNSW?", "--docs", str(DOCUMENTS), "--mode", "team")
    with on_a_terminal(handoff, *typed, "--approve", "plan") as (process, terminal):
        assert "`handoff approve" not in read_until(terminal, wanted), "it cannot reach this Redis"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == INTERRUPTED
        job_id = re.findall(r"handoff retry (j-[0-9a-f]+)", read_until(terminal, "continues it"))[
            -1
        ]

    done = handoff.run("retry", job_id)

    assert done.returncode == NOT_ENDED, done.stderr
    last = done.stderr.splitlines()[-1]
    assert "waits for a person, and there is no terminal to ask in" in last
    assert f"`handoff retry {job_id}` continues it in a terminal" in last
    assert "`handoff approve" not in done.stderr
    with on_a_terminal(handoff, "retry", job_id) as (process, terminal):
        read_until(terminal, wanted)
        os.write(terminal, b"y\n")
        read_until(terminal, " offline")
        assert process.wait(60) == 0


def test_run_on_a_terminal_asks_in_place_and_continues_with_the_answer(tmp_path: Path) -> None:
    handoff = Handoff(tmp_path)
    typed = [
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
    with on_a_terminal(handoff, *typed) as (process, ours):
        seen = read_until(ours, "approval of its plan. y: approve")
        assert "specialist: researcher" in seen
        os.write(ours, b"Fewer steps, please.\n")
        read_until(ours, "approval of its plan. y: approve")
        os.write(ours, b"y\n")
        assert "HNSW" in read_until(ours, "approval of its answer. y: approve")
        os.write(ours, b"y\n")
        assert "ok" in read_until(ours, " offline")
        assert process.wait(30) == 0
        assert "HNSW" in handoff.read("out")


def read_until(terminal: int, words: str) -> str:
    seen = ""
    while words not in seen:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, seen
        seen += os.read(terminal, 65_536).decode(errors="replace")
    return seen
