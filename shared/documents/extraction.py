"""The one place where bytes become the text that is stored, indexed, shown and cited."""

from __future__ import annotations

from shared.documents.decoding import decode, tidied
from shared.documents.html import declared_charset, html_text
from shared.documents.media import PDF, is_html, is_text
from shared.documents.pdf import pdf_text
from shared.documents.refused import Refused


def extract(data: bytes, media_type: str, charset: str | None = None) -> str:
    """The text of one document in memory. Markdown, code and data stay as they are; HTML and PDF lose their mark-up.

    Raises:
        Refused: binary, broken, or of a kind that cannot be read.
    """
    if media_type == PDF or data.startswith(b"%PDF-"):
        return pdf_text(data)
    if not is_text(media_type):
        raise Refused(f"is {media_type}, which cannot be read")
    if is_html(media_type):
        return tidied(html_text(decode(data, charset or declared_charset(data))))
    return decode(data, charset)
