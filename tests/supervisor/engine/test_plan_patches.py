"""A patch of the plan is applied once, after every crash and with concurrent supervisors."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from handoff_queue.shared.broker.attempt_outcome import AttemptEnd
from handoff_queue.shared.types.events import HandoffIssued
from handoff_queue.shared.types.handoff import AgentHandoff, ResultStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.lifecycle.reduce import fold
from tests.supervisor.shell import Shell


def job_with_unapplied_patch(shell: Shell) -> JobId:
    """Return a job whose replanner has answered. Its supervisor died before it used the answer."""
    job_id = shell.jobs.submit(Request("Compare Qdrant and Milvus", mode=Mode.ADAPTIVE))
    shell.advance(job_id)
    for event in shell.open(job_id):
        shell.do(job_id, event, ResultStatus.OK)
    with ExitStack() as taken:
        for _ in range(4):
            taken.enter_context(shell.role_runner.slot())
        shell.advance(job_id)
    issued = next(
        event
        for event in shell.events(job_id)
        if isinstance(event, HandoffIssued) and event.assigned_to == "replanner"
    )
    text = shell.store.payloads.get(job_id, [issued.handoff.digest])[issued.handoff.digest]
    state = fold(job_id, None, shell.store.journal.read(job_id))
    assert state is not None
    other = shell.another()
    assert (
        other.role_runner.claim_and_run(state, AgentHandoff.from_json(text), text).end
        is AttemptEnd.FINISHED
    )
    other.close()
    assert shell.kinds(job_id)[-1] == "handoff_finished"
    return job_id


def test_the_next_evaluation_applies_the_patch(shell: Shell) -> None:
    job_id = job_with_unapplied_patch(shell)
    shell.advance(job_id)
    shell.advance(job_id)

    assert shell.kinds(job_id).count("plan_patched") == 1


def test_concurrent_supervisors_apply_a_patch_once(shell: Shell) -> None:
    job_id, start = job_with_unapplied_patch(shell), threading.Barrier(4)
    others = [shell.another() for _ in range(4)]

    def advance(supervisor: Shell) -> None:
        start.wait()
        supervisor.advance(job_id)
        supervisor.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(advance, others))

    assert shell.kinds(job_id).count("plan_patched") == 1
