"""Conditions of steps are decided once, although supervisors are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.types.events import ConditionsChecked, HandoffIssued, JobStatus
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.workflows import Items, read_workflow
from tests.e2e.fleet import ENVELOPE, Fleet

pytestmark = pytest.mark.slow

STEPS = """
description: Sorts complaints, and answers them by their kind.
review: false
key: number
steps:
  - {id: triage, specialist: generalist, for_each: rows, task: "Do triage-{number} of branches."}
  - {id: refund, specialist: generalist, for_each: rows, depends_on: [triage],
     when: 'triage.output.kind == "refund" and item.amount <= 500',
     task: "Do refund-{number} of branches."}
  - {id: explain, specialist: generalist, for_each: rows, depends_on: [triage],
     when: 'triage.output.kind == "question"', task: "Do explain-{number} of branches."}
  - {id: report, specialist: generalist, depends_on: [refund, explain],
     task: "Do report of branches."}
"""
KINDS = {"a1": ("refund", "20"), "a2": ("question", "7"), "a3": ("refund", "900"), "a4": ("", "1")}


def test_each_row_takes_its_branch_although_supervisors_are_killed_during_the_decision(
    fleet: Fleet, tmp_path: Path
) -> None:
    (tmp_path / "branches.yaml").write_text(STEPS)
    for number, (kind, _) in KINDS.items():
        output = {"kind": kind} if kind else {"colour": "red"}
        fleet.model.envelopes["branches", f"triage-{number}"] = {**ENVELOPE, "output": output}
    held = [fleet.model.hold("branches", f"triage-{number}") for number in KINDS]
    rows = tuple({"number": number, "amount": amount} for number, (_, amount) in KINDS.items())
    request = Request(
        "Answer them.",
        workflow=read_workflow(str(tmp_path / "branches.yaml")),
        items=Items(rows=rows),
    )
    job_id = fleet.jobs.submit(request)
    for call in held:
        call.release.set()
        for name, pid in fleet.system.processes.get_pids().items():
            if name.startswith("s"):
                fleet.kill(pid)
    result = fleet.wait_for_end(job_id, within_s=120)

    issued_steps = {event.step_id for event in fleet.issued(job_id)}
    assert issued_steps >= {"refund_0001", "explain_0002", "report"}
    assert issued_steps.isdisjoint({"refund_0002", "explain_0001", "refund_0003", "explain_0003"})
    rows_by_step = {(row.step, row.key): row for row in fleet.jobs.rows(job_id, "refund")}
    assert [row.status for row in rows_by_step.values()] == ["ok", "skipped", "skipped", "failed"]
    assert "has no field 'kind' (known: colour)" in (rows_by_step["refund", "a4"].why or "")
    assert result.status is JobStatus.PARTIAL
    events = [recorded.event for recorded in fleet.jobs.events(job_id, follow=False)]
    decided = [
        condition
        for event in events
        if isinstance(event, ConditionsChecked)
        for condition in event.met
    ]
    assert len(decided) == len({*decided}), "each condition was decided once"
    assert sum(isinstance(event, HandoffIssued) for event in events) == len(issued_steps)
