"""Every action of a user names its actor: in the journal of the job, or in the audit stream."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import get_args

import pytest
from pydantic import ValidationError

from handoff_queue.shared.local.child_process_restarts import Processes
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.audit import MAX_ACTOR_CHARS, Actor, AuditAction
from handoff_queue.shared.types.errors import Conflict, UserError
from handoff_queue.shared.types.events import (
    Approved,
    CancelRequested,
    Event,
    JobStatus,
    JobSubmitted,
)
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.async_client import connect_async
from handoff_queue.supervisor.client.audit import find_actions
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from tests.doubles.handoffs import JOB
from tests.golden.test_journals import JOURNALS, read
from tests.supervisor.shell import Shell, running_shell

ANN = Actor(name="ann", via="api", address="192.0.2.7", token="5d1f0c2a9e77")
BOB = Actor(name="bob", via="console")


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    with running_shell(redis_url, "researcher", "writer") as supervisor:
        yield supervisor


def end_job(jobs: Client, job_id: JobId) -> None:
    jobs.store.connection.redis.hset(keys.job(job_id), "status", JobStatus.OK.value)


def actions(jobs: Client, job_id: JobId | None = None) -> list[tuple[str, str, str, Actor | None]]:
    return [
        (entry.action.value, entry.subject, entry.detail, entry.actor)
        for entry in jobs.audit(job_id)
    ]


def test_the_journal_of_a_job_names_the_actor_of_each_action(shell: Shell) -> None:
    ann, bob = shell.jobs.acting_as(ANN), shell.jobs.acting_as(BOB)
    request = Request("Compare.", approvals=Approvals(what=(ApprovalOf.PLAN,)))
    job_id = ann.submit(request)
    shell.advance(job_id)
    bob.reject(job_id, "shorter")
    shell.advance(job_id)
    ann.approve(job_id)
    bob.cancel(job_id)
    shell.advance(job_id)
    ann.retry(job_id)

    assert actions(shell.jobs, job_id) == [
        ("submit", job_id, "", ANN),
        ("reject", job_id, "plan", BOB),
        ("approve", job_id, "plan", ANN),
        ("cancel", job_id, "", BOB),
        ("retry", job_id, "", ANN),
    ]
    assert actions(shell.jobs) == []


def test_the_audit_has_only_the_answer_that_counted_of_two_at_the_same_time(shell: Shell) -> None:
    request = Request("Compare.", approvals=Approvals(what=(ApprovalOf.PLAN,)))
    job_id = shell.jobs.submit(request)
    shell.advance(job_id)
    asked = shell.jobs.result(job_id).approvals[0]["version"]
    shell.jobs.acting_as(ANN).approve(job_id)
    shell.store.journal.append(job_id, Approved(asked=asked, actor=BOB))

    assert actions(shell.jobs, job_id)[1:] == [("approve", job_id, "plan", ANN)]


@pytest.mark.parametrize(
    "kind",
    [kind for kind in get_args(Event) if "actor" in kind.model_fields],
    ids=lambda kind: kind.__name__,
)
def test_every_event_with_an_actor_is_an_action_of_that_actor(kind: type[Event]) -> None:
    count = 0
    for path in JOURNALS:
        for recorded in read(path):
            event = recorded.event
            if isinstance(event, kind) and getattr(event, "actor", None):
                (entry,) = find_actions(JobId(JOB), [recorded])
                assert entry.actor == getattr(event, "actor", None)
                count += 1

    assert count > 0


def test_events_of_the_clock_and_of_a_parent_job_are_not_actions(jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare."))
    jobs.store.journal.append(job_id, Approved(asked=1, by="timeout"))
    jobs.store.journal.append(job_id, CancelRequested(by="j-0123456789ab"))

    assert actions(jobs, job_id) == [("submit", job_id, "", None)]


def test_a_client_without_an_actor_writes_none(jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare."))
    jobs.cancel(job_id)
    log = jobs.store.connection.redis.lrange(keys.log(job_id), 0, -1)

    assert [b"actor" in entry for entry in log] == [False, False]
    assert actions(jobs, job_id) == [("submit", job_id, "", None), ("cancel", job_id, "", None)]


def test_a_repeated_submission_is_the_same_job_and_keeps_the_first_actor(jobs: Client) -> None:
    request = Request("Compare.", idempotency_key="k1")
    ann, bob = jobs.acting_as(ANN), jobs.acting_as(BOB)
    job_id = ann.submit(request)

    assert bob.submit(request) == jobs.submit(request) == job_id
    assert list(bob.submit_each([request, request])) == [job_id, job_id]
    assert bob.first_clash([request, request]) is None
    assert actions(jobs, job_id) == [("submit", job_id, "", ANN)]


def test_another_request_with_the_same_key_is_refused_for_every_actor(jobs: Client) -> None:
    jobs.acting_as(ANN).submit(Request("Compare.", idempotency_key="k1"))
    other = Request("Compare something else.", idempotency_key="k1")

    for someone in (jobs, jobs.acting_as(ANN), jobs.acting_as(BOB)):
        with pytest.raises(Conflict):
            someone.submit(other)


def test_the_deletion_of_a_job_leaves_its_entry(jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare."))
    with pytest.raises(UserError, match="has not ended"):
        jobs.acting_as(ANN).delete(job_id)
    assert actions(jobs) == []
    end_job(jobs, job_id)
    jobs.acting_as(ANN).delete(job_id)

    assert actions(jobs) == [("delete", job_id, "", ANN)]
    assert not jobs.store.connection.redis.exists(keys.job(job_id))


def test_pauses_are_in_the_stream_with_their_reasons(shell: Shell) -> None:
    ann = shell.jobs.acting_as(ANN)
    ann.pause("researcher", "cites a site\nthat is down")
    ann.unpause("researcher")
    ann.unpause("researcher")
    with pytest.raises(UserError):
        ann.pause("reseacher")

    assert actions(shell.jobs) == [
        ("pause", "researcher", "cites a site that is down", ANN),
        ("unpause", "researcher", "", ANN),
    ]


def test_dead_letters_that_are_requeued_or_dropped_are_in_the_stream(jobs: Client) -> None:
    ann, letters = jobs.acting_as(ANN), jobs.store.dead_letters
    job_id = jobs.submit(Request("Compare."))
    for body in (job_id, "nonsense", "more nonsense"):
        letters.add("writer", "it is a test", body)
    newest, middle, oldest = letters.list_newest()
    ann.requeue_dead(oldest)
    assert ann.drop_dead(newest)
    assert not ann.drop_dead(newest)
    assert ann.drop_all_dead() == 1

    assert [action for action in actions(jobs) if action[1] != newest.id] == [
        ("requeue", oldest.id, "to writer", ANN),
        ("drop", "all dead letters", "", ANN),
    ]
    assert ("drop", newest.id, "of writer", ANN) in actions(jobs)
    assert middle.id not in str(actions(jobs))


def test_a_refused_action_is_in_the_stream_as_refused(jobs: Client) -> None:
    jobs.store.dead_letters.add("writer", "a test", "no handoff")
    (letter,) = jobs.store.dead_letters.list_newest()

    with pytest.raises(UserError, match="holds no handoff"):
        jobs.requeue_dead(letter)

    refused = jobs.audit()[-1]
    assert (refused.action, refused.subject) == (AuditAction.REQUEUE, letter.id)
    assert refused.detail.startswith(f"refused: letter {letter.id} holds no handoff")


def test_tokens_that_are_created_and_revoked_are_in_the_stream_without_their_secrets(
    jobs: Client,
) -> None:
    ann = jobs.acting_as(ANN)
    made, secret = ann.create_token("billing", AccessLevel.SUBMIT, "acme", expires_s=60)
    ann.revoke_token(made.id)
    with pytest.raises(UserError, match="there is no token"):
        ann.revoke_token(made.id)

    assert actions(jobs) == [
        ("create_token", made.id, "billing, submit, tenant acme", ANN),
        ("revoke_token", made.id, "", ANN),
    ]
    assert secret.split("_", 2)[2] not in str(jobs.audit())


@pytest.mark.parametrize("token_id", ["", "x", "\ud800", "0123456789ab\n", "0123456789ab"])
def test_an_unknown_token_cannot_be_revoked(jobs: Client, token_id: str) -> None:
    with pytest.raises(UserError, match=r"there is no token|token_id is not UTF-8 text"):
        jobs.revoke_token(token_id)
    assert actions(jobs) == []


def test_clients_of_several_actors_share_one_connection_and_one_dispatcher(jobs: Client) -> None:
    ann = jobs.acting_as(ANN)
    bob = ann.acting_as(BOB)

    assert ann.store is bob.store is jobs.store
    assert ann._dispatcher is bob._dispatcher is jobs._dispatcher


def test_the_asyncio_client_acts_as_an_actor_with_the_same_reader_of_events(jobs: Client) -> None:
    async def use() -> tuple[JobId, bool]:
        async with connect_async(jobs.store.connection.url, Settings(offline=True)) as connected:
            ann = connected.acting_as(ANN)
            job_id = await ann.submit(Request("Compare."))
            await connected.cancel(job_id)
            return job_id, ann._hub is connected._hub

    job_id, is_shared = asyncio.run(use())
    assert is_shared
    assert actions(jobs, job_id) == [("submit", job_id, "", ANN), ("cancel", job_id, "", None)]


def test_an_actor_of_another_type_is_refused(jobs: Client) -> None:
    with pytest.raises(UserError, match="the actor must be of type Actor, not str"):
        jobs.acting_as("ann")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "n" * (MAX_ACTOR_CHARS + 1), "\ud800"])
def test_names_and_addresses_have_bounds(text: str) -> None:
    actor = ANN.model_dump()
    for field in ("name", "address", "token"):
        with pytest.raises(ValidationError):
            Actor.model_validate(actor | {field: text})


def test_the_actor_is_not_part_of_the_request(jobs: Client) -> None:
    request = Request("Compare.")
    plain, named = jobs.submission(request).event, jobs.acting_as(ANN).submission(request).event
    other = jobs.submission(Request("Compare something else.")).event

    assert plain.is_same_request(named)
    assert named.is_same_request(plain)
    assert not named.is_same_request(other)
    assert JobSubmitted.from_json(named.to_json()).actor == ANN


@pytest.fixture
def full_redis(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Yield a client of a separate Redis. Tests fill it."""
    folder = tmp_path_factory.mktemp("redis")
    url = PrivateRedis(processes, folder, append_only=False).start()
    jobs = client.connect(url, Settings(offline=True))
    yield jobs
    jobs.store.connection.close()


@pytest.mark.slow
def test_a_job_can_be_deleted_from_a_full_redis(full_redis: Client) -> None:
    redis = full_redis.store.connection.redis
    job_id = full_redis.submit(Request("Compare."))
    end_job(full_redis, job_id)
    redis.config_set("maxmemory-policy", "noeviction")
    redis.config_set("maxmemory", "1")

    full_redis.acting_as(ANN).delete(job_id)

    assert not redis.exists(keys.job(job_id))
