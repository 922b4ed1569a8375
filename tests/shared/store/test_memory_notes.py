"""Notes of a tenant: two writers never overwrite each other, and a note ends by itself."""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.store import keys, memory_notes
from handoff_queue.shared.store.memory_notes import MAX_STORED_BYTES, StoredNote
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import NotesFull
from handoff_queue.shared.types.ids import create_job_id
from handoff_queue.shared.types.limits import MAX_SECONDS
from handoff_queue.shared.types.memory_notes import KEEP_S, MAX_NOTE_CHARS, Note
from handoff_queue.shared.types.origins import USER

PATH = "qdrant/licence"


def a_note(store: Store, path: str = PATH, **changes: Any) -> Note:
    now = store.connection.now()
    values = {
        "text": "Qdrant has the licence Apache 2.0.",
        "author": "researcher",
        "at": now,
        "expires_at": now + KEEP_S,
        "origins": (USER,),
    }
    return Note(path=path, **{**values, **changes})


def stored(store: Store, path: str = PATH) -> StoredNote:
    entry = store.notes.find("acme", path)
    assert entry is not None
    return entry


def notes_key(store: Store) -> str:
    """Return the key of the notes of acme."""
    return keys.notes(store.notes.make_name("acme"))


def test_a_tenant_reads_its_notes_and_no_other_notes(store: Store) -> None:
    note = a_note(store)
    assert store.notes.write("acme", note, None)

    assert [entry.note for entry in store.notes.list_all("acme")] == [note]
    assert store.notes.list_all("other") == []


def test_a_second_writer_of_a_new_note_is_refused(store: Store) -> None:
    store.notes.write("acme", a_note(store), None)

    assert not store.notes.write("acme", a_note(store, text="Another text."), None)
    assert stored(store).note.text.startswith("Qdrant")


def test_a_note_that_has_changed_is_neither_replaced_nor_removed(store: Store) -> None:
    store.notes.write("acme", a_note(store), None)
    before = stored(store)
    store.notes.write("acme", a_note(store, text="Changed."), before)

    assert not store.notes.write("acme", a_note(store, text="Lost."), before)
    assert not store.notes.remove("acme", before)
    assert stored(store).note.text == "Changed."


def test_an_expired_note_is_not_read_and_makes_room_for_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_notes, "MAX_NOTES", 1)
    store.notes.write("acme", a_note(store, expires_at=store.connection.now() - 1), None)
    assert store.notes.list_all("acme") == []

    assert store.notes.write("acme", a_note(store, "milvus/licence"), None)


def test_a_full_memory_refuses_new_notes_and_takes_changes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_notes, "MAX_NOTES", 1)
    store.notes.write("acme", a_note(store), None)

    with pytest.raises(NotesFull, match="remove some"):
        store.notes.write("acme", a_note(store, "milvus/licence"), None)
    assert store.notes.write("acme", a_note(store, text="Changed."), stored(store))


def test_a_full_memory_moves_a_note(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_notes, "MAX_NOTES", 1)
    store.notes.write("acme", a_note(store), None)
    before = stored(store)

    assert store.notes.write("acme", a_note(store, "milvus/licence"), None, before)
    assert [entry.note.path for entry in store.notes.list_all("acme")] == ["milvus/licence"]
    assert not store.notes.write("acme", a_note(store, "rust/licence"), None, before)


def test_the_keys_of_a_tenant_end_with_its_last_note(store: Store) -> None:
    store.notes.write("acme", a_note(store), None)

    for key in (notes_key(store), keys.note_expiry(store.notes.make_name("acme"))):
        assert KEEP_S - 60 < store.connection.redis.ttl(key) <= KEEP_S


def test_an_unreadable_note_is_left_out(store: Store) -> None:
    store.notes.write("acme", a_note(store), None)
    store.connection.redis.hset(notes_key(store), "a/b", b"\xff")

    assert [entry.note.path for entry in store.notes.list_all("acme")] == [PATH]


