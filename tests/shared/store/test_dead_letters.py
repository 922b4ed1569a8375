"""Dead letters are listed newest first, and dropped by their names or all together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handoff_queue.shared.observability import failpoints
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import ClaimVerdict
from handoff_queue.shared.store.claim_requests import ClaimRequest
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.dead_letters import MAX_BODY_CHARS, MAX_LETTERS, DeadLetter
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import StoreUnavailable, UserError
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.supervisor.client import client
from tests.doubles.jobs import a_job, issued_event
from tests.doubles.sweep_states import QUEUE, age_issued, mark_evaluated


def test_the_newest_letter_comes_first_and_keeps_its_bytes(store: Store) -> None:
    store.dead_letters.add("researcher", "no handoff", "one")
    store.dead_letters.add("writer", "no handoff", "two")

    assert [(letter.queue, letter.body) for letter in store.dead_letters.list_newest()] == [
        ("writer", "two"),
        ("researcher", "one"),
    ]
    assert [letter.body for letter in store.dead_letters.list_newest(1)] == ["two"]


def test_a_supervisor_removes_letters_after_their_retention_and_all_but_the_newest(
    store: Store,
) -> None:
    old = DeadLetter(at=1.0, queue="writer", reason="no handoff", body="old")
    store.connection.redis.lpush(keys.DEAD, old.to_json(), "no JSON")
    store.dead_letters.add("writer", "no handoff", "new")

    store.dead_letters.forget_old()

    assert [letter.body for letter in store.dead_letters.list_newest()] == ["new"]
    assert store.connection.redis.llen(keys.DEAD) == 2, "its age is unknown"

    store.connection.redis.rpush(keys.DEAD, *["no JSON"] * MAX_LETTERS)
    store.dead_letters.forget_old()
    assert store.connection.redis.llen(keys.DEAD) == MAX_LETTERS


def test_a_letter_of_another_version_does_not_hide_the_readable_letters(store: Store) -> None:
    store.dead_letters.add("researcher", "no handoff", "one")
    store.connection.redis.lpush(keys.DEAD, '{"form": "of another version"}', "no JSON")
    store.dead_letters.add("writer", "no handoff", "two")

    assert [letter.body for letter in store.dead_letters.list_newest()] == ["two", "one"]
    assert store.dead_letters.drop_all() == 4


def test_a_letter_keeps_its_name_when_others_arrive(store: Store) -> None:
    store.dead_letters.add("researcher", "no handoff", "one")
    (before,) = store.dead_letters.list_newest()
    store.dead_letters.add("researcher", "no handoff", "one")

    names = [letter.id for letter in store.dead_letters.list_newest()]
    assert names[1] == before.id
    assert len(set(names)) == 2


def test_a_single_letter_can_be_dropped(store: Store) -> None:
    for body in ("one", "two", "three"):
        store.dead_letters.add("researcher", "no handoff", body)
    second = store.dead_letters.list_newest()[1]

    assert store.dead_letters.drop(second)
    assert not store.dead_letters.drop(second)
    assert [letter.body for letter in store.dead_letters.list_newest()] == ["three", "one"]


def test_all_letters_are_dropped(store: Store) -> None:
    for body in ("one", "two"):
        store.dead_letters.add("researcher", "no handoff", body)

    assert (store.dead_letters.drop_all(), store.dead_letters.drop_all()) == (2, 0)
    assert store.dead_letters.list_newest() == []


def test_a_long_letter_is_cut_and_states_the_length_of_the_message(store: Store) -> None:
    store.dead_letters.add("writer", "not JSON", "x" * 5_000_000)

    (letter,) = store.dead_letters.list_newest()
    assert letter.body == "x" * MAX_BODY_CHARS
    assert (
        letter.reason
        == "not JSON (it has 5,000,000 characters, of which the first 65,536 are kept)"
    )


def test_half_a_surrogate_pair_is_kept_as_escaped_text(store: Store) -> None:
    store.dead_letters.add_unreadable("writer", "no handoff", json.loads('"a\\ud800"'))

    assert [letter.body for letter in store.dead_letters.list_newest()] == ["a\\ud800"]


# Handoffs that this version cannot read

FUTURE = HandoffId("find.1")


def unreadable_handoff(store: Store, task: str = "") -> tuple[JobId, str]:
    """Store a handoff that a newer version issued, which this version cannot read.

    It was published and taken a minute ago. Return its job and its text.
    """
    job_id = a_job(store)
    text = json.dumps(
        {"schema_version": 2, "job_id": job_id, "handoff_id": FUTURE, "of_the_future": task}
    )
    event = issued_event(FUTURE).model_copy(update={"handoff": make_ref(text)})
    store.journal.commit(Commit(job_id=job_id, expected=1, events=[event]))
    age_issued(store, job_id, 60, FUTURE)
    return job_id, text


def test_a_handoff_of_another_version_is_left_to_that_version_and_later_becomes_a_dead_letter(
    store: Store,
) -> None:
    job_id, text = unreadable_handoff(store)

    assert not store.dead_letters.add_unreadable(QUEUE, "schema_version: 2", text)
    assert store.dead_letters.list_newest() == []
    assert store.due_work.sweep().due == {job_id: [FUTURE]}, (
        "published again, for somebody who knows it"
    )

    assert store.dead_letters.add_unreadable(QUEUE, "schema_version: 2", text, patience_s=0)
    mark_evaluated(store, job_id)
    assert store.due_work.sweep().due == {}
    assert [letter.body for letter in store.dead_letters.list_newest()] == [text]


def test_the_dead_letter_exists_even_if_its_finder_fails_afterwards(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, text = unreadable_handoff(store)
    (tmp_path / "script.dead_letter_unreadable.after").write_text("drop")
    monkeypatch.setenv(failpoints.FAILPOINTS, str(tmp_path))
    failpoints.get_folder.cache_clear()

    try:
        with pytest.raises(StoreUnavailable):
            store.dead_letters.add_unreadable(QUEUE, "schema_version: 2", text, patience_s=0)
    finally:
        monkeypatch.undo()
        failpoints.get_folder.cache_clear()

    assert [letter.body for letter in store.dead_letters.list_newest()] == [text]


def test_a_worker_that_knows_the_version_may_claim_at_any_time(store: Store) -> None:
    job_id, text = unreadable_handoff(store)
    store.dead_letters.add_unreadable(QUEUE, "schema_version: 2", text)

    claimed = store.claims.claim(ClaimRequest(job_id, FUTURE, compute_digest(text), "w2"))

    assert claimed.verdict is ClaimVerdict.GRANTED
    assert not store.dead_letters.add_unreadable(QUEUE, "schema_version: 2", text, patience_s=0), (
        "a second copy, that nobody waits for"
    )
    assert store.dead_letters.list_newest() == []


@pytest.mark.parametrize("around", ["{}", '[[{}], {{}}, {{"callbacks": null}}]'])
def test_a_retried_letter_is_found_by_the_next_sweep(
    store: Store, redis_url: str, around: str
) -> None:
    job_id, text = unreadable_handoff(store)
    jobs = client.connect(redis_url, Settings(offline=True))
    store.dead_letters.add_unreadable(
        QUEUE,
        "schema_version: 2",
        around.format(text if around == "{}" else json.dumps(text)),
        patience_s=0,
    )
    assert store.due_work.sweep().due == {}

    jobs.requeue_dead(store.dead_letters.list_newest()[0])

    assert store.dead_letters.list_newest() == []
    assert store.due_work.sweep().due == {job_id: [FUTURE]}
    jobs.store.connection.close()


def test_a_retry_of_a_long_dead_letter_uses_the_complete_handoff(
    store: Store, redis_url: str
) -> None:
    """The dead letter may be truncated. The store holds the complete handoff."""
    job_id, text = unreadable_handoff(store, "long " * MAX_BODY_CHARS)
    store.dead_letters.add_unreadable(QUEUE, "schema_version: 2", text, patience_s=0)
    jobs = client.connect(redis_url, Settings(offline=True))
    jobs.requeue_dead(store.dead_letters.list_newest()[0])

    assert store.due_work.sweep().due == {job_id: [FUTURE]}
    jobs.store.connection.close()


def test_an_unwanted_or_invalid_message_cannot_be_retried(store: Store, redis_url: str) -> None:
    job_id, text = unreadable_handoff(store)
    jobs = client.connect(redis_url, Settings(offline=True))
    stranger = json.dumps({"job_id": "j-000000000000", "handoff_id": "a.1"})
    for body, why in (
        ("{", "holds no handoff"),
        (stranger, "has no handoff"),
        ("j-000000000000", "there is no job"),
        (text, "runs"),
    ):
        store.dead_letters.add(QUEUE, "unreadable", body)
        if why == "runs":
            store.claims.claim(ClaimRequest(job_id, FUTURE, compute_digest(text), "w2"))
        with pytest.raises(UserError, match=why):
            jobs.requeue_dead(store.dead_letters.list_newest()[0])
    assert len(store.dead_letters.list_newest()) == 4
    jobs.store.connection.close()


@pytest.mark.parametrize("at", ["NaN", "1e308", "-1", "Infinity"])
def test_a_letter_without_a_date_is_skipped(store: Store, at: str) -> None:
    """A worker that was taken over may write any number, which no page can show as a date."""
    letter = f'{{"at": {at}, "queue": "writer", "reason": "r", "body": "b"}}'
    store.connection.redis.lpush(keys.DEAD, letter)

    assert store.dead_letters.list_newest() == []
