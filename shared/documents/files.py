"""Search for the documents of a folder, and reading of their bytes. This module uses the file
system and parses nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from handoff_queue.shared.documents.decoding import DocumentRefused
from handoff_queue.shared.types.errors import InvalidDocuments

LONGEST_PATH = 1_000
"""Characters of the longest path, as in `shared.types.handoff.Document`."""
MACHINE_MADE = frozenset({"__pycache__", "node_modules"})
"""Folders without documents of a user. Hidden folders (`.git`, `.venv`) are skipped, too."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to read, or an entry that cannot be read."""

    path: str
    """Path relative to the folder, with forward slashes."""
    real_path: Path
    """Path with symbolic links resolved; not resolved for an entry that cannot be read."""
    size: int
    """Bytes."""
    refused: DocumentRefused | None = None
    """Reason why the entry cannot be read, or None."""


def find_files(folder: Path, *, max_document_bytes: int, max_documents: int) -> list[FoundFile]:
    """Return all visible files below a folder, or a single file, sorted by path.

    Raises:
        InvalidDocuments: the path is missing, neither a folder nor a file, unreadable or empty, or
            there are too many files.
    """
    if not folder.exists():
        raise InvalidDocuments(
            f"no such folder of documents: {folder} (set documents (--docs) to an existing folder or file)"
        )
    root = folder.resolve()
    if root.is_file():
        return [_checked_file(root.name, root, root.parent, max_document_bytes)]
    if not root.is_dir():
        raise InvalidDocuments(
            f"{folder} is neither a folder nor a regular file: set documents (--docs) to a folder or a regular file"
        )
    files: list[FoundFile] = []
    for path, entry in _walked(root, folder):
        if isinstance(entry, FoundFile):
            files.append(entry)
        else:
            files.append(_checked_file(path, entry, root, max_document_bytes))
        if len(files) > max_documents:
            raise InvalidDocuments(
                f"{folder} holds more than {max_documents:,} files: set documents (--docs) to a smaller"
                " folder, or raise HANDOFF_MAX_DOCUMENTS"
            )
    if not files:
        raise InvalidDocuments(
            f"{folder} holds no files: put documents into it, or leave out documents (--docs); hidden files do not count"
        )
    return sorted(files, key=lambda file: file.path)


def read_bytes(file: FoundFile, max_document_bytes: int) -> bytes:
    """Return the content of a file. The file may have changed since its check, so its kind and
    size are checked again.

    Raises:
        DocumentRefused: the file cannot be read, is not a regular file, or is too large.
    """
    try:
        descriptor = os.open(
            file.real_path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        )
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DocumentRefused("is not a regular file: move it out")
            data = stream.read(max_document_bytes + 1)
    except OSError as error:
        raise DocumentRefused(_unreadable(error)) from None
    if len(data) > max_document_bytes:
        raise _too_large(len(data), max_document_bytes)
    return data


def _walked(root: Path, shown: Path) -> Iterator[tuple[str, Path | FoundFile]]:
    """Yield the path and the entry of each file below a folder, and of each folder that cannot
    be listed. A link to a folder inside `root` is skipped, because that folder is searched
    anyway.

    Args:
        shown: the folder as the user named it, for the error.
    """
    folders = [""]
    while folders:
        below = folders.pop()
        try:
            entries = sorted(os.scandir(root / below), key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            if not below:
                raise InvalidDocuments(
                    f"{shown} cannot be read ({error.strerror}): change its permissions (chmod u+rx)"
                ) from None
            yield below, FoundFile(below, root / below, 0, DocumentRefused(_unreadable(error)))
            continue
        for entry in entries:
            if entry.name.startswith(".") or entry.name in MACHINE_MADE:
                continue
            if below:
                path = f"{below}/{entry.name}"
            else:
                path = entry.name
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


def _checked_file(path: str, file: Path, root: Path, max_document_bytes: int) -> FoundFile:
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
            raise _too_large(size, max_document_bytes)
        if len(path) > LONGEST_PATH:
            raise DocumentRefused(
                f"has a path of more than {LONGEST_PATH:,} characters: shorten it"
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
            why = _unreadable(error)
        return FoundFile(path, file, size, DocumentRefused(why))
    return FoundFile(path, real, size)


def _unreadable(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror
    else:
        reason = type(error).__name__
    return f"cannot be read ({reason}): change its permissions (chmod u+r), or leave it out"


def _too_large(size: int, most: int) -> DocumentRefused:
    return DocumentRefused(
        f"has {size / 1e6:,.1f} MB, more than {most / 1e6:,.1f} MB: split it, or raise HANDOFF_MAX_DOCUMENT_BYTES"
    )
