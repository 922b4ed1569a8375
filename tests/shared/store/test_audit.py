"""The audit stream keeps the newest actions in order, and has a bound."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store import audit, keys
from handoff_queue.shared.store.refusals import MAX_DETAIL_CHARS
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.audit import Actor, AuditAction, AuditEntry

ANN = Actor(name="ann", via="api", address="192.0.2.7", token="5d1f0c2a9e77")


BOB = Actor(name="bob", via="cli", address="host")


def pause_of(role: str, actor: Actor = ANN) -> AuditEntry:
    return AuditEntry(at=1.5, action=AuditAction.PAUSE, subject=role, detail="down", actor=actor)


def test_the_newest_entries_come_in_the_order_of_their_actions(store: Store) -> None:
    entries = [pause_of(role) for role in ("writer", "judge", "coder")]
    for entry in entries:
        store.audit.add(entry)

    assert store.audit.list_newest(10) == entries
    assert store.audit.list_newest(2) == entries[1:]


def test_an_entry_of_another_version_is_skipped(store: Store) -> None:
    store.audit.add(pause_of("writer"))
    store.connection.redis.xadd(keys.AUDIT, {"e": '{"action": "promote"}'})
    store.connection.redis.xadd(keys.AUDIT, {"other": "field"})

    assert store.audit.list_newest(10) == [pause_of("writer")]


@pytest.mark.parametrize("at", ["NaN", "1e308", "-1", "Infinity"])
def test_an_entry_or_a_report_without_a_date_is_skipped(store: Store, at: str) -> None:
    """No page can show such a time."""
    entry = f'{{"at": {at}, "action": "refuse", "subject": "a message", "detail": "forged"}}'
    store.connection.redis.xadd(keys.AUDIT, {"e": entry})
    store.connection.redis.lpush(keys.REFUSALS, entry)

    assert store.audit.list_newest(10) == []
    assert store.refusals.move_reports() == 0


@pytest.mark.parametrize(
    ("limit", "actor", "key"),
    [("MIN_KEPT", BOB, keys.AUDIT), ("MIN_OF_CALLER", ANN, keys.audit_of("5d1f0c2a9e77"))],
    ids=["of a command", "of a token"],
)
def test_the_stream_does_not_grow_without_end(
    limit: str, actor: Actor, key: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, limit, 100)
    for number in range(1_000):
        store.audit.add(pause_of(f"role-{number}", actor))

    # Redis drops whole blocks of 100 entries
    assert 100 <= store.connection.redis.xlen(key) <= 200
    assert store.audit.list_newest(1) == [pause_of("role-999", actor)]


def test_refusals_remove_no_action_of_a_user(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker can cause any number of refusals."""
    monkeypatch.setattr(audit, "MIN_OF_CALLER", 100)
    monkeypatch.setattr(audit, "MIN_REFUSALS", 100)
    store.audit.add(pause_of("writer"))
    report = AuditEntry(at=1, action=AuditAction.REFUSE, subject="a message", detail="forged")
    for _ in range(1_000):
        store.refusals.report(report)

    assert store.refusals.move_reports() == 1_000

    assert pause_of("writer") in store.audit.list_newest(10)
    assert store.connection.redis.xlen(keys.AUDIT_REFUSALS) <= 200


def test_a_report_of_a_worker_has_no_actor_no_chosen_time_and_no_second_line(store: Store) -> None:
    store.refusals.report(
        AuditEntry(
            at=253_402_200_000,
            action=AuditAction.REFUSE,
            subject="a message\n2026-11-29 ann approve j-1",
            detail="\u202e" * 5_000,
            actor=ANN,
        )
    )
    store.refusals.move_reports()

    (entry,) = store.audit.list_newest(1)

    assert abs(entry.at - store.connection.now()) < 60
    assert entry.actor is None
    assert entry.subject == "a message?2026-11-29 ann approve j-1"
    assert entry.detail == "?" * MAX_DETAIL_CHARS
