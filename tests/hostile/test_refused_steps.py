"""A step names a specialist whose queue no Redis user of the installation may use. The step fails
with a reason, and the job goes on: the supervisor never writes to such a queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from handoff_queue.shared.store import keys
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from tests.hostile.redis_with_users import Server
from tests.supervisor.shell import SETTINGS, Shell, running_shell
from tests.supervisor.workflows.workflow_files import UNREVIEWED, make_workflow

REASON = "Redis does not let the supervisors use the queue of nobody"
STEPS = """
    id: a, specialist: writer, task: "one"
    id: b, specialist: nobody, task: "two"
"""
RIGHTS = ("~nobody", "~handoff:*:nobody", "~handoff:*:nobody/*", "~handoff:fair:nobody:*")


@dataclass(frozen=True)
class Installation:
    """A supervisor with its Redis user, and a person with all rights."""

    supervisor: Shell
    person: Shell
    admin: Any

    def submit(self, folder: Path) -> JobId:
        """Submit a job with a step of a known and a step of an unknown specialist."""
        workflow = make_workflow(folder, STEPS, UNREVIEWED)
        job_id = self.person.jobs.submit(Request("Compare them", workflow=workflow))
        self.supervisor.advance(job_id)
        return job_id

    def set_rights(self, server: Server, *rights: str) -> None:
        """Give the supervisor its usual rights and these rights."""
        rules = (*server.users.rules["supervisor"], *rights)
        self.admin.execute_command("ACL", "SETUSER", "supervisor", "clearselectors", *rules)

    def status_of(self, job_id: JobId) -> JobStatus:
        (info,) = self.person.store.jobs.read([job_id])
        return info.status


@pytest.fixture
def installation(server: Server) -> Iterator[Installation]:
    with ExitStack() as parts:
        admin = parts.enter_context(redis.Redis.from_url(server.address))
        admin.flushdb()
        url = server.users.build_url("supervisor", server.address)
        supervisor = parts.enter_context(running_shell(url))
        person = parts.enter_context(running_shell(server.address, "writer"))
        installation = Installation(supervisor, person, admin)
        yield installation
        installation.set_rights(server)
        admin.flushdb()


def reasons_of(installation: Installation, job_id: JobId) -> str:
    """Return the gaps and the notes of the job's result."""
    result = installation.person.jobs.result(job_id)
    return f"{result.gaps} {result.notes}"


def test_a_step_of_a_refused_queue_fails_with_the_reason_and_other_steps_run(
    installation: Installation, tmp_path: Path
) -> None:
    job_id = installation.submit(tmp_path)

    assert [handoff.step_id for handoff in installation.supervisor.open(job_id)] == ["a"]
    installation.supervisor.finish_all(job_id)
    assert installation.status_of(job_id) is JobStatus.PARTIAL
    assert REASON in reasons_of(installation, job_id)
    assert installation.person.store.dead_letters.list_newest() == []


def test_a_client_refuses_a_step_of_a_refused_queue_with_the_closest_name(
    installation: Installation, server: Server, tmp_path: Path
) -> None:
    steps = 'id: a, specialist: writr, task: "one"'
    with server.store("client") as store:
        jobs = Client(store, SETTINGS)
        with pytest.raises(
            UserError,
            match=(
                r"no worker serves 'writr', and the Redis users of this installation may not use"
                r" its queue: did you mean writer\?$"
            ),
        ):
            jobs.submit(Request("One", workflow=make_workflow(tmp_path, steps, UNREVIEWED)))
        with pytest.raises(UserError, match=r"^specialists: no worker serves 'nobody'"):
            jobs.submit(Request("One", mode=Mode.SINGLE, specialists=("nobody",)))


def test_a_retry_runs_the_step_after_the_user_got_the_rights(
    installation: Installation, server: Server, tmp_path: Path
) -> None:
    job_id = installation.submit(tmp_path)
    installation.supervisor.finish_all(job_id)
    installation.set_rights(server, *RIGHTS)

    installation.person.jobs.retry(job_id)
    installation.supervisor.advance(job_id)

    assert [handoff.step_id for handoff in installation.supervisor.open(job_id)] == ["b"]


def test_a_lost_message_of_a_queue_that_was_taken_away_fails_its_step(
    installation: Installation, server: Server, tmp_path: Path
) -> None:
    installation.set_rights(server, *RIGHTS)
    job_id = installation.submit(tmp_path)
    assert len(installation.supervisor.open(job_id)) == 2
    installation.set_rights(server)
    handoff_id = HandoffId("b.1")
    installation.admin.hset(keys.handoff(job_id, "nobody", handoff_id), "lost", 1)
    later_process = installation.supervisor.another()

    later_process.advance(job_id, [handoff_id])
    later_process.finish_all(job_id)
    later_process.close()

    assert REASON in reasons_of(installation, job_id)
    assert installation.person.store.dead_letters.list_newest() == []


def test_a_job_that_may_use_only_a_refused_queue_fails_with_the_reason(
    installation: Installation,
) -> None:
    request = Request("Compare them", mode=Mode.SINGLE, specialists=("nobody",))
    job_id = installation.person.jobs.submit(request)

    installation.supervisor.advance(job_id)

    assert installation.status_of(job_id) is JobStatus.FAILED
    assert REASON in reasons_of(installation, job_id)
