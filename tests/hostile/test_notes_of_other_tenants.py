"""A worker reaches the notes of a tenant only with a handoff of this tenant that has the memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
import redis

from handoff_queue.shared.observability.redaction import HIDDEN
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.memory_notes import HandoffNotes, Notes
from handoff_queue.shared.store.redis.acl import RedisDatabase, build_rules, build_worker_access
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.events import HandoffIssued
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.ids import JobId, StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.memory_notes import KEEP_S, MEMORY_REFUSED, Note
from handoff_queue.shared.types.origins import USER
from handoff_queue.supervisor.client.export import Export, extract_record
from handoff_queue.supervisor.client.job_result import build_report, read_handoffs
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.workflows.parser import parse_workflow
from handoff_queue.testing import Json, Reply, answer_properties, json_reply, result_reply
from handoff_queue.workers.tools.memory import build_memory_tool
from tests.doubles.jobs import a_job
from tests.doubles.one_step_job import PASS
from tests.hostile.obedient_system import ObedientSystem, obedient_system
from tests.hostile.redis_with_users import Server
from tests.hostile.test_tenant_keys import keys_with
from tests.supervisor.shell import SETTINGS
from tests.workers.tools.contexts import ToolHarness

pytestmark = pytest.mark.slow

LIE = b"=A lie."
PATH = "qdrant/licence"


@pytest.fixture
def client(server: Server) -> Iterator[Store]:
    with server.store("client") as store:
        yield store
        for tenant in ("acme", "globex"):
            store.notes.forget(tenant)


def write_note(store: Store, tenant: str) -> Note:
    now = store.connection.now()
    note = Note(
        path=PATH,
        text=f"A secret of {tenant}.",
        author="ann",
        at=now,
        expires_at=now + KEEP_S,
        origins=(USER,),
    )
    assert store.notes.write(tenant, note, None)
    return note


def notes_of(store: Store, tenant: str) -> list[Note]:
    return [entry.note for entry in store.notes.list_all(tenant)]


def test_the_name_of_a_tenant_gives_a_worker_no_notes(server: Server, client: Store) -> None:
    note = write_note(client, "acme")
    with server.connected_as("worker-analyst") as attacker:
        guess = keys.notes("acme")

        assert attacker.hkeys(guess) == []
        assert attacker.hget(guess, PATH) is None
        assert attacker.hdel(guess, PATH) == 0
        attacker.hset(guess, PATH, LIE)
        attacker.zadd(keys.note_expiry("acme"), {PATH: 1})

        attacker.hdel(guess, PATH)
        attacker.zrem(keys.note_expiry("acme"), PATH)
    assert notes_of(client, "acme") == [note]


def test_a_handoff_of_one_tenant_gives_a_worker_no_notes_of_another(
    server: Server, client: Store
) -> None:
    note = write_note(client, "acme")
    own_name = client.notes.make_name("globex")
    with server.store("worker-analyst") as attacker:
        notes = HandoffNotes(attacker.connection, a_job(client, "acme"), "analyst", own_name)

        assert notes.list_all() == []
        with pytest.raises(redis.exceptions.NoPermissionError):
            attacker.connection.redis.get(keys.notes_name("acme"))
    assert notes_of(client, "acme") == [note]


def test_no_two_names_are_alike(client: Store) -> None:
    names = {client.notes.make_name(tenant) for tenant in ("acme", "globex")}
    client.notes.forget("acme")
    names.add(client.notes.make_name("acme"))

    assert len(names) == 3
    assert all(len(bytes.fromhex(name.removeprefix("hqn_"))) == 16 for name in names)


def test_a_worker_with_the_name_uses_the_notes(server: Server, client: Store) -> None:
    note = write_note(client, "acme")
    with server.store("worker-analyst") as worker:
        notes = Notes(worker.connection, client.notes.make_name("acme"))

        assert [entry.note for entry in notes.list_all("acme")] == [note]
        assert notes.remove("acme", notes.list_all("acme")[0])
    assert notes_of(client, "acme") == []


def test_a_supervisor_makes_names_and_reads_no_notes(server: Server, client: Store) -> None:
    write_note(client, "acme")
    with server.store("supervisor") as supervisor:
        name = supervisor.notes.make_name("acme")

        assert name == client.notes.make_name("acme")
        with pytest.raises(redis.exceptions.NoPermissionError):
            supervisor.connection.redis.hkeys(keys.notes(name))


@contextmanager
def worker_without_memory(server: Server) -> Iterator[Store]:
    """Yield a store of a worker whose specialist had no memory when its user was made."""
    rules = build_rules(build_worker_access(["writer"], ["writer", "analyst"]), RedisDatabase())
    with redis.Redis.from_url(server.address) as admin:
        admin.execute_command("ACL", "SETUSER", "plain", "on", ">word", *rules)
        url = f"redis://plain:word@{server.address.rpartition('@')[2]}"
        store = open_store(url, SETTINGS)
        yield store
        store.connection.close()
        admin.execute_command("ACL", "DELUSER", "plain")


def test_a_worker_of_a_specialist_without_memory_uses_no_notes_of_a_known_name(
    server: Server, client: Store
) -> None:
    """A worker that was taken over can announce its specialist with the tool `memory`."""
    note = write_note(client, "acme")
    name = client.notes.make_name("acme")
    harness = ToolHarness()
    with worker_without_memory(server) as worker:
        for command in (
            ("HGET", keys.notes(name), PATH),
            ("HSET", keys.notes(name), PATH, LIE),
            ("HDEL", keys.notes(name), PATH),
            ("ZADD", keys.note_expiry(name), "1", PATH),
        ):
            with pytest.raises(redis.exceptions.NoPermissionError):
                worker.connection.redis.execute_command(*command)
        notes = partial(HandoffNotes, worker.connection, a_job(client, "acme"), "writer", name)
        harness.context = replace(harness.context, notes=notes)

        failure = harness.failure(build_memory_tool(), command="search", query="licence")

    assert failure == MEMORY_REFUSED
    with server.store("supervisor") as supervisor, server.store("console") as console:
        supervisor.refusals.copy_commands()
        audit = [entry.to_json() for entry in console.audit.list_newest(100)]
    assert any("handoff:notes:" in text for text in audit)
    assert not any(name in text for text in audit)
    assert notes_of(client, "acme") == [note]


def obey(request: Json) -> Reply:
    properties = answer_properties(request)
    if "steps" in properties:
        steps: list[Json] = []
        for name, specialist in (("find", "researcher"), ("write", "writer")):
            step = {"id": name, "specialist": specialist, "task": "Work.", "fallback": "-"}
            steps.append({**step, "depends_on": []})
        return json_reply({"steps": steps, "synthesis": "merge", "why": ""})
    if "verdict" in properties:
        return json_reply(PASS)
    return result_reply("It is so.")


@pytest.fixture
def system(redis_url: str) -> Iterator[ObedientSystem]:
    with obedient_system(redis_url, obey) as running:
        running.offer(build_memory_tool(), only={"writer": [], "generalist": []})
        yield running


UNSERVED = """\
description: one step
review: false
steps:
  - {id: keep, specialist: librarian, task: "Keep it."}
