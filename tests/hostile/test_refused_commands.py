"""A worker that Redis refuses very many commands, or commands with long names, delays no sweep. It
hides no refusal of another user, and the audit states the number of the lost refusals.
"""

from __future__ import annotations

import pytest
import redis

from handoff_queue.shared.store import keys, refusals
from handoff_queue.shared.store.refusals import MAX_OF_USER, MAX_READ, MAX_READ_CHARS, READ_AT_ONCE
from handoff_queue.shared.types.audit import AuditEntry
from handoff_queue.supervisor.client import client
from tests.hostile.redis_with_users import Server

pytestmark = pytest.mark.slow

FLOOD = 2_000
ATTACKER, OTHER = "worker-analyst", "worker-writer"


def refuse(server: Server, user: str, names: list[str]) -> None:
    """Make Redis refuse a command of a user for each of these names of keys."""
    with server.connected_as(user) as connection:
        pipe = connection.pipeline(transaction=False)
        for name in names:
            pipe.get(name)
        pipe.execute(raise_on_error=False)


def flood(server: Server, number: int = 0) -> None:
    refuse(server, ATTACKER, [f"flood-{number}-{place}" for place in range(FLOOD)])


def copied_entries(server: Server) -> list[AuditEntry]:
    """Return the refusals of the audit after a look of a supervisor."""
    with server.store("supervisor") as supervisor:
        supervisor.refusals.copy_commands()
    return client.connect(server.address).audit(count=100_000)


@pytest.fixture(autouse=True)
def empty_log(server: Server) -> None:
    """Let each test begin with an empty audit."""
    with redis.Redis.from_url(server.address) as admin:
        admin.acl_log_reset()
        copied_entries(server)
        admin.delete(keys.REFUSED_COMMANDS, keys.AUDIT_REFUSALS)
        admin.delete(*map(keys.audit_refusals_of, (ATTACKER, OTHER)))


def test_a_look_at_a_flood_of_refused_commands_has_few_round_trips(server: Server) -> None:
    with redis.Redis.from_url(server.address) as admin, server.store("supervisor") as supervisor:
        supervisor.refusals.copy_commands()

        def commands_of_a_look() -> int:
            before = int(admin.info("stats")["total_commands_processed"])
            supervisor.refusals.copy_commands()
            return int(admin.info("stats")["total_commands_processed"]) - before

        flood(server)

        assert commands_of_a_look() < 5 * MAX_READ
        assert commands_of_a_look() < READ_AT_ONCE, "known entries are not copied again"
        assert supervisor.refusals.copy_commands() == 0


def test_the_audit_states_how_many_refused_commands_were_lost(server: Server) -> None:
    flood(server)

    entries = copied_entries(server)

    details = [entry.detail for entry in entries if entry.subject == f"Redis user {ATTACKER}"]
    assert len(details) == MAX_OF_USER + 1
    assert details[-1] == f"key: {MAX_READ - MAX_OF_USER} more refused commands"
    (lost,) = [entry.detail for entry in entries if entry.subject == "Redis"]
    number = int(lost.split()[0].replace(",", ""))
    assert FLOOD - MAX_READ <= number < 2 * FLOOD


def test_a_flood_of_one_user_removes_no_refusal_of_another_user(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "MIN_REFUSALS", 1)
    refuse(server, OTHER, [keys.TOKENS])
    copied_entries(server)
    for number in range(20):
        flood(server, number)
        copied_entries(server)

    entries = copied_entries(server)

    assert [entry.detail for entry in entries if entry.subject == f"Redis user {OTHER}"] == [
        f"key {keys.TOKENS}"
    ]


def test_a_flood_of_long_names_is_not_read(server: Server) -> None:
    """Each entry of Redis's log has the whole name."""
    length = 2 * MAX_READ_CHARS
    refuse(server, ATTACKER, [f"{place}" + "k" * length for place in range(30)])
    with redis.Redis.from_url(server.address) as admin:
        before = int(admin.info("stats")["total_net_output_bytes"])

        entries = copied_entries(server)

        sent = int(admin.info("stats")["total_net_output_bytes"]) - before
        assert sent < (READ_AT_ONCE + 1) * length
        assert admin.acl_log() == [], "the log needs memory that `maxmemory` does not count"
    assert any("were not read" in entry.detail for entry in entries)


@pytest.mark.parametrize(
    "copied", ["1-500000", ""], ids=["Redis was started again", "the first look"]
)
def test_the_refusals_after_a_start_of_redis_are_copied(server: Server, copied: str) -> None:
    with redis.Redis.from_url(server.address) as admin:
        if copied:
            admin.hset(keys.REFUSED_COMMANDS, "copied", copied)
        refuse(server, OTHER, [keys.TOKENS])

        entries = copied_entries(server)

    assert f"key {keys.TOKENS}" in [entry.detail for entry in entries]


def test_wrong_passwords_with_any_names_make_no_stream(server: Server) -> None:
    url = server.address.rpartition("@")[2]
    for number in range(MAX_OF_USER + 5):
        with (
            redis.Redis.from_url(f"redis://user-{number}:wrong@{url}") as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.ping()
    with redis.Redis.from_url(server.address) as admin:
        entries = copied_entries(server)

        assert admin.hkeys(keys.REFUSED_COMMANDS) == [b"copied", b"others"]
    details = [entry.detail for entry in entries if entry.subject.startswith("Redis user user-")]
    assert len(details) == MAX_OF_USER + 5
