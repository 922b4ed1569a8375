"""Search for the documents of `--docs`, a folder or a file, and reading into a manifest and
texts. A note or an error names the files that cannot be read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from handoff_queue.shared.documents.extraction import HeavyFile, extract, extract_texts, is_heavy
from handoff_queue.shared.documents.media_types import (
    DocumentRefused,
    advise_on_binary,
    get_media_type,
)
from handoff_queue.shared.text.unicode_text import replace_unprintable
from handoff_queue.shared.types.errors import InvalidDocuments
from handoff_queue.shared.types.handoff import MAX_PATH_CHARS, Document, Manifest
from handoff_queue.shared.types.limits import MAX_DOCUMENT_BYTES, MAX_DOCUMENTS
from handoff_queue.shared.types.message import compute_digest

MACHINE_MADE = frozenset({"__pycache__", "node_modules"})
"""Folders without documents of a user. Hidden folders (`.git`, `.venv`) are skipped, too."""

_OPEN_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""`O_PATH` needs no right to list the folder. Only Linux has it."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to read, or an entry that cannot be read."""

    path: str
    """Path relative to the folder, with forward slashes."""
    real_path: Path
    """Path with symbolic links resolved; not resolved for an entry that cannot be read."""
    size: int
    """Bytes."""
    refusal: DocumentRefused | None = None
    """Reason why the entry cannot be read, or None."""
    root: Path = Path("/")
    """Folder that contains the file, with symbolic links resolved."""


def find_files(folder: Path, *, max_document_bytes: int, max_documents: int) -> list[FoundFile]:
    """Return all visible files below a folder, or a single file, sorted by path.

    Raises:
        InvalidDocuments: the path is missing, neither a folder nor a file, unreadable or empty, or
            there are too many files.
    """
    if not folder.exists():
        raise InvalidDocuments(
            f"no such folder of documents: {folder} (set documents (--docs) to an existing folder"
            " or file)"
        )
    root = folder.resolve()
    if root.is_file():
        return [_check_file(root.name, root, root.parent, max_document_bytes)]
    if not root.is_dir():
        raise InvalidDocuments(
            f"{folder} is neither a folder nor a regular file: set documents (--docs) to a folder"
            " or a regular file"
        )
    files: list[FoundFile] = []
    for path, entry in _walk_folder(root, folder):
        if isinstance(entry, FoundFile):
            files.append(entry)
        else:
            files.append(_check_file(path, entry, root, max_document_bytes))
        if len(files) > max_documents:
            raise InvalidDocuments(
                f"{folder} holds more than {max_documents:,} files: set documents (--docs) to a"
                " smaller folder, or raise HANDOFF_MAX_DOCUMENTS"
            )
    if not files:
        raise InvalidDocuments(
            f"{folder} holds no files: put documents into it, or leave out documents (--docs);"
            " hidden files do not count"
        )
    return sorted(files, key=lambda file: file.path)


def read_bytes(file: FoundFile, max_document_bytes: int) -> bytes:
    """Return the content of a file. The file may have changed since its check, so its kind and
    size are checked again.

    Raises:
        DocumentRefused: the file cannot be read, is not a regular file, or is too large.
    """
    try:
        with open_found(file) as stream:
            data = stream.read(max_document_bytes + 1)
    except OSError as error:
        raise DocumentRefused(_describe_unreadable(error)) from None
    if len(data) > max_document_bytes:
        raise _build_too_large_error(len(data), max_document_bytes)
    return data


def open_found(file: FoundFile) -> BinaryIO:
    """Open a file that was found below its root. No part of its path may be a link now, because
    another program may have put a link there since the check.

    Raises:
        DocumentRefused: the file is not a regular file.
        OSError: a part of the path is missing, a link, or not readable.
    """
    *folders, name = file.real_path.relative_to(file.root).parts
    folder_descriptor = os.open(file.root, _OPEN_FOLDER)
    try:
        for folder in folders:
            below = os.open(folder, _OPEN_FOLDER, dir_fd=folder_descriptor)
            os.close(folder_descriptor)
            folder_descriptor = below
        stream = os.fdopen(os.open(name, _OPEN_FILE, dir_fd=folder_descriptor), "rb")
    finally:
        os.close(folder_descriptor)
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise DocumentRefused("is not a regular file: move it out")
    return stream