"""


def handoffs_of(system: ObedientSystem, job_id: JobId) -> dict[StepId, AgentHandoff]:
    """Return the handoffs of a job by step."""
    handoffs: dict[StepId, AgentHandoff] = {}
    for recorded in system.shell.store.journal.read(job_id):
        if isinstance(recorded.event, HandoffIssued):
            digest = recorded.event.handoff.digest
            text = system.shell.store.payloads.get(job_id, [digest])[digest]
            handoffs[recorded.event.step_id] = AgentHandoff.from_json(text)
    return handoffs


def test_only_handoffs_with_the_memory_have_the_name_of_the_notes(system: ObedientSystem) -> None:
    shell = system.shell
    job_id = shell.jobs.submit(Request("Work.", mode=Mode.TEAM, tenant="acme"))
    system.run(job_id)
    name = shell.store.notes.make_name("acme")
    handoffs = handoffs_of(system, job_id)
    handoff = handoffs[StepId("find")]

    with_name = {step for step, handoff in handoffs.items() if handoff.notes_name}
    assert (handoff.notes_name, with_name) == (name, {"find"})
    assert keys_with(shell.jobs, name) == {
        keys.notes_name("acme"),
        keys.blobs(job_id),  # the handoff, by its digest
        "researcher",  # the message in the queue of the only agent that may read it
    }

    letters = shell.store.dead_letters
    letters.add("researcher", "unreadable", handoff.to_json())
    export = shell.jobs.export(job_id, texts=True)
    shown = [
        shell.jobs.result(job_id).to_json(),
        *(report.to_json() for report in read_handoffs(shell.store, job_id, [handoff.handoff_id])),
        export.to_json(),
        build_report(extract_record(Export.from_json(export.to_json()))).to_json(),
        *(letter.to_json() for letter in letters.list_newest()),
        json.dumps(system.server.requests),
    ]
    assert [text for text in shown if name in text] == []
    assert HIDDEN in letters.list_newest()[0].body


def test_a_specialist_that_no_worker_announces_may_have_the_memory(system: ObedientSystem) -> None:
    """The handoff waits for a worker, and this worker runs its own file."""
    shell = system.shell
    job_id = shell.jobs.submit(Request("Work.", workflow=parse_workflow(UNSERVED), tenant="acme"))
    shell.advance(job_id)

    (handoff,) = handoffs_of(system, job_id).values()
    assert handoff.notes_name == shell.store.notes.make_name("acme")
