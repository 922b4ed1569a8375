"""Getting a reading to where the workers are: only texts that are not there yet travel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from shared.documents.folder import FolderReading


class DocumentStore(Protocol):
    """Where texts lie by digest. The ledger's documents implement it."""

    def missing(self, digests: Iterable[str]) -> set[str]:
        """Those that are not there; the others' lives are prolonged, so that they are still there when the job runs."""
        ...

    def put(self, digest: str, text: str) -> None:
        """Store one text; its digest is known to be right."""
        ...


def upload(reading: FolderReading, store: DocumentStore) -> int:
    """Store what is new of a reading, and say how many texts that was."""
    new = sorted(store.missing(reading.texts))
    for digest in new:
        store.put(digest, reading.texts[digest])
    return len(new)
