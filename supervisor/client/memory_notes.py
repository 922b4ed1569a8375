"""The notes of a tenant's memory, as persons read, write and delete them."""

from __future__ import annotations

import re

from pydantic import ValidationError

from handoff_queue.shared.store.memory_notes import StoredNote
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.audit import Actor
from handoff_queue.shared.types.errors import Conflict, UserError
from handoff_queue.shared.types.memory_notes import KEEP_S, MAX_NOTE_CHARS, NOTE_PATH, Note
from handoff_queue.shared.types.message import describe_problems
from handoff_queue.shared.types.origins import USER

PERSON = "user"
"""Author of a note that a program without an actor wrote."""


def find_note(store: Store, path: str, tenant: str) -> StoredNote:
    """Return a note.

    Raises:
        UserError: the tenant has no such note.
    """
    entry = store.notes.find(tenant, path)
    if entry is None:
        raise UserError(
            f"tenant {tenant[:60]} has no note {path[:140]!r}", command="handoff memory"
        )
    return entry


def write_note(store: Store, path: str, text: str, tenant: str, actor: Actor | None) -> Note:
    """Store the note of a person. It replaces a note at the same path.

    Raises:
        UserError: the path or the text is not valid.
        NotesFull: the tenant has `MAX_NOTES` notes.
        Conflict: an agent has changed the note at the same time.
    """
    if not re.match(NOTE_PATH, path):
        raise UserError(
            f"{path[:140]!r} is not a path of a note: write SUBJECT/NAME in small letters, digits,"
            " - and _, such as qdrant/licence"
        )
    if not 1 <= len(text) <= MAX_NOTE_CHARS:
        raise UserError(
            f"the text of the note has {len(text):,} characters: write 1 to {MAX_NOTE_CHARS:,}"
        )
    now = store.connection.now()
    try:
        note = Note(
            path=path,
            text=text,
            author=actor.name if actor else PERSON,
            at=now,
            expires_at=now + KEEP_S,
            origins=(USER,),
        )
    except ValidationError as error:
        raise UserError(f"the note cannot be stored: {describe_problems(error)}") from error
    if not store.notes.write(tenant, note, store.notes.find(tenant, path)):
        raise Conflict(f"{path} was written at the same time: look at it, then write again")
    return note


def delete_note(store: Store, path: str, tenant: str) -> None:
    """Delete a note.

    Raises:
        UserError: the tenant has no such note.
        Conflict: an agent has changed the note at the same time.
    """
    if not store.notes.remove(tenant, find_note(store, path, tenant)):
        raise Conflict(f"{path} was written at the same time: look at it, then delete it again")
