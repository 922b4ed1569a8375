"""`handoff memory`: list, show, write and delete the notes of a tenant."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, assert_never

import typer

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import DEFAULT_TENANT
from handoff_queue.supervisor.cli.connection import connect_to_broker
from handoff_queue.supervisor.cli.display.terminal import (
    print_message,
    shorten,
    write_as_json,
    write_line,
)
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.cli.options import AsJson
from handoff_queue.supervisor.text.sanitizing import replace_unsafe

if TYPE_CHECKING:
    from handoff_queue.shared.types.memory_notes import Note


class MemoryAction(StrEnum):
    """Actions of `handoff memory`."""

    LIST = "list"
    SHOW = "show"
    WRITE = "write"
    DELETE = "delete"


def memory(
    action: Annotated[
        MemoryAction, typer.Argument(metavar="ACTION", help="list, show, write or delete.")
    ] = MemoryAction.LIST,
    path: Annotated[
        str | None, typer.Argument(metavar="PATH", help="The note: SUBJECT/NAME.")
    ] = None,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The text of `write`.")] = None,
    tenant: Annotated[
        str, typer.Option("--tenant", metavar="NAME", help="The owner of the notes.")
    ] = DEFAULT_TENANT,
    as_json: AsJson = False,
) -> int:
    """List, show, write or delete the notes of a tenant.

    Agents whose file names the tool `memory` write notes with evidence, and find them in later
    jobs. A note expires 90 days after its last change.

    handoff memory

    handoff memory write qdrant/licence "Qdrant has the licence Apache 2.0."
    """
    _check_arguments(action, path, text)
    if as_json and action in (MemoryAction.WRITE, MemoryAction.DELETE):
        raise UserError("only `handoff memory list` and `show` take --json: leave it out")
    jobs = connect_to_broker()
    match action:
        case MemoryAction.LIST:
            notes = jobs.notes(tenant)
            if as_json:
                write_as_json({"notes": [note.model_dump(mode="json") for note in notes]})
                return 0
            if not notes:
                print_message(f"tenant {replace_unsafe(tenant)} has no notes")
            for note in notes:
                write_line(_format_note_line(note))
        case MemoryAction.SHOW:
            note = jobs.note(path or "", tenant)
            if as_json:
                write_as_json(note.model_dump(mode="json"))
            else:
                write_line(_format_note(note))
        case MemoryAction.WRITE:
            note = jobs.write_note(path or "", text or "", tenant)
            write_line(f"{note.path} is stored until {_format_day(note.expires_at)}")
        case MemoryAction.DELETE:
            jobs.delete_note(path or "", tenant)
            write_line(f"{replace_unsafe(path or '')} is deleted")
        case _:
            assert_never(action)
    return OK


def _check_arguments(action: MemoryAction, path: str | None, text: str | None) -> None:
    """Check that an action has its arguments, and no others.

    Raises:
        UserError: an argument is missing or superfluous.
    """
    if (path is None) != (action is MemoryAction.LIST):
        raise UserError("`handoff memory show`, `write` and `delete` need a PATH, and `list` none")
    if (text is None) == (action is MemoryAction.WRITE):
        raise UserError("`handoff memory write` needs a TEXT, and no other action takes one")


def _format_note_line(note: Note) -> str:
    """Return a note in one line: its path, author and day, and its first 60 characters."""
    first = shorten(note.text, 60)
    author = replace_unsafe(note.author)
    return f"{replace_unsafe(note.path)}  {author}, {_format_day(note.at)}  {first}"


def _format_note(note: Note) -> str:
    """Return a note with its evidence."""
    author = replace_unsafe(note.author)
    about = f"{author}, {_format_day(note.at)}, expires {_format_day(note.expires_at)}"
    if note.job_id is not None:
        about += f", {note.job_id}"
    parts = [f"{replace_unsafe(note.path)}  ({about})", replace_unsafe(note.text.rstrip("\n"))]
    if note.evidence is not None:
        source = replace_unsafe(note.evidence.source)
        parts.append(f"Quote from {source}:\n{replace_unsafe(note.evidence.quote)}")
    return "\n\n".join(parts)


def _format_day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
