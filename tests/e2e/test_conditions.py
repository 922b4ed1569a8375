"""Conditions on real processes: each decision is in the journal, and survives the kill of any
process.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.types.events import ConditionsChecked, HandoffIssued, JobStatus
from handoff_queue.supervisor.client.client import Request
from handoff_queue.supervisor.workflows import Items, read_workflow
from tests.e2e.fleet import ENVELOPE, Fleet

pytestmark = pytest.mark.slow

STEPS = """
description: Sorts complaints, and answers them by their kind.
review: false
key: no
steps:
  - {id: triage, specialist: generalist, for_each: rows, task: "Do triage-{no} of branches."}
  - {id: refund, specialist: generalist, for_each: rows, depends_on: [triage],
     when: 'triage.output.kind == "refund" and item.amount <= 500',
     task: "Do refund-{no} of branches."}
  - {id: explain, specialist: generalist, for_each: rows, depends_on: [triage],
     when: 'triage.output.kind == "question"', task: "Do explain-{no} of branches."}
  - {id: report, specialist: generalist, depends_on: [refund, explain],
     task: "Do report of branches."}
"""
KINDS = {"a1": ("refund", "20"), "a2": ("question", "7"), "a3": ("refund", "900"), "a4": ("", "1")}


def test_rows_take_their_branch_though_supervisors_are_killed_while_it_is_decided(
    fleet: Fleet, tmp_path: Path
) -> None:
    (tmp_path / "branches.yaml").write_text(STEPS)
    for no, (kind, _) in KINDS.items():
        output = {"kind": kind} if kind else {"colour": "red"}
        fleet.model.envelopes["branches", f"triage-{no}"] = {**ENVELOPE, "output": output}
    held = [fleet.model.hold("branches", f"triage-{no}") for no in KINDS]
    rows = tuple({"no": no, "amount": amount} for no, (_, amount) in KINDS.items())
    request = Request(
        "Answer them.",
        workflow=read_workflow(str(tmp_path / "branches.yaml")),
        items=Items(rows=rows),
    )
    job_id = fleet.jobs.submit(request)
    for one in held:
        one.go.set()
        for name, pid in fleet.system.processes.pids().items():
            if name.startswith("s"):
                fleet.kill(pid)
    result = fleet.ends(job_id, within_s=120)

    begun = {one.step_id for one in fleet.issued(job_id)}
    assert begun >= {"refund_0001", "explain_0002", "report"}
    assert begun.isdisjoint({"refund_0002", "explain_0001", "refund_0003", "explain_0003"})
    rows_by_step = {(row.step, row.key): row for row in fleet.jobs.rows(job_id, "refund")}
    assert [row.status for row in rows_by_step.values()] == ["ok", "skipped", "skipped", "failed"]
    assert "has no field 'kind' (there are: colour)" in (rows_by_step["refund", "a4"].why or "")
    assert result.status is JobStatus.PARTIAL
    events = [one.event for one in fleet.jobs.events(job_id, follow=False)]
    checked = [one for event in events if isinstance(event, ConditionsChecked) for one in event.met]
    assert len(checked) == len({*checked}), "each condition was decided once"
    assert sum(isinstance(event, HandoffIssued) for event in events) == len(begun)
