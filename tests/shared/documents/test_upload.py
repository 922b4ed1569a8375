"""Only what is new travels."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from shared.documents.folder import read_folder
from shared.documents.upload import upload


class MemoryStore:
    """A `DocumentStore` in memory, which remembers what was put."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.puts = 0

    def missing(self, digests: Iterable[str]) -> set[str]:
        return set(digests) - self.texts.keys()

    def put(self, digest: str, text: str) -> None:
        self.puts += 1
        self.texts[digest] = text


def test_a_second_upload_sends_only_the_changed_file(tmp_path: Path) -> None:
    store = MemoryStore()
    (tmp_path / "a.md").write_text("one")
    (tmp_path / "b.md").write_text("two")
    assert upload(read_folder(tmp_path), store) == 2
    (tmp_path / "b.md").write_text("three")

    assert upload(read_folder(tmp_path), store) == 1
    assert store.puts == 3
    assert sorted(store.texts.values()) == ["one", "three", "two"]
