"""A specialist checks the facts of an answer before the job ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from handoff_queue.shared.agent.prompt_documents import MAX_WHOLE_BYTES
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import APPROVE_AT_ONCE, ApprovalOf, Approvals, Mode
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.lifecycle.gates import MAX_GATE_ROUNDS
from handoff_queue.testing import Json, Reply, first_message_text, json_reply
from tests.e2e.fleet import Fleet, HeldCall
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow

ENVELOPE: Json = {"status": "ok", "claims": [], "confidence": 0.9, "needs": None, "problem": None}
WRONG = {"statement": "It is 324 m high.", "why": "It is 330 m high since 2022."}
PASS: Json = {"verdict": "PASS", "wrong": [], "why": "Held against the survey."}
VETO: Json = {"verdict": "VETO", "wrong": [WRONG], "why": "Held against the survey."}


@dataclass
class Script:
    """Model whose writer follows corrections. Its fact-checker gives the verdicts in `checks`, and
    repeats the last.
    """

    checks: list[Json] = field(default_factory=lambda: [VETO, PASS])
    held: list[HeldCall] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    checked: list[Json] = field(default_factory=list)

    def __call__(self, request: Json) -> Reply:
        prompt = first_message_text(request)
        if "Check the facts of an answer" not in prompt:
            self.written.append(prompt)
            metres = "330" if "since 2022" in prompt else "324"
            return json_reply({**ENVELOPE, "output": f"It is {metres} m high."})
        self.checked.append(request)
        answer = {
            **ENVELOPE,
            "output": self.checks.pop(0) if len(self.checks) > 1 else self.checks[0],
        }
        if answer["output"].get("fails"):
            answer |= {"status": "failed", "problem": "The archive is closed."}
        if not self.held:
            return json_reply(answer)
        held = self.held.pop(0)
        held.arrived.set()
        return json_reply(answer, stall=held.release)


@pytest.fixture
def script(fleet: Fleet) -> Iterator[Script]:
    previous, fleet.server.script = fleet.server.script, Script()
    yield fleet.server.script
    fleet.server.script = previous


def submit(
    fleet: Fleet, approvals: Approvals = APPROVE_AT_ONCE, documents: Path | None = None
) -> JobId:
    request = Request(
        "How high is it?",
        mode=Mode.SINGLE,
        gates=Gates(fact_checker="reviewer"),
        approvals=approvals,
        documents=documents,
    )
    return fleet.jobs.submit(request)


def test_a_veto_returns_statement_and_reason_and_the_revision_is_checked_again(
    fleet: Fleet, script: Script
) -> None:
    result = fleet.wait_for_success(submit(fleet))

    assert "It is 330 m high." in str(result.answer)
    assert '"It is 324 m high." is wrong: It is 330 m high since 2022.' in script.written[1]
    assert len(script.checked) == 2
    assert result.gates is not None
    outcomes = [
        (len(check["wrong"]), check["sent_back"], check["problem"])
        for check in result.gates["fact_checks"]
    ]
    assert outcomes == [(1, True, None), (0, False, None)]
    checks = [handoff for handoff in result.handoffs if handoff["step_id"] == "fact_gate"]
    assert [(attempt["handoff_id"], attempt["assigned_to"]) for attempt in checks] == [
        ("fact_gate.1", "reviewer"),
        ("fact_gate.2", "reviewer"),
    ]


def test_a_fact_checker_has_its_specialists_tools_and_sees_the_answer_as_data(
    fleet: Fleet, script: Script, tmp_path: Path
) -> None:
    (tmp_path / "survey.md").write_text("word " * MAX_WHOLE_BYTES)
    fleet.wait_for_success(submit(fleet, documents=tmp_path))
    prompt = first_message_text(script.checked[1])

    assert {tool["name"] for tool in script.checked[1]["tools"]} == {
        "search_documents",
        "read_document",
    }
    assert '<result step="answer" status="ok"> <data>It is 330 m high.' in prompt
    assert "turned down" not in prompt
    assert "since 2022" not in prompt


def test_an_answer_that_stays_wrong_after_the_last_veto_is_partial_and_names_the_error(
    fleet: Fleet, script: Script
) -> None:
    script.checks = [VETO]
    result = fleet.wait_for_end(submit(fleet))

    assert result.status is JobStatus.PARTIAL
    assert len(script.checked) == len(script.written) == MAX_GATE_ROUNDS + 1
    assert 'The fact-checker: "It is 324 m high." is wrong: It is 330 m high since 2022.' in str(
        result.answer
    )


def test_after_a_failed_fact_check_the_answer_is_partial_and_unchecked(
    fleet: Fleet, script: Script
) -> None:
    script.checks = [{"fails": True}]
    result = fleet.wait_for_end(submit(fleet))

    assert result.status is JobStatus.PARTIAL
    assert "It is 324 m high." in str(result.answer)
    assert (
        "The facts of the answer were not checked: the fact-checker failed (The archive is"
        " closed.)." in result.notes
    )


def test_a_person_approves_an_answer_after_its_fact_check(fleet: Fleet, script: Script) -> None:
    job_id = submit(fleet, Approvals(what=(ApprovalOf.ANSWER,)))
    wait_until(
        lambda: fleet.jobs.info(job_id).approval == ApprovalOf.ANSWER,
        timeout_s=30,
        expected="the question",
    )
    assert len(script.checked) == 2
    fleet.jobs.approve(job_id)

    fleet.wait_for_success(job_id)


def test_a_worker_killed_during_a_check_repeats_only_that_call_elsewhere(
    fleet: Fleet, script: Script
) -> None:
    script.checks, script.held = [PASS], [HeldCall()]
    first = script.held[0]
    job_id = submit(fleet)
    assert first.arrived.wait(MAX_WAIT_S)
    fleet.kill(fleet.pid_of(job_id, "fact_gate.1"))

    fleet.wait_for_success(job_id)
    assert (len(script.checked), len(script.written)) == (2, 1)
    first.release.set()


def test_a_kill_of_a_supervisor_during_a_check_changes_nothing(
    fleet: Fleet, script: Script
) -> None:
    script.checks, script.held = [PASS], [HeldCall()]
    first = script.held[0]
    job_id = submit(fleet)
    assert first.arrived.wait(MAX_WAIT_S)
    for name, pid in fleet.system.processes.get_pids().items():
        if name == "s1":
            fleet.kill(pid)
    first.release.set()

    fleet.wait_for_success(job_id)
    assert len(script.checked) == 1


def test_an_unserved_fact_checker_is_refused_before_any_cost(fleet: Fleet, script: Script) -> None:
    with pytest.raises(
        UserError,
        match=r"^fact_checker: no worker serves or has served 'revewer': did you mean reviewer",
    ):
        fleet.jobs.submit(Request("How high is it?", gates=Gates(fact_checker="revewer")))

    assert script.written == []