def _walk_folder(root: Path, visible_path: Path) -> Iterator[tuple[str, Path | FoundFile]]:
    """Yield the path and the entry of each file below a folder, and of each folder that cannot
    be listed. A link to a folder inside `root` is skipped, because that folder is searched
    anyway.

    Args:
        visible_path: the folder as the user named it, for the error.
    """
    folders = [""]
    while folders:
        below = folders.pop()
        try:
            entries = sorted(os.scandir(root / below), key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            if not below:
                raise InvalidDocuments(
                    f"{visible_path} cannot be read ({error.strerror}): change its permissions"
                    " (chmod u+rx)"
                ) from None
            yield (
                below,
                FoundFile(below, root / below, 0, DocumentRefused(_describe_unreadable(error))),
            )
            continue
        for entry in entries:
            if entry.name.startswith(".") or entry.name in MACHINE_MADE:
                continue
            path = f"{below}/{entry.name}" if below else entry.name
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
            elif not (entry.is_symlink() and _leads_to_own_folder(Path(entry.path), root)):
                yield path, Path(entry.path)


def _leads_to_own_folder(link: Path, root: Path) -> bool:
    """Return whether a link leads to a folder inside `root`."""
    try:
        return link.is_dir() and link.resolve().is_relative_to(root)
    except (OSError, RuntimeError):
        return False


def _check_file(path: str, file: Path, root: Path, max_document_bytes: int) -> FoundFile:
    """Check one file without opening it. Return the file, or the reason why it cannot be read."""
    size = 0
    try:
        real = file.resolve(strict=True)
        status = real.stat()
        size = status.st_size
        if not real.is_relative_to(root):
            raise DocumentRefused(
                "is a link out of the folder: copy the file in, or remove the link"
            )
        if not stat.S_ISREG(status.st_mode):
            raise DocumentRefused("is not a regular file: move it out")
        if size > max_document_bytes:
            raise _build_too_large_error(size, max_document_bytes)
        if len(path) > MAX_PATH_CHARS:
            raise DocumentRefused(
                f"has a path of more than {MAX_PATH_CHARS:,} characters: shorten it"
            )
        path.encode()
    except DocumentRefused as reason:
        return FoundFile(path, file, size, reason)
    except UnicodeEncodeError:
        return FoundFile(
            path.encode(errors="replace").decode(),
            file,
            size,
            DocumentRefused("has a name that is not UTF-8: rename it"),
        )
    except (OSError, RuntimeError) as error:
        if file.is_symlink():
            why = "is a broken link: remove it"
        else:
            why = _describe_unreadable(error)
        return FoundFile(path, file, size, DocumentRefused(why))
    return FoundFile(path, real, size, root=root)


def _describe_unreadable(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror
    else:
        reason = type(error).__name__
    return f"cannot be read ({reason}): change its permissions (chmod u+r), or leave it out"


def _build_too_large_error(size: int, limit: int) -> DocumentRefused:
    return DocumentRefused(
        f"has {size / 1e6:,.1f} MB, more than {limit / 1e6:,.1f} MB: split it, or raise"
        " HANDOFF_MAX_DOCUMENT_BYTES"
    )


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
    max_document_bytes: int = MAX_DOCUMENT_BYTES,
    max_documents: int = MAX_DOCUMENTS,
    strict: bool = False,
) -> FolderReading:
    """Read all documents below a folder, or a single file. The same files always give the same
    manifest. A file that cannot be read is left out with a note.

    Args:
        strict: True to raise an error for a file that cannot be read.

    Raises:
        InvalidDocuments: the folder is missing or empty, has too many files or too much text,
            or has no document that can be read. With `strict`, or if `folder` is a single file:
            a file cannot be read. The message is one line.
    """
    files = find_files(folder, max_document_bytes=max_document_bytes, max_documents=max_documents)
    documents: list[Document] = []
    texts: dict[str, str] = {}
    bad: list[str] = []
    empty: list[str] = []
    chars = 0
    for file, outcome in _iterate_outcomes(files, max_document_bytes):
        if isinstance(outcome, DocumentRefused):
            bad.append(f"{file.path} {outcome}")
        elif not outcome.strip():
            empty.append(file.path)
        else:
            digest = compute_digest(outcome)
            if digest not in texts:
                chars += len(outcome)
            texts[digest] = outcome
            documents.append(
                Document(
                    path=file.path,
                    digest=digest,
                    media_type=get_media_type(file.path),
                    chars=len(outcome),
                )
            )
        if chars > MAX_TOTAL_CHARS:
            raise InvalidDocuments(
                f"{folder} holds more than {MAX_TOTAL_CHARS:,} characters of text: set documents"
                " (--docs) to a smaller folder"
            )
    if bad and (strict or folder.is_file()):
        raise InvalidDocuments(_build_complaint(folder, bad, len(files)))
    if not documents:
        reasons = bad or [f"{path} is empty" for path in empty]
        raise InvalidDocuments(
            f"{folder} holds no document that can be read: {_list_first_texts(reasons)}"
        )
    documents.sort(key=lambda document: document.path)
    manifest = Manifest(documents=tuple(documents))
    return FolderReading(manifest, texts, _build_notes(bad, empty))


def _iterate_outcomes(
    files: list[FoundFile], max_document_bytes: int
) -> Iterator[tuple[FoundFile, str | DocumentRefused]]:
    """Yield each file with its text or its error. Heavy files come last; a separate process
    reads them.
    """
    heavy: list[FoundFile] = []
    for file in files:
        if file.refusal is not None:
            yield file, file.refusal
        elif is_heavy(get_media_type(file.path), file.size):
            heavy.append(file)
        else:
            yield file, _read_text_or_refusal(file, max_document_bytes)
    heavy_files: list[HeavyFile] = []
    for file in heavy:
        heavy_files.append(HeavyFile(partial(_open_file, file), get_media_type(file.path)))
    yield from zip(heavy, extract_texts(heavy_files), strict=True)


def _open_file(file: FoundFile) -> BinaryIO:
    """Open a file for the reading process.

    Raises:
        DocumentRefused: the file cannot be read, or is not a regular file.
    """
    try:
        return open_found(file)
    except OSError as error:
        raise DocumentRefused(_describe_unreadable(error)) from None


def _read_text_or_refusal(file: FoundFile, max_document_bytes: int) -> str | DocumentRefused:
    try:
        return extract(read_bytes(file, max_document_bytes), get_media_type(file.path))
    except DocumentRefused as reason:
        if str(reason) == "is binary, not text":
            return DocumentRefused(f"{reason}: {advise_on_binary(file.path)}")
        return reason


def _build_complaint(folder: Path, bad: list[str], count: int) -> str:
    """Return the error about files that cannot be read, in one line.

    Args:
        bad: names and faults of these files.
        count: number of all files.
    """
    if folder.is_file():
        return replace_unprintable(bad[0])
    if len(bad) == 1:
        fault = bad[0].removesuffix(", or leave it out")  # the hint says how
        return replace_unprintable(f"{fault}, {_SKIP_HINT}")
    return (
        f"{len(bad)} of {count} files in {folder} cannot be read:"
        f" {_list_first_texts(sorted(bad))}. Fix them, {_SKIP_HINT}"
    )


def _list_first_texts(texts: list[str]) -> str:
    """Return the first `_NAMED` texts and the number of the others, in one line."""
    rest = ""
    if len(texts) > _NAMED:
        rest = f"; and {len(texts) - _NAMED} more"
    return replace_unprintable("; ".join(texts[:_NAMED]) + rest)


def _build_notes(bad: list[str], empty: list[str]) -> tuple[str, ...]:
    """Return the notes about files that were left out."""
    notes: list[str] = []
    for reason in sorted(bad)[:_NAMED]:
        notes.append(replace_unprintable(f"left out: {reason}"))
    if len(bad) > _NAMED:
        notes.append(f"left out: {len(bad) - _NAMED} more files that cannot be read")
    if empty:
        notes.append(f"left out as empty: {_list_first_texts(empty)}")
    return tuple(notes)
