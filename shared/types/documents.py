"""A set of documents by content: what `--docs` became."""

from __future__ import annotations

from typing import Annotated

from pydantic import NonNegativeInt, StringConstraints

from handoff_queue.shared.types.ids import Digest
from handoff_queue.shared.types.message import Message


class Document(Message):
    """One document. Its text lies in the ledger under its digest."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=1_000)]
    """Relative to the folder that was given, with forward slashes; for a fetched page its URL."""
    digest: Digest
    """SHA-256 of the extracted text: the same text is stored, indexed and cited once, whatever its file."""
    media_type: str
    chars: NonNegativeInt
    """Length of the extracted text; citations count in these."""


class Manifest(Message):
    """The documents of one job, sorted by path."""

    documents: tuple[Document, ...] = ()
