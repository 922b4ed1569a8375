"""`handoff audit` prints who did what, and the commands act as the user of this host."""

from __future__ import annotations

import json
import os
import pwd
import socket

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.audit import Actor, AuditAction, AuditEntry
from tests.e2e.commands import BAD_INPUT, Handoff, error_line

USER = {"name": pwd.getpwuid(os.getuid()).pw_name, "via": "cli", "address": socket.gethostname()}


@pytest.fixture
def run(handoff: Handoff, redis_url: str) -> Run:
    return Run(handoff, redis_url)


class Run:
    """Commands on the Redis of the test."""

    def __init__(self, handoff: Handoff, redis_url: str) -> None:
        self.handoff, self.redis_url = handoff, redis_url

    def __call__(self, *arguments: str) -> str:
        completed = self.handoff.run(*arguments, HANDOFF_REDIS_URL=self.redis_url)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    def refused(self, *arguments: str) -> str:
        completed = self.handoff.run(*arguments, HANDOFF_REDIS_URL=self.redis_url)
        return error_line(completed, BAD_INPUT)


def test_commands_act_as_the_user_on_this_host(run: Run) -> None:
    job_id = run("submit", "Compare Qdrant and Milvus").strip()
    run("cancel", job_id)
    entries = json.loads(run("audit", job_id, "--json"))

    assert [(entry["action"], entry["subject"]) for entry in entries] == [
        ("submit", job_id),
        ("cancel", job_id),
    ]
    assert [entry["actor"] for entry in entries] == [{**USER, "token": None}] * 2


def test_an_environment_cannot_change_the_user(handoff: Handoff, run: Run) -> None:
    submitted = handoff.run(
        "submit", "Compare.", HANDOFF_REDIS_URL=run.redis_url, USER="mallory", LOGNAME="mallory"
    )
    job_id = submitted.stdout.strip()

    (entry,) = json.loads(run("audit", job_id, "--json"))
    assert entry["actor"]["name"] == USER["name"]


def test_a_line_has_the_time_the_user_the_host_and_the_action(run: Run) -> None:
    run("pause", "judge", "--reason", "cites nonsense")
    run("unpause", "judge")
    pause, unpause = run("audit").splitlines()
    who = f"{USER['name']} via cli from {USER['address']}"

    assert pause.endswith(f"  {who}  pause judge: cites nonsense")
    assert unpause.endswith(f"  {who}  unpause judge")
    assert pause[:2] == "20"


def test_all_commands_about_the_fleet_leave_their_entries(run: Run, store: Store) -> None:
    job_id = run("submit", "Compare.").strip()
    for body in (job_id, "nonsense", "more nonsense"):
        store.dead_letters.add("writer", "it is a test", body)
    newest, _, oldest = store.dead_letters.list_newest()
    run("dead", "requeue", oldest.id)
    run("dead", "drop", newest.id)
    run("dead", "drop", "--all")
    run("token", "create", "ci", "--access", "read")
    run("token", "revoke", store.api_tokens.list_all()[0].id)
    store.connection.redis.hset(keys.job(job_id), "status", "ok")  # type: ignore[arg-type]
    run("delete", job_id)

    entries = json.loads(run("audit", "--json"))
    assert [entry["action"] for entry in entries] == [
        *("requeue", "drop", "drop", "create_token", "revoke_token", "delete")
    ]
    assert {json.dumps(entry["actor"]) for entry in entries} == {
        json.dumps({**USER, "token": None})
    }
    assert entries[-1]["subject"] == job_id


def test_only_the_newest_entries_are_printed_and_the_newest_is_last(run: Run) -> None:
    for role in ("judge", "planner", "router"):
        run("pause", role)

    lines = run("audit", "-n", "2").splitlines()
    assert [line.split()[-1] for line in lines] == ["planner", "router"]


def test_names_of_others_cannot_change_the_terminal(run: Run, store: Store) -> None:
    hostile = Actor(name="\x1b[2Jann\nroot", via="api", address="\x9b31m\u202e", token="\x07")
    store.audit.add(
        AuditEntry(
            at=1.0, action=AuditAction.PAUSE, subject="\x1b]0;x", detail="\x1b[1m", actor=hostile
        )
    )
    line = run("audit")

    assert line.count("\n") == 1
    assert not set(line) & set("\x1b\x9b\x07\u202e")
    assert not set(run("audit", "--json")) & set("\x1b\x9b\x07\u202e")


def test_an_action_without_an_actor_is_printed_as_unnamed(run: Run, store: Store) -> None:
    store.audit.add(AuditEntry(at=1.0, action=AuditAction.PAUSE, subject="judge"))

    assert "  unnamed  pause judge" in run("audit")


def test_an_empty_audit_and_an_unknown_job_are_explained(run: Run) -> None:
    completed = run.handoff.run("audit", HANDOFF_REDIS_URL=run.redis_url)

    assert (completed.returncode, completed.stdout) == (0, "")
    assert "there are no actions of users" in completed.stderr
    assert "j-000000000000" in run.refused("audit", "j-000000000000")


def test_the_secret_of_a_token_is_not_in_the_audit(run: Run) -> None:
    secret = run("token", "create", "cd", "--access", "read").strip()

    assert secret.removeprefix("hq_")[13:] not in run("audit", "--json")
