"""A file that is swapped after its check brings no file from outside into a job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from handoff_queue.shared.documents import folder
from handoff_queue.shared.documents.folder import FoundFile, find_files, read_folder
from tests.shared.documents.sample_files import pdf_with

SECRET = "the secret of another folder"
HEAVY_PAGE = f"<html><body><main>{SECRET} {'<p>x</p>' * 20_000}</main></body></html>"
CONTENTS = {
    "a.md": SECRET.encode(),
    "a.pdf": pdf_with(SECRET),
    "a.html": HEAVY_PAGE.encode(),
}


def swap_after_check(monkeypatch: pytest.MonkeyPatch, swap: Callable[[], None]) -> None:
    """Have `swap` run after the files of a folder are checked and before one is opened."""

    def check_then_swap(
        where: Path, *, max_document_bytes: int, max_documents: int
    ) -> list[FoundFile]:
        files = find_files(
            where, max_document_bytes=max_document_bytes, max_documents=max_documents
        )
        swap()
        return files

    monkeypatch.setattr(folder, "find_files", check_then_swap)


@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_that_becomes_a_link_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    outside, docs = tmp_path / name, tmp_path / "docs"
    docs.mkdir()
    outside.write_bytes(CONTENTS[name])
    (docs / name).write_bytes(CONTENTS[name])
    (docs / "good.md").write_text("good")

    def swap() -> None:
        (docs / name).unlink()
        (docs / name).symlink_to(outside)

    swap_after_check(monkeypatch, swap)
    reading = read_folder(docs)

    assert list(reading.texts.values()) == ["good"]
    assert name in reading.notes[0]


@pytest.mark.parametrize("name", CONTENTS)
def test_a_folder_that_becomes_a_link_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    outside, docs = tmp_path / "outside", tmp_path / "docs"
    for place in (outside, docs / "sub"):
        place.mkdir(parents=True)
        (place / name).write_bytes(CONTENTS[name])
    (docs / "good.md").write_text("good")

    def swap() -> None:
        (docs / "sub").rename(tmp_path / "moved")
        (docs / "sub").symlink_to(outside)

    swap_after_check(monkeypatch, swap)
    reading = read_folder(docs)

    assert list(reading.texts.values()) == ["good"]
    assert f"sub/{name}" in reading.notes[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_that_stays_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / name).write_bytes(CONTENTS[name])

    (text,) = read_folder(tmp_path).texts.values()

    assert SECRET in text
