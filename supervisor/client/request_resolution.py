"""A request as it would enter the ledger: with its documents read, and with what the job that it follows on leaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from handoff_queue.shared.documents.folder import FolderReading, read_folder
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.store import Ledger
from handoff_queue.shared.types.errors import InvalidDocuments
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.client.submission import Submission, submission_of


def completed(ledger: Ledger, settings: Settings, request: Request) -> Submission:
    """Raises: UserError."""
    if isinstance(request.documents, Path | Mapping):
        request = replace(request, documents=documents_of(request, settings))
    if request.after is None:
        return submission_of(request, settings)
    from handoff_queue.supervisor.client.follow_up import (
        follow_on,
    )  # here, because it folds a journal, which few requests need

    return submission_of(request, settings, follow_on(ledger, request))


def documents_of(request: Request, settings: Settings) -> FolderReading:
    """Read the documents of a request.

    Raises:
        InvalidDocuments
    """
    if isinstance(request.documents, Mapping):
        with _as_folder(request.documents) as folder:
            return _read(folder, request, settings)
    assert isinstance(request.documents, Path)
    return _read(request.documents, request, settings)


@contextmanager
def _as_folder(documents: Mapping[str, bytes]) -> Iterator[Path]:
    """Write documents to a temporary folder. An error calls that folder "documents"."""
    with TemporaryDirectory(prefix="handoff-documents-") as folder:
        try:
            for name, content in documents.items():
                place = Path(folder, name)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            yield Path(folder)
        except OSError as error:
            raise InvalidDocuments(
                f"the document {error.filename and Path(error.filename).name!r} cannot be stored ({error.strerror})"
            ) from error
        except InvalidDocuments as error:
            raise InvalidDocuments(str(error).replace(folder, "documents")) from error


def _read(folder: Path, request: Request, settings: Settings) -> FolderReading:
    return read_folder(
        folder,
        max_document_bytes=settings.max_document_bytes,
        max_documents=settings.max_documents,
        strict=request.strict_documents,
    )
