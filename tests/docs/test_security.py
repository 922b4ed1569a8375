"""The ACL line of docs/security-measures.md is enough for all that the store and its clients do,
and for no more than it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.broker.message_publisher import TaskMessage, publish_each
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.fair_queue import MEMBER_HEADER
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.errors import StoreUnavailable
from handoff_queue.shared.types.events import JobEnded, JobStatus
from handoff_queue.shared.types.ids import create_job_id
from handoff_queue.shared.types.presence import Announcement
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.handoff_publishing import SHOWN_CHARS
from handoff_queue.supervisor.client.request import Request
from tests.docs.pages import sections, text_of
from tests.doubles.handoffs import a_spec
from tests.doubles.jobs import a_job, finish, granted_claim, issue, model_reply
from tests.doubles.sweep_states import QUEUE

SECTIONS = sections(text_of("security-measures"))
PASSWORD = "of-this-test"


@pytest.fixture
def url_of_the_user(redis_url: str) -> Iterator[str]:
    """The same Redis, as the user of the page."""
    line = re.search(r"^user handoff on >PASSWORD (.+)$", SECTIONS["Redis"], re.MULTILINE)
    assert line
    parts = urlsplit(redis_url)
    with redis.Redis.from_url(redis_url) as everything:
        everything.execute_command(
            "ACL", "SETUSER", "handoff", "reset", "on", f">{PASSWORD}", *line[1].split()
        )
        yield urlunsplit(parts._replace(netloc=f"handoff:{PASSWORD}@{parts.hostname}:{parts.port}"))
        everything.execute_command("ACL", "DELUSER", "handoff")


def test_the_user_can_do_all_that_a_client_does(url_of_the_user: str) -> None:
    jobs = client.connect(url_of_the_user, Settings(offline=True))
    job_id = jobs.submit(Request("Where is order A-1042?"))

    assert [entry.event.type for entry in jobs.events(job_id, follow=False)] == ["job_submitted"]
    assert jobs.cancel(job_id)
    jobs.store.journal.append(
        job_id, JobEnded(status=JobStatus.CANCELLED), {"status": JobStatus.CANCELLED.value}
    )
    assert jobs.result(job_id, wait_s=1).status is JobStatus.CANCELLED
    assert [entry.job_id for entry in jobs.newest()] == [job_id]
    jobs.delete(job_id)


def test_the_user_can_do_all_that_workers_and_supervisors_do(url_of_the_user: str) -> None:
    store = open_store(url_of_the_user, Settings())
    job_id = a_job(store)
    issue(store, job_id, "a.1")
    claim = granted_claim(store, job_id, "a.1")
    claim.checkpoint(model_reply())
    claim.renew()
    finish(claim)
    store.presence.announce(
        Announcement(worker="w", specialists=(a_spec(),), slots=1, model="offline")
    )
    store.presence.announce_supervisor("s")
    store.dead_letters.add("researcher", "garbage", "{")
    store.due_work.sweep()

    assert store.presence.read_announcements()
    assert store.presence.read_presence([job_id]).queues == {a_spec().name, "supervisor"}
    assert store.dead_letters.list_newest()
    store.connection.close()


def test_the_user_can_do_all_that_queues_need_also_of_a_redis_that_knows_no_script(
    url_of_the_user: str, store: Store
) -> None:
    app = make_app("test", url_of_the_user, Settings(), [QUEUE])
    steps = [{MEMBER_HEADER: f"{create_job_id()}/{step}"} for step in ("a.1", "b.1", "c.1")]

    def nothing_is_known() -> None:
        store.connection.redis.script_flush()

    nothing_is_known()
    app.send_task("specialist.x", queue=QUEUE, headers=steps[0], ignore_result=True)
    nothing_is_known()
    publish_each(
        app,
        [
            TaskMessage("specialist.x", step[MEMBER_HEADER], QUEUE, (), "()", step[MEMBER_HEADER])
            for step in steps[1:]
        ],
    )
    nothing_is_known()
    with app.connection_for_read() as connection, connection.SimpleQueue(QUEUE) as queue:
        for _ in steps:
            queue.get(timeout=5).requeue()
        queue.get(timeout=5)
        nothing_is_known()

    assert app.control.purge() == len(steps), "the one that was not acknowledged is back"
    app.close()


def test_the_user_can_use_a_database_other_than_the_first(url_of_the_user: str) -> None:
    url = urlunsplit(urlsplit(url_of_the_user)._replace(path="/15"))
    jobs = client.connect(url, Settings(offline=True))

    job_id = jobs.submit(Request("Where is order A-1042?"))

    assert [job.job_id for job in jobs.newest()] == [job_id]
    app = make_app("test", url, Settings(), [QUEUE])
    app.send_task("specialist.x", queue=QUEUE, ignore_result=True)
    assert app.control.purge() == 1
    app.close()


def test_the_acl_line_works_on_every_supported_redis() -> None:
    """Selectors and key permissions came with Redis 7.0. Its categories differ: SELECT and
    CLIENT are in others than in 6.2.
    """
    line = re.search(r"^user handoff (.+)$", SECTIONS["Redis"], re.MULTILINE)
    assert line

    assert not re.search(r"[()%]", line[1])
    assert "+select" in line[1].split()


def test_the_user_can_empty_nothing_and_list_nothing(url_of_the_user: str) -> None:
    with redis.Redis.from_url(url_of_the_user) as limited:
        for command in (
            ["FLUSHALL"],
            ["FLUSHDB"],
            ["KEYS", "*"],
            ["CONFIG", "GET", "requirepass"],
            ["ACL", "LIST"],
            ["SHUTDOWN"],
        ):
            with pytest.raises(redis.exceptions.NoPermissionError):
                limited.execute_command(*command)


def test_a_wrong_password_is_refused_in_one_line(url_of_the_user: str) -> None:
    jobs = client.connect(url_of_the_user.replace(PASSWORD, "another"), Settings(offline=True))

    with pytest.raises(StoreUnavailable, match="refuses the password"):
        jobs.newest()


def test_the_page_says_how_much_of_a_task_others_see() -> None:
    assert f"first {SHOWN_CHARS} characters" in " ".join(SECTIONS["Secrets"].split())
