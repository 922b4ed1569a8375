"""All data of a tenant is exported as lines, and deleted without the data of other tenants."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import Commit, VerifiedAmounts
from handoff_queue.shared.store.metrics import METRICS_WITHOUT_TENANT
from handoff_queue.shared.store.spending_history import DAY_S
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.audit import AuditAction
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.events import CancelRequested
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.supervisor.client import deletion as deletion_module
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.client.schedules import ScheduleOptions
from handoff_queue.supervisor.serve.metrics import COUNTERS, HISTOGRAMS
from tests.doubles.jobs import granted_claim, issue, model_reply, version_of
from tests.supervisor.client.test_open_jobs import end

OWN = "The offer of acme is 4,711 euros."
SHARED = "HNSW is a graph."
REQUEST = Request("Compare things.", tenant="acme", documents={"own.md": OWN.encode()})
YEARLY = ScheduleOptions("0 0 1 1 *")


def lines_of(jobs: Client, tenant: str = "acme", *, texts: bool = False) -> list[dict[str, Any]]:
    return [json.loads(line) for line in jobs.export_tenant(tenant, texts=texts)]


def ended_job(jobs: Client, request: Request = REQUEST) -> JobId:
    job_id = jobs.submit(request)
    end(jobs, job_id)
    return job_id


def with_the_shared_document(tenant: str) -> Request:
    return Request("Compare.", tenant=tenant, documents={"shared.md": SHARED.encode()})


def is_stored(jobs: Client, text: str) -> bool:
    return bool(jobs.store.connection.redis.exists(keys.document(compute_digest(text))))


def keys_with(jobs: Client, word: str) -> list[str]:
    """Return the keys that have a word in their name, or in a field or member. The messages of
    queues are left out: a process that takes them drops those of deleted jobs.
    """
    redis, names = jobs.store.connection.redis, []
    for name in sorted(redis.keys("handoff:*")):
        if name.startswith(b"handoff:fair:"):
            continue
        content: Any = ()
        match redis.type(name):
            case b"hash":
                content = redis.hkeys(name)
            case b"zset":
                content = redis.zrange(name, 0, -1)
            case b"set":
                content = redis.smembers(name)
        if any(word.encode() in text for text in (name, *content)):
            names.append(name.decode())
    return names


def verify_usage(jobs: Client, job_id: JobId) -> None:
    """Add amounts to the verified usage of the tenant's day."""
    today = int(jobs.store.connection.now()) // DAY_S
    verified = VerifiedAmounts((1, 80, 20, 1), today, (1, 80, 20, 1))
    version = version_of(jobs.store, job_id)
    jobs.store.journal.commit(Commit(job_id, version, [CancelRequested()], verified=verified))
    assert jobs.store.connection.redis.exists(keys.verified_usage(today, "acme"))


def test_an_export_has_a_line_for_each_job_schedule_and_note_and_ends_with_the_counts(
    jobs: Client,
) -> None:
    first, second = ended_job(jobs), jobs.submit(REQUEST)
    ended_job(jobs, replace(REQUEST, tenant="globex"))
    jobs.add_schedule("news", replace(REQUEST, idempotency_key=None), YEARLY)
    jobs.write_note("paper/colour", "White.", "acme")
    jobs.write_note("paper/size", "A4.", "globex")

    lines = lines_of(jobs)

    assert [line["type"] for line in lines] == ["tenant", "schedule", "note", "job", "job", "end"]
    assert (lines[0]["tenant"], lines[0]["schema_version"]) == ("acme", 1)
    assert lines[2]["path"] == "paper/colour"
    assert [line["export"]["job"]["job_id"] for line in lines[3:5]] == [second, first]
    assert lines[-1] == {"type": "end", "jobs": 2, "schedules": 1, "notes": 1, "unreadable": 0}
    assert OWN not in json.dumps(lines)
    assert lines_of(jobs, texts=True)[3]["export"]["texts"] == {compute_digest(OWN): OWN}
    assert lines_of(jobs, texts=True)[1]["job"]["documents"] == {compute_digest(OWN): OWN}


def test_a_job_that_cannot_be_read_is_a_line_and_the_export_goes_on(jobs: Client) -> None:
    first, second = ended_job(jobs), ended_job(jobs)
    jobs.store.connection.redis.delete(keys.blobs(second))

    lines = lines_of(jobs)

    assert [line["type"] for line in lines] == ["tenant", "unreadable", "job", "end"]
    assert lines[1]["job_id"] == second
    assert "are gone" in lines[1]["problem"]
    assert lines[2]["export"]["job"]["job_id"] == first
    assert lines[-1]["unreadable"] == 1


def test_an_export_reads_a_job_only_when_its_line_is_asked_for(jobs: Client) -> None:
    for _ in range(3):
        ended_job(jobs)
    lines = jobs.export_tenant("acme")
    next(lines)
    next(lines)
    jobs.store.connection.redis.flushall()

    assert [json.loads(line)["type"] for line in lines] == ["end"]


