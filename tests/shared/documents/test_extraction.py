"""One function converts bytes of every format to text. A separate process reads hostile files, and
one bad file does not stop the others.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from handoff_queue.shared.documents.extraction import (
    HeavyFile,
    extract,
    extract_text,
    extract_texts,
)
from handoff_queue.shared.documents.media_types import HTML, PDF, DocumentRefused
from tests.shared.documents.sample_files import pdf_with


def test_markdown_stays_as_it_is() -> None:
    assert extract(b"# *Title*\r\n", "text/markdown") == "# *Title*\n"


def test_html_loses_its_markup_in_the_charset_that_it_declares() -> None:
    page = '<meta charset="windows-1251"><p>Привет всем</p>'.encode("cp1251")

    assert extract(page, "text/html") == "Привет всем"


@pytest.mark.slow
def test_a_pdf_is_recognized_by_its_first_bytes_under_any_name() -> None:
    assert extract(pdf_with("in disguise"), "text/plain") == "in disguise"


def test_a_kind_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(DocumentRefused, match="image/png"):
        extract(b"...", "image/png")


def heavy(path: Path) -> HeavyFile:
    return HeavyFile(lambda: path.open("rb"), PDF)


@pytest.mark.slow
def test_a_pdf_in_memory_is_read() -> None:
    assert extract_text(pdf_with("Hello from memory"), PDF) == "Hello from memory"


@pytest.mark.slow
def test_a_broken_one_in_memory_is_refused() -> None:
    with pytest.raises(DocumentRefused, match="broken PDF"):
        extract_text(b"%PDF-1.7 nothing", PDF)


@pytest.mark.slow
def test_outcomes_keep_the_order_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "1.pdf").write_bytes(pdf_with("first"))
    (tmp_path / "2.pdf").write_bytes(b"junk")
    (tmp_path / "3.pdf").write_bytes(pdf_with("third"))

    outcomes = list(extract_texts([heavy(tmp_path / f"{number}.pdf") for number in (1, 2, 3)]))

    assert outcomes[0] == "first"
    assert isinstance(outcomes[1], DocumentRefused)
    assert outcomes[2] == "third"


@pytest.mark.slow
def test_a_slow_file_is_given_up_and_the_next_is_read(tmp_path: Path) -> None:
    slow = tmp_path / "slow.pdf"
    slow.write_bytes(_with_very_long_page())
    following = tmp_path / "next.pdf"
    following.write_bytes(pdf_with("next"))
    started = time.perf_counter()
    list(extract_texts([heavy(following)]))
    timeout_s = 2 + round(5 * (time.perf_counter() - started))  # on a busy machine it is longer

    outcomes = list(extract_texts([heavy(slow), heavy(following)], timeout_s=timeout_s))

    assert isinstance(outcomes[0], DocumentRefused)
    assert f"takes longer than {timeout_s} s" in str(outcomes[0])
    assert outcomes[1] == "next"


def _with_very_long_page() -> bytes:
    """Return a PDF whose page has millions of operators."""
    return pdf_with(") Tj (".join("ab" for _ in range(1_500_000)))


def test_no_files_need_no_process() -> None:
    assert list(extract_texts([])) == []


@pytest.mark.slow
def test_a_page_that_its_parser_chokes_on_is_given_up() -> None:
    with pytest.raises(DocumentRefused, match="takes longer than 1 s"):
        extract_text(b"<div>" * 500_000, HTML, timeout_s=1)
