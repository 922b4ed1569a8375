"""Each process does its work with its own Redis user. Refused commands are in the audit log."""

from __future__ import annotations

import time
from itertools import chain

import pytest
import redis
from pydantic import SecretStr
from redis.exceptions import NoPermissionError

from handoff_queue.shared.agent.checkpoint_store import CallAnswer
from handoff_queue.shared.broker.flower import PERMANENT_QUEUES, list_queues
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import ClaimVerdict
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.fair_queue import ENQUEUE, MEMBER_HEADER, enqueue_arguments
from handoff_queue.shared.store.journal import MAX_EVENTS_A_READ
from handoff_queue.shared.store.journal_signature_check import LEFT_OUT
from handoff_queue.shared.store.spending_history import DAY_S
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.store.tool_call_approvals import answer_call
from handoff_queue.shared.types.audit import AuditAction
from handoff_queue.shared.types.errors import StoreError, StoreUnavailable
from handoff_queue.shared.types.events import (
    AnsweredCall,
    Approved,
    CancelRequested,
    Rejected,
)
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.fleet_statistics import read_stats
from handoff_queue.supervisor.client.request import Request
from tests.doubles.call_questions import ask
from tests.doubles.jobs import (
    a_job,
    claim,
    finish,
    granted_claim,
    issue,
    model_reply,
    version_of,
)
from tests.hostile.redis_commands import OTHER_JOB
from tests.hostile.redis_with_users import Server
from tests.system_users import refused_commands

pytestmark = pytest.mark.slow


def test_a_worker_waits_until_a_supervisor_has_loaded_the_scripts(server: Server) -> None:
    with (
        server.store("supervisor") as supervisor,
        server.store("worker-analyst") as worker,
        redis.Redis.from_url(server.address) as admin,
    ):
        job_id = a_job(supervisor)
        issue(supervisor, job_id, "find.1", role="analyst")
        claimed = granted_claim(worker, job_id, "find.1")
        admin.script_flush()

        with pytest.raises(StoreUnavailable, match="start a supervisor"):
            claimed.renew()
        with pytest.raises(StoreUnavailable, match="start a supervisor"):
            worker.connection.run_script_for_each("renew_lease", [claimed.build_renewal()])
        supervisor.connection.load_scripts()
        claimed.renew()
        assert worker.connection.run_script_for_each("renew_lease", [claimed.build_renewal()]) == [
            b"ok"
        ]


def test_a_refused_command_is_in_the_audit_once(server: Server) -> None:
    with server.connected_as("worker-writer") as connection:
        for _ in range(2):
            with pytest.raises(NoPermissionError):
                connection.execute_command("HGETALL", keys.TOKENS)
    url = server.users.build_url("supervisor", server.address)
    for _ in range(2):  # two supervisors
        store = open_store(url, Settings(redis_url=SecretStr(url)))
        store.refusals.copy_commands()
        store.connection.close()

    jobs = client.connect(server.address)
    entries = [entry for entry in jobs.audit(count=1_000) if "worker-writer" in entry.subject]

    assert [(entry.action, entry.detail) for entry in entries] == [
        (AuditAction.REFUSE, f"key {keys.TOKENS}")
    ]


@pytest.mark.parametrize("user", ["console", "admin"])
def test_redis_refuses_no_command_of_a_deletion_of_a_tenant(server: Server, user: str) -> None:
    address = server.users.build_url(user, server.address)
    jobs = client.connect(address)
    with (
        server.store("supervisor") as supervisor,
        redis.Redis.from_url(server.address) as admin,
    ):
        issue(supervisor, a_job(supervisor), "find.1", role="analyst")
        refused_commands(admin)

        jobs.delete_tenant("acme", wait_s=0)

        assert refused_commands(admin) == []
    jobs.store.connection.close()


def test_a_client_that_may_not_delete_a_tenant_learns_which_redis_user_may(
    server: Server,
) -> None:
    jobs = client.connect(server.users.build_url("client", server.address))

    with pytest.raises(StoreError, match="a user with this right, such as `console`"):
        jobs.delete_tenant("acme", wait_s=0)

    jobs.store.connection.close()


def test_a_user_without_right_to_read_the_log_copies_nothing(server: Server) -> None:
    url = server.users.build_url("client", server.address)
    store = open_store(url, Settings(redis_url=SecretStr(url)))

    assert store.refusals.copy_commands() == 0
    store.connection.close()


def test_flower_lists_the_queues_with_its_own_user(server: Server) -> None:
    with (
        server.store("supervisor") as supervisor,
        server.store("flower") as flower,
        server.connected_as("worker-writer") as attacker,
    ):
        issue(supervisor, a_job(supervisor), "find.1", role="analyst")
        until_ms = (time.time() + 30) * 1000
        attacker.zadd(keys.SERVING, {"writer/w": until_ms, f"{keys.TOKENS}/w": until_ms})

        assert set(list_queues(flower)) == {*PERMANENT_QUEUES, "analyst", "writer"}


def test_a_client_with_its_own_user_submits_a_job(server: Server) -> None:
    jobs = client.connect(server.users.build_url("client", server.address))

    job_id = jobs.submit(Request("Which database is the best?"))

    assert jobs.newest()[0].job_id == job_id


def test_a_supervisor_announces_a_waiting_job_and_the_server_counts_it(server: Server) -> None:
    counts: dict[str, dict[tuple[str, ...], int]] = {}
    for user in ("supervisor", "console", "client", "observer"):
        url = server.users.build_url(user, server.address)
        store = open_store(url, Settings(redis_url=SecretStr(url)))
        if user == "supervisor":
            job_id, now = JobId(OTHER_JOB), store.connection.now()
            store.presence.announce_unplanned_job(job_id, ("tailor",), now)
        counts[user] = store.presence.count_unplanned_jobs()
        store.connection.close()

    assert counts == {user: {("tailor",): 1} for user in counts}


