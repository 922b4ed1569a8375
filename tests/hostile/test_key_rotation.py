"""Keys rotate while jobs run. No process starts again, no job fails, and no message is refused."""

from __future__ import annotations

import json
import os
import signal

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.trust.event_signatures import read_stamp, without_signature
from handoff_queue.shared.trust.key_files import find_keyring_file, read_keyring, rotate_key
from handoff_queue.shared.trust.keyring import KEY_ID_CHARS
from handoff_queue.shared.types.errors import UntrustedMessage
from handoff_queue.shared.types.events import HandoffIssued, JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.workflows import parse_workflow
from tests.hostile.signed_system import (
    ANALYST,
    DOCUMENTS,
    GENERALIST,
    SUPERVISOR,
    SignedSystem,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
JOBS_AT_ONCE = 4


def keys_in(signed: SignedSystem, job_id: JobId) -> dict[str, str]:
    """Return the key that signed the newest events of each kind."""
    signing: dict[str, str] = {}
    for recorded in signed.store.journal.read(job_id):
        _, text = without_signature(recorded.raw)
        if text:
            signing[recorded.event.type] = read_stamp(text).signature[:KEY_ID_CHARS]
    return signing


def run(signed: SignedSystem, count: int) -> list[JobId]:
    jobs = [signed.submit() for _ in range(count)]
    for job_id in jobs:
        assert signed.jobs.wait(job_id, 60) is JobStatus.OK
    return jobs


def wait_for_newest_key(signed: SignedSystem) -> None:
    """Wait until the generalist's worker has announced itself with its newest key. An announcement
    stays for 15 s, and its key is valid only until the second rotation.
    """
    identity = read_keyring(find_keyring_file(signed.keys)).identities[f"worker-{GENERALIST}"]
    newest = identity.keys[0].id
    redis = signed.store.connection.redis

    def are_newest() -> bool:
        announced = redis.mget(list(redis.scan_iter(keys.worker("*", "*"))))
        texts = [text.decode() for text in announced if text and GENERALIST.encode() in text]
        return bool(texts) and all(newest in text for text in texts)

    wait_until(are_newest, expected="an announcement with the newest key")


def test_jobs_complete_while_the_keys_of_a_supervisor_and_a_worker_rotate(
    signed: SignedSystem,
) -> None:
    wait_for_newest_key(signed)
    running = [signed.submit() for _ in range(JOBS_AT_ONCE)]
    supervisor = rotate_key(signed.keys, SUPERVISOR)
    running += [signed.submit() for _ in range(JOBS_AT_ONCE)]
    worker = rotate_key(signed.keys, f"worker-{GENERALIST}")
    running += [signed.submit() for _ in range(JOBS_AT_ONCE)]
    for job_id in running:
        assert signed.jobs.wait(job_id, 60) is JobStatus.OK

    def uses_both_new_keys() -> bool:
        (job_id,) = run(signed, 1)
        signing = keys_in(signed, job_id)
        return (signing["job_ended"], signing["handoff_finished"]) == (supervisor.id, worker.id)

    wait_until(uses_both_new_keys, expected="signatures with both new keys")
    assert signed.letters() == []


def test_a_job_that_began_before_a_rotation_ends_after_it(signed: SignedSystem) -> None:
    wait_for_newest_key(signed)
    signed.jobs.pause(GENERALIST)
    job_id = signed.submit()

    def is_issued() -> bool:
        events = [recorded.event for recorded in signed.store.journal.read(job_id)]
        return any(isinstance(event, HandoffIssued) and event.group for event in events)

    wait_until(is_issued, expected="the handoff")
    for identity in (SUPERVISOR, f"worker-{GENERALIST}", "client"):
        rotate_key(signed.keys, identity)
    signed.jobs.unpause(GENERALIST)
    assert signed.jobs.wait(job_id, 60) is JobStatus.OK
    assert signed.letters() == []
    assert signed.jobs.result(job_id).answer


def test_a_job_whose_decisions_lose_their_key_ends_and_repeats_no_step(
    signed: SignedSystem,
) -> None:
    steps = parse_workflow(
        json.dumps(
            {
                "description": "Two steps.",
                "steps": [
                    {"id": "first", "specialist": GENERALIST, "task": "Read."},
                    {"id": "second", "specialist": ANALYST, "task": "x", "depends_on": ["first"]},
                ],
            }
        )
    )
    signed.jobs.pause(ANALYST)
    job_id = signed.jobs.submit(
        Request("What is Redis?", mode=Mode.PIPELINE, workflow=steps, documents=DOCUMENTS)
    )

    def list_steps() -> list[str]:
        events = [recorded.event for recorded in signed.store.journal.read(job_id)]
        return [event.step_id for event in events if isinstance(event, HandoffIssued)]

    wait_until(lambda: "second" in list_steps(), expected="the second step")
    for _ in range(2):
        rotate_key(signed.keys, SUPERVISOR)
    os.kill(signed.processes.get_pids()[SUPERVISOR], signal.SIGKILL)
    signed.jobs.unpause(ANALYST)

    assert signed.jobs.wait(job_id, 60) is JobStatus.FAILED
    assert list_steps() == ["first", "second"]


def test_a_key_that_was_rotated_twice_is_refused(signed: SignedSystem) -> None:
    stolen = signed.trust_of("console")  # unlike a worker, it has made no announcement
    signature = stolen.sign_for((), "start")
    for _ in range(2):
        rotate_key(signed.keys, "console")
    with pytest.raises(UntrustedMessage, match="unknown key"):
        signed.trust_of("supervisor").find_signer(signature, "start")
