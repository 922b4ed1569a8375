"""Dead letters: newest first, found by a name that stays, dropped one at a time or all at once."""

from __future__ import annotations

from shared.ledger import keys
from shared.ledger.ledger import Ledger


def test_the_newest_comes_first_and_what_was_said_is_kept(ledger: Ledger) -> None:
    ledger.dead.add("researcher", "no handoff", "one")
    ledger.dead.add("writer", "no handoff", "two")

    assert [(letter.queue, letter.body) for letter in ledger.dead.newest()] == [("writer", "two"), ("researcher", "one")]
    assert [letter.body for letter in ledger.dead.newest(1)] == ["two"]
    assert ledger.connection.redis.ttl(keys.DEAD) > 0


def test_a_letter_keeps_its_name_when_others_come_in(ledger: Ledger) -> None:
    ledger.dead.add("researcher", "no handoff", "one")
    (before,) = ledger.dead.newest()
    ledger.dead.add("researcher", "no handoff", "one")

    names = [letter.id for letter in ledger.dead.newest()]
    assert names[1] == before.id
    assert len(set(names)) == 2


def test_one_is_dropped_and_the_others_stay(ledger: Ledger) -> None:
    for body in ("one", "two", "three"):
        ledger.dead.add("researcher", "no handoff", body)
    second = ledger.dead.newest()[1]

    assert ledger.dead.drop(second)
    assert not ledger.dead.drop(second)
    assert [letter.body for letter in ledger.dead.newest()] == ["three", "one"]


def test_all_are_dropped(ledger: Ledger) -> None:
    for body in ("one", "two"):
        ledger.dead.add("researcher", "no handoff", body)

    assert (ledger.dead.drop_all(), ledger.dead.drop_all()) == (2, 0)
    assert ledger.dead.newest() == []
