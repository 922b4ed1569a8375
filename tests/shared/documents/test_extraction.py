"""One function converts bytes of every format to text."""

from __future__ import annotations

import pytest

from handoff_queue.shared.documents.extraction import extract
from handoff_queue.shared.documents.media_types import DocumentRefused
from tests.shared.documents.sample_files import pdf_with


def test_markdown_stays_as_it_is() -> None:
    assert extract(b"# *Title*\r\n", "text/markdown") == "# *Title*\n"


def test_html_loses_its_markup_in_the_charset_that_it_declares() -> None:
    page = '<meta charset="windows-1251"><p>Привет всем</p>'.encode("cp1251")

    assert extract(page, "text/html") == "Привет всем"


def test_a_pdf_is_recognized_by_its_first_bytes_under_any_name() -> None:
    assert extract(pdf_with("in disguise"), "text/plain") == "in disguise"


def test_a_kind_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(DocumentRefused, match="image/png"):
        extract(b"...", "image/png")
