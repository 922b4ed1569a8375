"""Conversion of PDF to text. It runs only in the process that `extraction.py` starts."""

from __future__ import annotations

import logging
from typing import IO

from handoff_queue.shared.documents.media_types import DocumentRefused, normalize_text
from handoff_queue.shared.settings.optional_packages import describe_missing_package

MAX_CHARS = 20_000_000
"""Characters of one file's text. A compressed page can expand to gigabytes."""


def extract_pdf_text(stream: IO[bytes]) -> str:
    """Return the text of all pages of a PDF file.

    Raises:
        DocumentRefused: the PDF is broken, encrypted, too long or without text, or the package
            `pypdf` is not installed.
    """
    try:
        import pypdf
        from pypdf.errors import DependencyError
    except ModuleNotFoundError:
        raise DocumentRefused(
            describe_missing_package("pypdf", "is a PDF, which", "documents")
        ) from None

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = pypdf.PdfReader(stream)
        if reader.is_encrypted and not reader.decrypt(""):
            raise DocumentRefused("is a PDF with a password: save it without one")
        pages: list[str] = []
        chars = 0
        for page in reader.pages:
            page_text = normalize_text(page.extract_text()).strip()
            pages.append(page_text)
            chars += len(page_text)
            if chars > MAX_CHARS:
                raise DocumentRefused(f"is a PDF with more than {MAX_CHARS:,} characters: split it")
    except DependencyError:
        raise DocumentRefused("is an encrypted PDF: save it without protection") from None
    except (DocumentRefused, MemoryError):
        raise
    except Exception as error:  # the library raises errors of many types for broken files
        raise DocumentRefused(
            "is a broken PDF: save it again with a PDF program, or leave it out"
        ) from error
    text = "\n\n".join(filter(None, pages))
    if not text:
        raise DocumentRefused("is a PDF without text (scanned?): run text recognition on it first")
    return text