def test_a_deletion_leaves_no_key_of_the_tenant_and_every_key_of_the_other_tenant(
    jobs: Client,
) -> None:
    other = ended_job(jobs, replace(REQUEST, tenant="globex", documents={"b.md": b"Of globex."}))
    before = keys_with(jobs, "globex")
    job_id = jobs.submit(REQUEST)
    issue(jobs.store, job_id, "a.1")
    claimed = granted_claim(jobs.store, job_id, "a.1")
    claimed.reserve(WorstCase(80, 20, 1))
    claimed.checkpoint(model_reply(80, 20, 1))
    verify_usage(jobs, job_id)
    end(jobs, job_id)
    jobs.add_schedule("news", REQUEST, YEARLY)
    kept_token, _ = jobs.create_token("theirs", AccessLevel.SUBMIT, "globex")
    jobs.create_token("ours", AccessLevel.SUBMIT, "acme")
    letter = json.dumps({"job_id": job_id, "handoff_id": "a.1", "text": OWN})
    jobs.store.dead_letters.add("a", "it is too old", letter)
    jobs.store.dead_letters.add("a", "it is not a message", f"a text with {job_id}")

    deletion = jobs.delete_tenant("acme")

    assert deletion.is_complete
    assert (deletion.jobs, deletion.schedules, deletion.documents) == (1, 1, 1)
    assert (deletion.letters, deletion.tokens, deletion.kept_documents) == (1, 1, 0)
    assert keys_with(jobs, "acme") == []
    assert keys_with(jobs, job_id) == []
    assert not is_stored(jobs, OWN)
    assert keys_with(jobs, "globex") == before
    assert jobs.export(other, texts=True).texts == {compute_digest("Of globex."): "Of globex."}
    assert jobs.store.api_tokens.list_all() == [kept_token]
    newest = jobs.store.audit.list_newest(1)[0]
    assert (newest.action, newest.subject) == (AuditAction.DELETE_TENANT, "acme")


def test_a_document_that_a_job_of_another_tenant_holds_stays(jobs: Client) -> None:
    ended_job(jobs, with_the_shared_document("acme"))
    other = ended_job(jobs, with_the_shared_document("globex"))

    deletion = jobs.delete_tenant("acme")
    still_there = is_stored(jobs, SHARED)
    jobs.delete(other)
    ended_job(jobs, with_the_shared_document("acme"))
    last = jobs.delete_tenant("acme")

    assert (deletion.documents, deletion.kept_documents, still_there) == (0, 1, True)
    assert (last.documents, is_stored(jobs, SHARED)) == (1, False)


def test_a_document_that_a_job_needs_while_it_is_looked_for_stays(
    jobs: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_job(jobs, with_the_shared_document("acme"))
    begin_look = type(jobs.store.tenants).begin_look

    def submit_after_the_begin(tenants: Any) -> int:
        since_ms = begin_look(tenants)
        missing = jobs.store.payloads.find_missing_documents([compute_digest(SHARED)], 60)
        assert missing == set()
        return since_ms

    monkeypatch.setattr(type(jobs.store.tenants), "begin_look", submit_after_the_begin)

    jobs.delete_tenant("acme")

    assert is_stored(jobs, SHARED)


def test_if_the_documents_of_another_job_are_unknown_no_document_is_deleted(jobs: Client) -> None:
    ended_job(jobs)
    other = ended_job(jobs, with_the_shared_document("globex"))
    jobs.store.connection.redis.delete(keys.blobs(other))

    deletion = jobs.delete_tenant("acme")

    assert (deletion.is_complete, deletion.documents, deletion.kept_documents) == (True, 0, 1)


def test_a_deletion_that_was_killed_between_two_steps_is_completed_by_the_next_one(
    jobs: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: Any) -> None:
        raise Killed

    for step in ("_remove_schedules", "_drop_letters", "_delete_ended", "_delete_documents"):
        ended_job(jobs)
        with monkeypatch.context() as changes:
            changes.setattr(deletion_module, step, kill)
            with pytest.raises(Killed):
                jobs.delete_tenant("acme")
    deletion = jobs.delete_tenant("acme")

    assert deletion.is_complete
    assert keys_with(jobs, "acme") == []
    assert not is_stored(jobs, OWN)


def test_open_jobs_are_cancelled_and_a_deletion_without_a_supervisor_is_not_complete(
    jobs: Client,
) -> None:
    job_id = jobs.submit(REQUEST)

    first = jobs.delete_tenant("acme", wait_s=0)
    is_cancelled = jobs.info(job_id).cancelled
    end(jobs, job_id)
    second = jobs.delete_tenant("acme", wait_s=0)

    assert (first.is_complete, first.open_jobs, first.jobs, is_cancelled) == (False, 1, 0, True)
    assert (second.is_complete, second.open_jobs, second.jobs) == (True, 0, 1)
    assert not is_stored(jobs, OWN)


def test_a_deletion_of_an_unknown_tenant_deletes_nothing(jobs: Client) -> None:
    ended_job(jobs)

    deletion = jobs.delete_tenant("nobody")

    assert (deletion.is_complete, deletion.jobs, deletion.documents) == (True, 0, 0)
    assert is_stored(jobs, OWN)


def test_the_names_of_the_metrics_without_a_tenant_are_complete() -> None:
    without = {
        instrument.name
        for instrument in (*COUNTERS, *HISTOGRAMS)
        if instrument.labels[:1] != ("tenant",)
    }

    assert without == METRICS_WITHOUT_TENANT
