"""A request as it would enter the ledger: with its documents read, and with what the job that it follows on leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from shared.config import Settings
from shared.documents.folder import FolderReading, read_folder
from shared.ledger.ledger import Ledger
from supervisor.request import Request
from supervisor.submission import Submission, submission_of


def completed(ledger: Ledger, settings: Settings, request: Request) -> Submission:
    """Raises: UserError."""
    if isinstance(request.documents, Path):
        request = replace(request, documents=documents_of(request, settings))
    if request.after is None:
        return submission_of(request, settings)
    from supervisor.following import (
        follow_on,
    )  # here, because it folds a journal, which few requests need

    return submission_of(request, settings, follow_on(ledger, request))


def documents_of(request: Request, settings: Settings) -> FolderReading:
    """Raises: InvalidDocuments."""
    assert isinstance(request.documents, Path)
    return read_folder(
        request.documents,
        max_document_bytes=settings.max_document_bytes,
        max_documents=settings.max_documents,
        skip_bad=request.skip_bad_documents,
    )
