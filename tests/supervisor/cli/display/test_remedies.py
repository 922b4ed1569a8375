"""The command line adds its command to a reason to wait. Other interfaces show the action alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.store.pauses import Pause
from handoff_queue.shared.store.presence import Presence
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.cli.display.remedies import describe_with_command
from handoff_queue.supervisor.client.waiting_reasons import find_waiting_reasons

JOB = JobInfo(JobId("j-0123456789ab"), JobStatus.WAITING, 1, "What is HNSW?", 0.0, cancelled=False)
QUEUED = replace(JOB, status=JobStatus.QUEUED)
SERVED = Presence(frozenset({"supervisor", "writer"}), {}, {})
OPEN = {JOB.job_id: {HandoffId("a.1"): "poet"}}
PAUSED = Presence(SERVED.queues, OPEN, {"poet": Pause(at=1.0, reason="")})


@pytest.mark.parametrize(
    ("job", "presence", "action", "command"),
    [
        (replace(QUEUED, specialists=("poet",)), SERVED, "start one", "handoff worker poet"),
        (QUEUED, replace(SERVED, queues=frozenset({"supervisor"})), "start one", "worker --all"),
        (JOB, replace(SERVED, queues=frozenset({"writer"})), "start one", "handoff supervisor"),
        (replace(JOB, status=JobStatus.RUNNING), PAUSED, "unpause it", "handoff unpause poet"),
        (replace(JOB, approval="plan"), SERVED, "approve it", "handoff approve j-0123456789ab"),
        (
            replace(JOB, approval="tools", calls_to_approve=("send_mail",)),
            SERVED,
            "approve the call",
            "handoff reject j-0123456789ab --question N",
        ),
        (
            replace(
                JOB, asks="its budget is spent", limits_to_raise=("max_tokens", "max_microusd")
            ),
            SERVED,
            "cancel the job",
            "handoff retry j-0123456789ab --max-tokens N or --max-usd X`, or end it",
        ),
        (
            replace(JOB, asks="the budget of the day is spent"),
            SERVED,
            "cancel the job",
            "handoff retry j-0123456789ab`, or end it",
        ),
    ],
)
def test_a_reason_names_the_action_and_only_the_command_line_names_the_command(
    job: JobInfo, presence: Presence, action: str, command: str
) -> None:
    (reason,) = find_waiting_reasons(job, presence)

    assert action in str(reason)
    assert "handoff" not in str(reason)
    assert command in describe_with_command(reason)
