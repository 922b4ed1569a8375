"""A specialist checks the facts of an answer before it leaves: real workers, a scripted model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import NOBODY_THERE, ApprovalOf, Approvals, Mode
from handoff_queue.supervisor.client.client import Request
from handoff_queue.supervisor.lifecycle.gates import MOST_GATE_ROUNDS
from handoff_queue.testing import Json, Reply, first_message_text, json_reply
from tests.e2e.fleet import Fleet, Held
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ENVELOPE: Json = {"status": "ok", "claims": [], "confidence": 0.9, "needs": None, "problem": None}
WRONG = {"statement": "It is 324 m high.", "why": "It is 330 m high since 2022."}
PASSES: Json = {"verdict": "PASS", "wrong": [], "why": "Held against the survey."}
OBJECTS: Json = {"verdict": "VETO", "wrong": [WRONG], "why": "Held against the survey."}


@dataclass
class Script:
    """The writer believes a guide and follows corrections. The checker gives the test's verdicts,
    and repeats the last.
    """

    checks: list[Json] = field(default_factory=lambda: [OBJECTS, PASSES])
    held: list[Held] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    checked: list[Json] = field(default_factory=list)

    def __call__(self, request: Json) -> Reply:
        said = first_message_text(request)
        if "Check the facts of an answer" not in said:
            self.written.append(said)
            metres = "330" if "since 2022" in said else "324"
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
        return json_reply(answer, stall=held.go)


@pytest.fixture
def script(fleet: Fleet) -> Iterator[Script]:
    before, fleet.server.script = fleet.server.script, Script()
    yield fleet.server.script
    fleet.server.script = before


def submit(fleet: Fleet, approvals: Approvals = NOBODY_THERE) -> JobId:
    asked = Request(
        "How high is it?",
        mode=Mode.SINGLE,
        gates=Gates(fact_checker="reviewer"),
        approvals=approvals,
    )
    return fleet.jobs.submit(asked)


def test_a_veto_returns_statement_and_reason_and_the_revision_is_checked_again(
    fleet: Fleet, script: Script
) -> None:
    result = fleet.ends_well(submit(fleet))

    assert "It is 330 m high." in str(result.answer)
    assert '"It is 324 m high." is wrong: It is 330 m high since 2022.' in script.written[1]
    assert len(script.checked) == 2
    assert result.gates is not None
    looks = [
        (len(one["wrong"]), one["sent_back"], one["problem"]) for one in result.gates["fact_checks"]
    ]
    assert looks == [(1, True, None), (0, False, None)]
    checks = [one for one in result.handoffs if one["step_id"] == "fact_gate"]
    assert [(one["handoff_id"], one["assigned_to"]) for one in checks] == [
        ("fact_gate.1", "reviewer"),
        ("fact_gate.2", "reviewer"),
    ]


def test_a_fact_checker_has_its_specialists_tools_and_sees_the_answer_as_data(
    fleet: Fleet, script: Script
) -> None:
    fleet.ends_well(submit(fleet))
    said = first_message_text(script.checked[1])

    assert {tool["name"] for tool in script.checked[1]["tools"]} <= {
        "search_documents",
        "read_document",
    }
    assert '<result step="answer" status="ok"> <data>{"output": "It is 330 m high."' in said
    assert "turned down" not in said
    assert "since 2022" not in said


def test_an_answer_that_stays_wrong_leaves_after_the_last_veto_and_says_so(
    fleet: Fleet, script: Script
) -> None:
    script.checks = [OBJECTS]
    result = fleet.ends(submit(fleet))

    assert result.status is JobStatus.PARTIAL
    assert len(script.checked) == len(script.written) == MOST_GATE_ROUNDS + 1
    assert 'The fact-checker: "It is 324 m high." is wrong: It is 330 m high since 2022.' in str(
        result.answer
    )


def test_after_a_failed_fact_check_the_answer_is_partial_and_unchecked(
    fleet: Fleet, script: Script
) -> None:
    script.checks = [{"fails": True}]
    result = fleet.ends(submit(fleet))

    assert result.status is JobStatus.PARTIAL
    assert "It is 324 m high." in str(result.answer)
    assert (
        "The facts of the answer were not checked: the fact-checker failed (The archive is closed.)."
        in result.notes
    )


def test_a_person_is_asked_about_an_answer_that_was_checked(fleet: Fleet, script: Script) -> None:
    job_id = submit(fleet, Approvals(what=(ApprovalOf.ANSWER,)))
    wait_until(
        lambda: fleet.jobs.standing(job_id).approval == ApprovalOf.ANSWER,
        timeout_s=30,
        what="the question",
    )
    assert len(script.checked) == 2
    fleet.jobs.approve(job_id)

    fleet.ends_well(job_id)


def test_a_worker_killed_during_a_check_repeats_only_that_call_elsewhere(
    fleet: Fleet, script: Script
) -> None:
    script.checks, script.held = [PASSES], [Held()]
    first = script.held[0]
    job_id = submit(fleet)
    assert first.arrived.wait(30)
    fleet.kill(fleet.pid_of(job_id, "fact_gate.1"))

    fleet.ends_well(job_id)
    assert (len(script.checked), len(script.written)) == (2, 1)
    first.go.set()


def test_a_supervisor_killed_while_a_check_is_out_changes_nothing(
    fleet: Fleet, script: Script
) -> None:
    script.checks, script.held = [PASSES], [Held()]
    first = script.held[0]
    job_id = submit(fleet)
    assert first.arrived.wait(30)
    for name, pid in fleet.system.processes.pids().items():
        if name == "s1":
            fleet.kill(pid)
    first.go.set()

    fleet.ends_well(job_id)
    assert len(script.checked) == 1


def test_an_unserved_fact_checker_is_refused_before_any_cost(fleet: Fleet, script: Script) -> None:
    with pytest.raises(
        UserError,
        match=r"^fact_checker: no worker serves or has served 'revewer': did you mean reviewer",
    ):
        fleet.jobs.submit(Request("How high is it?", gates=Gates(fact_checker="revewer")))

    assert script.written == []
