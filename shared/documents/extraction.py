"""Conversion of a document's bytes to the text that is stored, indexed, shown and cited."""

from __future__ import annotations

from handoff_queue.shared.documents.extraction_process import text_elsewhere
from handoff_queue.shared.documents.html import find_declared_charset, html_text
from handoff_queue.shared.documents.media_types import (
    PDF,
    DocumentRefused,
    decode,
    is_html,
    is_text,
    tidy_text,
)
from handoff_queue.shared.text.invisible_characters import visible

_LIGHT_HTML_BYTES = 100_000
"""Bytes of the largest page that this process parses. The worst page of this size, which has
only opening tags, takes about a second. A separate process parses larger pages.
"""


def is_heavy(media_type: str, size: int) -> bool:
    """Return whether a file must be read in a separate process."""
    return media_type == PDF or (is_html(media_type) and size > _LIGHT_HTML_BYTES)


def extract(data: bytes, media_type: str, charset: str | None = None) -> str:
    """Return the visible text of one document in memory. HTML and PDF are converted; the text of
    Markdown, code and data is not changed. Data that begins like a PDF counts as PDF.

    Args:
        charset: encoding that the sender declares, if any.

    Raises:
        DocumentRefused: the document is binary, broken, or of a kind that cannot be read.
    """
    if data.startswith(b"%PDF-"):
        media_type = PDF
    if is_heavy(media_type, len(data)):
        return text_elsewhere(data, media_type, charset)
    if is_html(media_type):
        html = decode(data, charset or find_declared_charset(data))
        return visible(tidy_text(html_text(html)))
    if not is_text(media_type):
        raise DocumentRefused(f"is {media_type}, which cannot be read")
    return visible(decode(data, charset))
