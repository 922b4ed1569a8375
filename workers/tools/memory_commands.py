"""The commands of the tool `memory` on the notes of a tenant.

The class implements the interface of the SDK for the memory tool of the Messages API. The replies
are those of the SDK's own implementation (`BetaLocalFilesystemMemoryTool`), which first-party
models know. `search` and the evidence of a note are ours.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import log

from anthropic.lib.tools import BetaAbstractMemoryTool
from anthropic.types import beta

from handoff_queue.shared.agent.tool import ToolContext, ToolFailed
from handoff_queue.shared.text.search_words import find_words, separate_cjk, split_words
from handoff_queue.shared.text.word_forms import find_stem
from handoff_queue.shared.types.errors import NotesFull, StoreError, StoreUnavailable
from handoff_queue.shared.types.handoff import Citation
from handoff_queue.shared.types.memory_notes import (
    MAX_NOTE_CHARS,
    MEMORY,
    MEMORY_FULL,
    MEMORY_REFUSED,
    NOTE_PATH,
    NewNote,
    Note,
)
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.origins import Origin, build_tool_origin, is_output_of_code, union

MAX_HITS = 5
"""Notes in the result of a search."""
MAX_LISTED = 100
"""Notes in the list of a directory."""
ROOT = "/memories"
"""Beginning of every path in the memory tool of the Messages API. It may be left out here."""
_SUFFIX = re.compile(r"\.(md|txt|xml)\Z")
"""Suffixes that models add to the names of files."""
_MAX_SOURCE_CHARS = 800
"""Most characters of the quoted document's name in a source. A source also has the path of the
note, and the path of a `Document` has at most 1,000 characters.
"""
_SHOWN_CHARS = 140
"""Characters of an argument in an error."""
_NUMBER_WIDTH = 6
"""Width of a line's number, as in the SDK."""
_LINES_AROUND = 2
"""Lines before and after a change in the reply to `str_replace`, as in the SDK."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a call gives as the proof of a new text."""

    source: str
    quote: str


