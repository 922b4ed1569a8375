"""Reading of the folder or file of `--docs` into a manifest and texts. A note or an error
names the files that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from handoff_queue.shared.documents.decoding import DocumentRefused
from handoff_queue.shared.documents.extraction import extract, is_heavy
from handoff_queue.shared.documents.files import FoundFile, find_files, read_bytes
from handoff_queue.shared.documents.media_types import media_type_of, what_to_do_with_binary
from handoff_queue.shared.documents.reader_process import HeavyFile, texts_elsewhere
from handoff_queue.shared.types.errors import InvalidDocuments
from handoff_queue.shared.types.handoff import Document, Manifest
from handoff_queue.shared.types.message import digest_of

MAX_TOTAL_CHARS = 400_000_000
"""Most characters of all documents, which stay in memory until they are uploaded."""
_NAMED = 5
"""Files that an error or a note names before it counts the rest."""
_SKIP_HINT = "or leave such files out: strict_documents=False (no --strict-docs)"


@dataclass(frozen=True, slots=True)
class FolderReading:
    """The documents of a folder."""

    manifest: Manifest
    texts: Mapping[str, str]
    """Texts of the documents by digest."""
    notes: tuple[str, ...] = ()
    """Files that were left out, one line each, for the user."""


def read_folder(
    folder: Path,
    *,
    max_document_bytes: int = 20_000_000,
    max_documents: int = 10_000,
    strict: bool = False,
) -> FolderReading:
    """Read all documents below a folder, or a single file. The same files always give the same
    manifest. A file that cannot be read is left out with a note.

    Args:
        strict: True to raise an error for a file that cannot be read.

    Raises:
        InvalidDocuments: the folder is missing or empty, has too many files or too much text, or has
            no document that can be read. With `strict`, or if `folder` is a single file: a file
            cannot be read. The message is one line.
    """
    files = find_files(folder, max_document_bytes=max_document_bytes, max_documents=max_documents)
    documents: list[Document] = []
    texts: dict[str, str] = {}
    bad: list[str] = []
    empty: list[str] = []
    chars = 0
    for file, outcome in _outcomes(files, max_document_bytes):
        if isinstance(outcome, DocumentRefused):
            bad.append(f"{file.path} {outcome}")
        elif not outcome.strip():
            empty.append(file.path)
        else:
            digest = digest_of(outcome)
            if digest not in texts:
                chars += len(outcome)
            texts[digest] = outcome
            documents.append(
                Document(
                    path=file.path,
                    digest=digest,
                    media_type=media_type_of(file.path),
                    chars=len(outcome),
                )
            )
        if chars > MAX_TOTAL_CHARS:
            raise InvalidDocuments(
                f"{folder} holds more than {MAX_TOTAL_CHARS:,} characters of text: set documents (--docs) to a smaller folder"
            )
    if bad and (strict or folder.is_file()):
        raise InvalidDocuments(_complaint(folder, bad, len(files)))
    if not documents:
        reasons = bad or [f"{path} is empty" for path in empty]
        raise InvalidDocuments(f"{folder} holds no document that can be read: {_listed(reasons)}")
    manifest = Manifest(documents=tuple(sorted(documents, key=lambda document: document.path)))
    return FolderReading(manifest, texts, _notes(bad, empty))


def _outcomes(
    files: list[FoundFile], max_document_bytes: int
) -> Iterator[tuple[FoundFile, str | DocumentRefused]]:
    """Yield each file with its text or its error. Heavy files come last; a separate process
    reads them.
    """
    heavy: list[FoundFile] = []
    for file in files:
        if file.refused is not None:
            yield file, file.refused
        elif is_heavy(media_type_of(file.path), file.size):
            heavy.append(file)
        else:
            yield file, _text_or_reason(file, max_document_bytes)
    heavy_files: list[HeavyFile] = []
    for file in heavy:
        heavy_files.append(HeavyFile(str(file.real_path), media_type_of(file.path)))
    yield from zip(heavy, texts_elsewhere(heavy_files), strict=True)


def _text_or_reason(file: FoundFile, max_document_bytes: int) -> str | DocumentRefused:
    try:
        return extract(read_bytes(file, max_document_bytes), media_type_of(file.path))
    except DocumentRefused as reason:
        if str(reason) == "is binary, not text":
            return DocumentRefused(f"{reason}: {what_to_do_with_binary(file.path)}")
        return reason


def _complaint(folder: Path, bad: list[str], count: int) -> str:
    """Return the error about files that cannot be read, in one line.

    Args:
        bad: names and faults of these files.
        count: number of all files.
    """
    if folder.is_file():
        return _one_line(bad[0])
    if len(bad) == 1:
        return _one_line(f"{bad[0]}, {_SKIP_HINT}")
    return f"{len(bad)} of {count} files in {folder} cannot be read: {_listed(sorted(bad))}. Fix them, {_SKIP_HINT}"


def _listed(texts: list[str]) -> str:
    """Return the first `_NAMED` texts and the number of the others, in one line."""
    rest = ""
    if len(texts) > _NAMED:
        rest = f"; and {len(texts) - _NAMED} more"
    return _one_line("; ".join(texts[:_NAMED]) + rest)


def _notes(bad: list[str], empty: list[str]) -> tuple[str, ...]:
    """Return the notes about files that were left out."""
    notes: list[str] = []
    for reason in sorted(bad)[:_NAMED]:
        notes.append(_one_line(f"left out: {reason}"))
    if len(bad) > _NAMED:
        notes.append(f"left out: {len(bad) - _NAMED} more files that cannot be read")
    if empty:
        notes.append(f"left out as empty: {_listed(empty)}")
    return tuple(notes)


def _one_line(text: str) -> str:
    """Return a text with a replacement character for each character that is not printable.
    File names may contain line breaks and terminal escapes.
    """
    characters: list[str] = []
    for character in text:
        characters.append(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}")
    return "".join(characters)