@pytest.mark.parametrize(("name", "at"), [("at", -1.0), ("at", 1e12), ("expires_at", 1e12)])
def test_a_note_without_a_date_is_left_out(store: Store, name: str, at: float) -> None:
    """A worker that was taken over may write any number, which no page can show as a date."""
    good = a_note(store)
    fields = {**dict(good), "path": "milvus/licence", name: at}
    store.notes.write("acme", Note.model_construct(**fields), None)
    store.notes.write("acme", good, None)

    assert [entry.note.path for entry in store.notes.list_all("acme")] == [PATH]


def test_a_note_under_the_path_of_another_note_is_left_out(store: Store) -> None:
    store.notes.write("acme", a_note(store), None)
    moved = store.connection.redis.hget(notes_key(store), PATH)
    store.connection.redis.hset(notes_key(store), "milvus/licence", moved)

    assert [entry.note.path for entry in store.notes.list_all("acme")] == [PATH]


def test_a_tenant_is_forgotten_with_its_notes(store: Store) -> None:
    store.notes.write("acme", a_note(store), None)
    name = store.notes.make_name("acme")

    assert store.notes.forget("acme") == 1
    assert store.notes.list_all("acme") == []
    assert not store.connection.redis.exists(keys.notes(name), keys.note_expiry(name))
    assert store.notes.make_name("acme") != name


def test_the_name_of_the_notes_outlives_the_notes_of_the_longest_job(store: Store) -> None:
    name = store.notes.make_name("acme")
    key = keys.notes_name("acme")
    store.connection.redis.expire(key, 1)

    assert store.notes.make_name("acme") == name
    assert store.connection.redis.ttl(key) > KEEP_S + MAX_SECONDS


def test_a_tenant_that_only_reads_its_notes_gets_no_name(store: Store) -> None:
    assert store.notes.list_all("acme") == []
    assert store.notes.find("acme", PATH) is None
    assert (store.notes.count("acme"), store.notes.forget("acme")) == (0, 0)
    assert not store.connection.redis.exists(keys.notes_name("acme"))


@pytest.mark.parametrize("path", [PATH, "x" * 100_000])
def test_an_entry_that_is_longer_than_any_note_is_not_read(store: Store, path: str) -> None:
    """A worker that was taken over may write entries of 500 MB, and all notes are read at once."""
    note = a_note(store, text="\U0001f600" * MAX_NOTE_CHARS, path="qdrant/longest")
    store.notes.write("acme", note, None)
    text = "x" if path != PATH else "x" * (MAX_STORED_BYTES + 1)
    store.connection.redis.hset(notes_key(store), path, text)
    store.connection.redis.config_resetstat()

    assert [entry.note for entry in store.notes.list_all("acme")] == [note]
    assert store.notes.find("acme", path) is None
    assert int(store.connection.redis.info("stats")["total_net_output_bytes"]) < MAX_STORED_BYTES


def test_a_person_sees_the_job_of_a_note_until_the_note_is_replaced_or_moved(
    store: Store,
) -> None:
    note = a_note(store, job_id=create_job_id())
    assert store.notes.write("acme", note, None)

    assert store.notes.list_with_jobs("acme") == [note]
    assert store.notes.find_job("acme", PATH) == note.job_id
    assert stored(store).note.job_id is None, "workers read this value"

    moved = a_note(store, "milvus/licence", job_id=create_job_id())
    assert store.notes.write("acme", moved, None, stored(store))
    assert store.notes.list_with_jobs("acme") == [moved]
    store.notes.write("acme", a_note(store, "milvus/licence"), stored(store, "milvus/licence"))
    assert store.notes.find_job("acme", "milvus/licence") is None


@pytest.mark.parametrize("text", [b"x" * 100_000, b"\xff", b"j-../../x"])
def test_a_text_without_the_form_of_an_id_is_not_the_job_of_a_note(
    store: Store, text: bytes
) -> None:
    store.notes.write("acme", a_note(store), None)
    store.connection.redis.hset(keys.note_jobs(store.notes.make_name("acme")), PATH, text)
    store.connection.redis.expire(keys.note_jobs(store.notes.make_name("acme")), 60)

    assert [note.job_id for note in store.notes.list_with_jobs("acme")] == [None]
    assert store.notes.find_job("acme", PATH) is None