class MemoryCommands(BetaAbstractMemoryTool):
    """The commands of one call. Each returns the text for the model, and raises `ToolFailed`."""

    def __init__(self, context: ToolContext, evidence: Evidence) -> None:
        super().__init__()
        self._context = context
        self._notes = context.notes()
        self._evidence = evidence
        self._call = compute_digest(f"{context.job_id}/{context.handoff_id}/{context.call_id}")
        """Digest of the running call, which is the same when it is repeated after a kill."""
        self.origins: tuple[Origin, ...] = (build_tool_origin(MEMORY),)
        """Origins of the reply."""

    def search(self, query: str) -> str:
        """Return the notes with the words of the query, the best first. A rare word counts
        more.
        """
        phrases = [_find_stems(word) for word in find_words(query)]
        if not phrases:
            raise ToolFailed("memory: the query has no words: name the fact that you look for")
        notes = self._list_notes()
        best = _rank_notes(notes, phrases)
        self._show(*best)
        hits = [{**self._describe_note(note), "text": note.text} for note in best]
        return json.dumps({"notes": hits, "searched": len(notes)}, ensure_ascii=False)

    def view(self, command: beta.BetaMemoryTool20250818ViewCommand) -> str:
        """Return one note, or the list of all notes or of one subject."""
        path = _remove_root(command.path)
        notes = self._list_notes()
        note = _find(notes, path)
        if note is None:
            return self._list_directory(path, notes)
        self._show(note)
        lines = _number_lines(note.text, _get_range(command))
        about = json.dumps(self._describe_note(note), ensure_ascii=False)
        heading = f"Here's the content of {_add_root(path)} with line numbers:"
        return "\n".join([heading, *lines, about])

    def create(self, command: beta.BetaMemoryTool20250818CreateCommand) -> str:
        """Write a new note."""
        path = _validate_path(command.path)
        existing = _find_changeable(self._list_notes(), path)
        if existing is None:
            self._write(path, command.file_text, None)
        elif existing.call != self._call:
            raise ToolFailed(
                f"File {_add_root(path)} already exists: view it, then use `str_replace`"
            )
        return f"File created successfully at: {_add_root(path)}"

    def str_replace(self, command: beta.BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a text that occurs once in a note."""
        path = _validate_path(command.path)
        note = self._find_note(path)
        text = note.text
        place = text.find(command.new_str)  # after a kill, the note has the new text
        if note.call != self._call:
            place = text.find(command.old_str)
            text = _replace_once(note, command.old_str, command.new_str)
            self._write(path, text, note)
        self._show(note)
        changed_line = text[: max(place, 0)].count("\n")
        around = slice(max(0, changed_line - _LINES_AROUND), changed_line + _LINES_AROUND + 1)
        snippet = _number_lines(text, around)
        heading = "The memory file has been edited. Here is the snippet showing the change"
        return "\n".join([f"{heading} (with line numbers):", *snippet])

    def insert(self, command: beta.BetaMemoryTool20250818InsertCommand) -> str:
        """Insert lines into a note."""
        path = _validate_path(command.path)
        note = self._find_note(path)
        if note.call != self._call:
            lines = note.text.removesuffix("\n").split("\n")
            if not 0 <= command.insert_line <= len(lines):
                raise ToolFailed(
                    f"Invalid `insert_line` parameter: {command.insert_line}. It should be within"
                    f" the range [0, {len(lines)}]."
                )
            lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
            text = "\n".join(lines)
            self._write(path, text if text.endswith("\n") else f"{text}\n", note)
        return f"The file {_add_root(path)} has been edited."

    def delete(self, command: beta.BetaMemoryTool20250818DeleteCommand) -> str:
        """Remove a note."""
        path = _remove_root(command.path)
        if not self._notes.remove(self._find_movable(path, "delete")):
            raise ToolFailed(
                f"memory: {_add_root(path)} has changed in the meantime: view it again"
            )
        return f"Successfully deleted {_add_root(path)}"

    def rename(self, command: beta.BetaMemoryTool20250818RenameCommand) -> str:
        """Write the note at its new path, with the same evidence, and remove the old one. The store
        does both at once, so a call that is repeated after a kill finds the new note.
        """
        old_path = _remove_root(command.old_path)
        path = _validate_path(command.new_path)
        new = _find_changeable(self._list_notes(), path)
        if new is None or new.call != self._call:
            old = self._find_movable(old_path, "rename")
            if new is not None:
                raise ToolFailed(f"The destination {_add_root(path)} already exists")
            assert old.evidence is not None  # `_find_changeable` refuses the note of a person
            # the new path has words of a model that has seen other texts
            origins = union(old.origins, self._context.seen_origins())
            self._store(NewNote(path, old.text, old.evidence, origins, self._call), None, old)
        return f"Successfully renamed {_add_root(old_path)} to {_add_root(path)}"

    def _list_directory(self, path: str, notes: Sequence[Note]) -> str:
        """Return the sizes and the paths of all notes, or of those of one subject."""
        below = [note for note in notes if not path or note.subject == path]
        if path and not below:
            raise _build_missing_error(path)
        # the paths are words of a model, too
        self._show(*below)
        sizes: Counter[str] = Counter()
        for note in below:
            sizes[note.subject] += _count_bytes(note)
        lines = [f"{_format_size(sizes.total())}\t{_add_root(path)}"]
        subject = path
        for note in below[:MAX_LISTED]:
            if note.subject != subject:
                subject = note.subject
                lines.append(f"{_format_size(sizes[subject])}\t{_add_root(subject)}/")
            lines.append(f"{_format_size(_count_bytes(note))}\t{_add_root(note.path)}")
        if len(below) > MAX_LISTED:
            lines.append(f"({MAX_LISTED} of {len(below):,} files: view a directory, or search)")
        heading = "Here're the files and directories up to 2 levels deep in"
        return "\n".join([f"{heading} {_add_root(path)}, excluding hidden items:", *lines])

    def _list_notes(self) -> list[Note]:
        """Return all notes. Each command begins with this call.

        Raises:
            ToolFailed: the Redis user of this worker may not use notes.
            StoreUnavailable: Redis is unreachable.
        """
        try:
            return self._notes.list_all()
        except StoreUnavailable:
            raise
        except StoreError as error:
            raise ToolFailed(MEMORY_REFUSED) from error

    def _find_note(self, path: str) -> Note:
        """Return the note at a path for a command that changes it.

        Raises:
            ToolFailed: there is no such note, or a person wrote it.
        """
        note = _find_changeable(self._list_notes(), path)
        if note is None:
            raise _build_missing_error(path)
        return note

    def _find_movable(self, path: str, command: str) -> Note:
        """Return the note at a path for a command that moves or removes it.

        Raises:
            ToolFailed: there is no such note, a person wrote it, or the path is a directory.
        """
        if not path:
            raise ToolFailed(f"Cannot {command} the {ROOT} directory itself")
        notes = self._list_notes()
        note = _find_changeable(notes, path)
        if note is not None:
            return note
        if any(other.subject == path for other in notes):
            raise ToolFailed(
                f"Cannot {command} the directory {_add_root(path)}: name one of its files"
            )
        raise _build_missing_error(path)

    def _write(self, path: str, text: str, existing: Note | None) -> None:
        """Store a new text with its evidence."""
        if not text.strip() or len(text) > MAX_NOTE_CHARS:
            raise ToolFailed(
                f"memory: the note has {len(text):,} characters: write 1 to {MAX_NOTE_CHARS:,}"
            )
        origins = self._context.seen_origins()
        if existing is not None:
            origins = union(origins, existing.origins)
        self._store(NewNote(path, text, self._find_proof(text), origins, self._call), existing)

    def _store(self, note: NewNote, existing: Note | None, moved: Note | None = None) -> None:
        try:
            if self._notes.write(note, replaces=existing, moved=moved):
                return
        except NotesFull as error:
            raise ToolFailed(MEMORY_FULL) from error
        raise ToolFailed(
            f"memory: {_add_root(note.path)} was written in the meantime: view it, then try again"
        )

    def _find_proof(self, text: str) -> Citation:
        """Return the place of the quote that proves a text in its source.

        Raises:
            ToolFailed: the call names no evidence, or the quote is not in the source. Or there is
                no such source, it is a note, or the model made the text itself.
        """
        if not self._evidence.source or not self._evidence.quote:
            raise ToolFailed(
                "memory: a new text needs evidence: add `source`, a source that you have read, and"
                " `quote`, a verbatim quote from it"
            )
        citation = self._context.prove(self._evidence.source, self._evidence.quote)
        if citation.source.startswith(f"{MEMORY}:"):
            raise ToolFailed("memory: a note is not evidence: cite the source that the note quotes")
        if is_output_of_code(citation.source):
            raise ToolFailed(
                "memory: the output of your own code is not evidence: cite what the code has read"
            )
        if self._context.has_own_sentence(citation, text):
            raise ToolFailed(
                "memory: you wrote these words yourself in a call: cite another passage"
            )
        return citation

    def _show(self, *notes: Note) -> None:
        """Add the origins of notes that the reply shows."""
        self.origins = union(self.origins, *(note.origins for note in notes))

    def _describe_note(self, note: Note) -> dict[str, str]:
        """Return the source, the author, the date and the quote of a note, and make its proof a
        source that an answer can cite.

        The proof is the quote, which code has found in its document. A model wrote the text, so an
        answer cannot cite it. The note of a person has no quote, and its text is the proof.
        """
        source = f"{MEMORY}:{note.path}"
        proof = note.text
        quote: dict[str, str] = {}
        if note.evidence is not None:
            source += f" ({note.evidence.source[:_MAX_SOURCE_CHARS]})"
            proof = note.evidence.quote
            quote["quote"] = proof
        document = self._context.keep_document(source, "text/plain", proof)
        date = datetime.fromtimestamp(note.at, UTC).date().isoformat()
        return {"source": document.path, "author": note.author, "date": date, **quote}


def _remove_root(path: str) -> str:
    """Return a path without the root of the Messages API and without a suffix."""
    return _SUFFIX.sub("", path.strip().removeprefix(ROOT).strip("/"))


def _add_root(path: str) -> str:
    """Return a path with the root of the Messages API."""
    return f"{ROOT}/{path}".rstrip("/")


def _validate_path(path: str) -> str:
    """Return the path of a note without its root.

    Raises:
        ToolFailed: it is not of the form SUBJECT/NAME.
    """
    plain = _remove_root(path)
    if not re.match(NOTE_PATH, plain):
        raise ToolFailed(
            f"memory: {plain[:_SHOWN_CHARS]!r} is not a path: write SUBJECT/NAME in small letters,"
            " digits, - and _, such as qdrant/licence"
        )
    return plain


def _build_missing_error(path: str) -> ToolFailed:
    path_text = json.dumps(_add_root(path)[:_SHOWN_CHARS], ensure_ascii=False)[1:-1]
    return ToolFailed(f"The path {path_text} does not exist. Please provide a valid path.")


def _find(notes: Sequence[Note], path: str) -> Note | None:
    """Return the note at a path, or None."""
    for note in notes:
        if note.path == path:
            return note
    return None


def _find_changeable(notes: Sequence[Note], path: str) -> Note | None:
    """Return the note at a path for a command that changes, moves or removes it, or None. Only
    these commands may use it: an agent may read the notes of persons.

    Raises:
        ToolFailed: a person wrote the note.
    """
    note = _find(notes, path)
    if note is not None and note.evidence is None:
        raise ToolFailed(
            f"memory: a person wrote {_add_root(path)}: leave this note, or use another path"
        )
    return note


def _replace_once(note: Note, old: str, new: str) -> str:
    """Return the text of a note with a part replaced.

    Raises:
        ToolFailed: the old part does not occur once.
    """
    count = note.text.count(old) if old else 0
    if count == 1:
        return note.text.replace(old, new)
    old_text = json.dumps(old[:_SHOWN_CHARS], ensure_ascii=False)[1:-1]
    if not count:
        raise ToolFailed(
            f"No replacement was performed, old_str `{old_text}` did not appear verbatim in"
            f" {_add_root(note.path)}."
        )
    lines: list[str] = []
    start = note.text.find(old)
    while start >= 0:
        lines.append(str(note.text[:start].count("\n") + 1))
        start = note.text.find(old, start + 1)
    raise ToolFailed(
        f"No replacement was performed. Multiple occurrences of old_str `{old_text}` in lines:"
        f" {', '.join(lines)}. Please ensure it is unique"
    )


def _get_range(command: beta.BetaMemoryTool20250818ViewCommand) -> slice:
    """Return the lines to show. A command counts them from 1, and -1 is the last line."""
    if command.view_range is None or len(command.view_range) != 2:
        return slice(None)
    first, last = command.view_range
    return slice(max(1, first) - 1, None if last == -1 else last)


def _number_lines(text: str, line_range: slice) -> list[str]:
    """Return the shown lines of a text with their numbers, from 1. As in the SDK, only a line feed
    ends a line, and an empty line comes after a line feed at the end.
    """
    numbered_lines: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        numbered_lines.append(f"{number:>{_NUMBER_WIDTH}}\t{line}")
    return numbered_lines[line_range]


def _build_searched_text(note: Note) -> str:
    """Return the stems of the words of a note: of its path, its text and its evidence."""
    parts = [note.path, note.text]
    if note.evidence is not None:
        parts.append(note.evidence.quote)
    return _find_stems("\n".join(parts))


def _rank_notes(notes: Sequence[Note], phrases: Sequence[str]) -> list[Note]:
    """Return at most `MAX_HITS` notes that have one of the phrases, the best first."""
    matches_by_note: list[set[str]] = []
    counts: Counter[str] = Counter()
    for note in notes:
        text = _build_searched_text(note)
        matches = {phrase for phrase in phrases if phrase in text}
        matches_by_note.append(matches)
        counts.update(matches)
    scores: dict[str, float] = {}
    for note, matches in zip(notes, matches_by_note, strict=True):
        if matches:
            scores[note.path] = sum(log(1 + len(notes) / counts[word]) for word in sorted(matches))
    matching = [note for note in notes if note.path in scores]
    return sorted(matching, key=lambda note: -scores[note.path])[:MAX_HITS]


def _find_stems(text: str) -> str:
    """Return the stems of the words of a text, each between spaces. A word of a script without
    spaces becomes several words, and is found in any run of these words.
    """
    words = split_words(separate_cjk(text))
    return f" {' '.join(map(find_stem, words))} "


def _count_bytes(note: Note) -> int:
    return len(note.text.encode())


def _format_size(size: int) -> str:
    """Return a number of bytes in the form of the SDK, such as `35B`, `1K` and `1.5K`."""
    power = max(0, size.bit_length() - 1) // 10
    scaled = size / 1024**power
    digits = 0 if scaled == int(scaled) else 1
    return f"{scaled:.{digits}f}{'BKMG'[power]}"