def test_a_worker_with_its_own_user_asks_about_a_call_and_gets_the_answer(server: Server) -> None:
    stores: dict[str, Store] = {}
    for user in ("client", "supervisor", "worker-analyst"):
        url = server.users.build_url(user, server.address)
        stores[user] = open_store(url, Settings(redis_url=SecretStr(url)))
    worker, supervisor = stores["worker-analyst"], stores["supervisor"]
    job_id = a_job(supervisor)
    issue(supervisor, job_id, "find.1", role="analyst")
    claimed = granted_claim(worker, job_id, "find.1")
    claimed.checkpoint(model_reply(), deferrable=True)
    ask(claimed)
    handoff_id = HandoffId("find.1")
    call = AnsweredCall(handoff_id=handoff_id, call_id="toolu_1")
    approved = Approved(asked=supervisor.journal.read(job_id)[-1].version, call=call)
    connection, trust = stores["client"].connection, stores["client"].trust

    assert answer_call(connection, trust, job_id, approved, handoff_id, [])

    again = granted_claim(worker, job_id, "find.1")
    assert again.read_call_answers() == {"toolu_1": CallAnswer(is_approved=True)}
    finish(again)
    for store in stores.values():
        store.connection.close()


def test_no_worker_of_another_agent_closes_a_question_about_a_call(server: Server) -> None:
    with (
        server.store("client") as client,
        server.store("supervisor") as supervisor,
        server.store("worker-analyst") as worker,
        server.connected_as("worker-writer") as attacker,
    ):
        job_id, handoff_id = a_job(supervisor), HandoffId("find.1")
        issue(supervisor, job_id, handoff_id, role="analyst")
        ask(granted_claim(worker, job_id, handoff_id))
        asked = supervisor.journal.read(job_id)[-1].version
        call = AnsweredCall(handoff_id=handoff_id, call_id="toolu_1")
        rejected = Rejected(asked=asked, call=call)

        attacker.hdel(keys.progress(job_id), f"approval:{asked}")
        attacker.hset(keys.progress(job_id), "calls", "")

        assert answer_call(client.connection, client.trust, job_id, rejected, handoff_id, [])
        again = granted_claim(worker, job_id, handoff_id)
        assert again.read_call_answers() == {"toolu_1": CallAnswer(is_approved=False)}
        finish(again)


def test_a_process_that_names_an_unknown_handoff_is_not_an_attacker(server: Server) -> None:
    """Redis may have lost the handoff."""
    with (
        server.store("supervisor") as supervisor,
        server.store("worker-analyst") as worker,
        server.store("observer") as observer,
    ):
        job_id, lost = a_job(supervisor), HandoffId("lost.1")
        supervisor.connection.redis.zadd(keys.DUE, {f"{job_id}/{lost}": 1})

        assert claim(worker, job_id, lost).verdict is ClaimVerdict.UNKNOWN
        at_work = [running.handoff_id for running in observer.fleet_load.now().at_work]
        assert lost not in at_work
        supervisor.due_work.mark_sent(job_id, [lost])
        supervisor.due_work.sweep()
        supervisor.journal.commit(
            Commit(job_id, version_of(supervisor, job_id), [CancelRequested()], drop=[lost])
        )


def test_an_observer_reads_the_statistics_with_the_spending_of_today(server: Server) -> None:
    with server.store("supervisor") as supervisor, server.store("observer") as observer:
        today = int(supervisor.connection.now()) // DAY_S
        supervisor.connection.redis.delete(keys.spending(today))  # of other tests
        for name, more in (("input", 200), ("cached", 150)):
            field = f"{name}\tdefault\twriter\tm\tteam"
            supervisor.connection.redis.hincrby(keys.spending(today), field, more)
        stats = read_stats(observer, observer.fleet_load.now())
        supervisor.connection.redis.delete(keys.spending(today))

    assert stats.cached_share == 0.75


@pytest.mark.parametrize("user", ["observer", "client", "console", "supervisor"])
def test_each_reader_of_journals_leaves_out_refused_events(server: Server, user: str) -> None:
    with server.store("supervisor") as supervisor, server.store(user) as reader:
        job_id = a_job(supervisor)
        entry = f"1790000000000 {CancelRequested().to_json()}"
        supervisor.connection.redis.rpush(keys.log(job_id), *[entry] * (MAX_EVENTS_A_READ + 500))
        refused = range(MAX_EVENTS_A_READ + 1, MAX_EVENTS_A_READ + 501)
        supervisor.refused_events.record(job_id, refused, 60)

        events = [*chain(*reader.journal.iterate_pages(job_id, leaves_out=True))]

        assert [event.version for event in events if event.event is LEFT_OUT] == [*refused]


def test_a_worker_wakes_a_supervisor_while_other_wake_ups_wait(server: Server) -> None:
    with server.connected_as("worker-writer") as connection:
        for number in range(3):
            message = {
                "headers": {MEMBER_HEADER: f"j-00000000000{number}"},
                "properties": {"delivery_tag": f"tag-{number}"},
            }
            ENQUEUE.run(connection, enqueue_arguments("supervisor", message, is_first=False))
    with redis.Redis.from_url(server.address) as admin:
        assert admin.llen("supervisor") == 3
        admin.delete("supervisor")
