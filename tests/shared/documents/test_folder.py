"""A folder becomes a manifest and texts, or one line of error that names the remedy."""

from __future__ import annotations

import os
import tempfile
import time
import tracemalloc
from pathlib import Path

import pytest

from handoff_queue.shared.documents.folder import read_folder
from handoff_queue.shared.types.errors import InvalidDocuments
from handoff_queue.shared.types.message import compute_digest
from tests.shared.documents.sample_files import pdf_with, write_locked_pdf, write_scanned_pdf

BINARY = bytes(range(256)) * 4


def refusal(folder: Path, **limits: int) -> str:
    with pytest.raises(InvalidDocuments) as caught:
        read_folder(folder, strict=True, **limits)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.slow
def test_every_kind_of_document_is_read_in_order_of_path(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.md").write_text("# Title\n\nBody.\n")
    (tmp_path / "sub" / "a.py").write_text("print('hi')\n")
    (tmp_path / "c.html").write_text("<title>Page</title><p>Hello <b>there</b></p>")
    (tmp_path / "d.pdf").write_bytes(pdf_with("Portable words"))
    (tmp_path / "e.csv").write_text("a,b\n1,2\n")

    reading = read_folder(tmp_path)

    documents = [
        (document.path, document.media_type, reading.texts[document.digest])
        for document in reading.manifest.documents
    ]
    assert documents == [
        ("b.md", "text/markdown", "# Title\n\nBody.\n"),
        ("c.html", "text/html", "# Page\n\nHello there"),
        ("d.pdf", "application/pdf", "Portable words"),
        ("e.csv", "text/csv", "a,b\n1,2\n"),
        ("sub/a.py", "text/x-python", "print('hi')\n"),
    ]


def test_a_digest_covers_the_extracted_text_and_the_length_counts_characters(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.txt").write_bytes("\ufeffGrüße\r\n".encode())

    (document,) = read_folder(tmp_path).manifest.documents

    assert document.digest == compute_digest("Grüße\n")
    assert document.chars == 6


def test_two_files_with_the_same_text_share_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("same")
    (tmp_path / "b.md").write_text("same")

    reading = read_folder(tmp_path)

    assert len(reading.manifest.documents) == 2
    assert list(reading.texts.values()) == ["same"]


def test_a_single_file_is_a_folder_of_one(tmp_path: Path) -> None:
    (tmp_path / "only.md").write_text("text")
    (tmp_path / "other.bin").write_bytes(BINARY)

    reading = read_folder(tmp_path / "only.md")

    assert [document.path for document in reading.manifest.documents] == ["only.md"]


def test_hidden_and_machine_made_files_are_skipped_silently(tmp_path: Path) -> None:
    for folder in (".git", "node_modules", "__pycache__"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "junk").write_bytes(BINARY)
    (tmp_path / ".DS_Store").write_bytes(BINARY)
    (tmp_path / "a.md").write_text("text")

    reading = read_folder(tmp_path)

    assert [document.path for document in reading.manifest.documents] == ["a.md"]
    assert reading.notes == ()


def test_empty_files_are_left_out_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("text")
    (tmp_path / "b.md").write_text(" \n")

    assert read_folder(tmp_path).notes == ("left out as empty: b.md",)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert "no such folder of documents" in refusal(tmp_path / "nowhere")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    assert "holds no files" in refusal(tmp_path)


def test_a_folder_of_nothing_but_empty_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.md").touch()

    assert "a.md is empty" in refusal(tmp_path)


def test_a_binary_file_is_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("text")
    (tmp_path / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n" + BINARY)

    text = refusal(tmp_path)

    assert text.startswith("logo.png is binary, not text: image files cannot be read: move it out")
    assert "strict_documents=False" in text


def test_an_office_file_gets_a_conversion_hint(tmp_path: Path) -> None:
    (tmp_path / "report.docx").write_bytes(b"PK\x03\x04" + BINARY)

    assert "save it as PDF, Markdown or plain text" in refusal(tmp_path)


def test_a_huge_file_is_refused_by_its_size_without_being_read(tmp_path: Path) -> None:
    with (tmp_path / "huge.txt").open("wb") as file:
        file.truncate(200_000_000)

    tracemalloc.start()
    try:
        text = refusal(tmp_path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert "huge.txt has 200.0 MB, more than 20.0 MB" in text
    assert peak_bytes < 10_000_000, "the content is not in the memory of the process"


@pytest.mark.slow
def test_a_broken_pdf_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.pdf").write_bytes(b"%PDF-1.4 nonsense")

    assert refusal(tmp_path) == (
        "x.pdf is a broken PDF: save it again with a PDF program, or leave such files out:"
        " strict_documents=False"
    )


@pytest.mark.slow
def test_a_locked_pdf_and_a_scanned_pdf_have_different_errors(tmp_path: Path) -> None:
    write_locked_pdf(tmp_path / "locked.pdf")
    write_scanned_pdf(tmp_path / "scan.pdf")

    text = refusal(tmp_path)

    assert "locked.pdf is a PDF with a password" in text
    assert "scan.pdf is a PDF without text (scanned?)" in text


def test_a_link_out_of_the_folder_is_refused_and_one_inside_is_followed(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "outside.md").write_text("not yours")
    (tmp_path / "docs" / "a.md").write_text("text")
    (tmp_path / "docs" / "alias.md").symlink_to("a.md")
    assert len(read_folder(tmp_path / "docs").manifest.documents) == 2
    (tmp_path / "docs" / "out.md").symlink_to(tmp_path / "outside.md")

    assert refusal(tmp_path / "docs").startswith("out.md is a link out of the folder")


def test_a_link_to_a_folder_outside_is_refused_and_to_one_inside_is_passed_over(
    tmp_path: Path,
) -> None:
    (tmp_path / "docs" / "sub").mkdir(parents=True)
    (tmp_path / "docs" / "sub" / "a.md").write_text("text")
    (tmp_path / "docs" / "again").symlink_to("sub")
    assert [document.path for document in read_folder(tmp_path / "docs").manifest.documents] == [
        "sub/a.md"
    ]
    (tmp_path / "docs" / "up").symlink_to(tmp_path)

    assert "up is a link out of the folder" in refusal(tmp_path / "docs")


def test_broken_links_loops_and_pipes_are_named_and_nothing_hangs(tmp_path: Path) -> None:
    (tmp_path / "gone.md").symlink_to("nowhere")
    (tmp_path / "loop.md").symlink_to("loop.md")
    os.mkfifo(tmp_path / "pipe")

    text = refusal(tmp_path)

    assert "gone.md is a broken link" in text
    assert "loop.md is a broken link" in text
    assert "pipe is not a regular file" in text


def test_too_many_files_are_refused_before_all_are_walked(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.md").write_text("text")

    assert "more than 5 files" in refusal(tmp_path, max_documents=5)


def test_several_bad_files_are_listed_in_one_line_the_first_few_by_name(tmp_path: Path) -> None:
    (tmp_path / "good.md").write_text("text")
    for number in range(8):
        (tmp_path / f"bad{number}.md").write_bytes(BINARY)

    text = refusal(tmp_path)

    assert text.startswith(f"8 of 9 files in {tmp_path} cannot be read: bad0.md is binary")
    assert "bad4.md" in text
    assert "and 3 more" in text


def test_bad_files_are_left_out_with_a_note_for_each(tmp_path: Path) -> None:
    (tmp_path / "good.md").write_text("text")
    (tmp_path / "bad.md").write_bytes(BINARY)

    reading = read_folder(tmp_path)

    assert [document.path for document in reading.manifest.documents] == ["good.md"]
    assert reading.notes == (
        "left out: bad.md is binary, not text: move it out, or save it as text",
    )


def test_a_file_that_is_named_itself_is_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "bad.md").write_bytes(BINARY)

    with pytest.raises(InvalidDocuments, match=r"bad\.md is binary") as caught:
        read_folder(tmp_path / "bad.md")
    assert "strict_documents" not in str(caught.value)


def test_excluding_every_document_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.md").write_bytes(BINARY)

    with pytest.raises(InvalidDocuments, match="no document that can be read"):
        read_folder(tmp_path)


def test_names_that_are_not_utf8_or_hold_controls_do_not_break_the_line(tmp_path: Path) -> None:
    (tmp_path / "a\nb\x1b[31m.md").write_bytes(BINARY)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.md")).write_text("text")

    text = refusal(tmp_path)

    assert "\x1b" not in text
    assert "has a name that is not UTF-8" in text


def test_unreadable_files_and_folders_are_named() -> None:
    """Root can read every file, so the test runs as the user `nobody` if it is root."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "shut.md").write_text("text")
        (folder / "shut.md").chmod(0)
        (folder / "sub").mkdir(mode=0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65_534)
        try:
            text = refusal(folder)
        finally:
            os.seteuid(user)
            (folder / "sub").chmod(0o755)

    assert "shut.md cannot be read (Permission denied): change its permissions" in text
    assert "sub cannot be read (Permission denied)" in text


@pytest.mark.slow
def test_the_time_for_a_folder_grows_with_its_files_and_not_with_their_square(
    tmp_path: Path,
) -> None:
    took_s = {}
    for count in (1_000, 10_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        for number in range(count):
            (folder / f"{number:05}.md").write_text(f"Document {number}")
        started = time.process_time()
        assert len(read_folder(folder).texts) == count
        took_s[count] = time.process_time() - started

    assert took_s[10_000] < 30 * took_s[1_000]
