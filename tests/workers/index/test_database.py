"""The index survives damaged files, other programs' files, forks and kills."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.workers.index.database import Database
from handoff_queue.workers.index.index import DocumentIndex
from tests.workers.index.documents_in_memory import Library

LIBRARY = Library(
    {
        f"{number:04}.md": f"Document {number} speaks of whales. Word{number} too."
        for number in range(600)
    }
)


def matches(index: DocumentIndex, query: str = "word7") -> list[str]:
    return [
        hit.source for hit in index.search(LIBRARY.manifest, query, text_of=LIBRARY.text_of).hits
    ]


def files(tmp_path: Path) -> list[str]:
    return sorted(file.name for file in (tmp_path / "documents").glob("*.sqlite"))


def test_nothing_is_opened_before_the_first_search(tmp_path: Path) -> None:
    DocumentIndex(tmp_path / "never")

    assert not (tmp_path / "never").exists()


def test_another_programs_file_is_kept_and_the_index_is_made_next_to_it(
    tmp_path: Path, index: DocumentIndex
) -> None:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "v1-000000.sqlite").write_text(
        "This is somebody's shopping list, and no database at all." * 100
    )

    assert matches(index) == ["0007.md"]
    assert files(tmp_path)[-1] == "v1-000001.sqlite"


def test_another_programs_database_is_not_touched(tmp_path: Path, index: DocumentIndex) -> None:
    (tmp_path / "documents").mkdir()
    other_database = sqlite3.connect(tmp_path / "documents" / "v1-000000.sqlite")
    other_database.execute("CREATE TABLE theirs (x)")
    other_database.close()

    assert matches(index) == ["0007.md"]


def test_a_file_damaged_between_two_runs_is_replaced(tmp_path: Path) -> None:
    first = DocumentIndex(tmp_path)
    matches(first)
    first.close()
    file = tmp_path / "documents" / files(tmp_path)[-1]
    data = bytearray(file.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    file.write_bytes(data)

    second = DocumentIndex(tmp_path)
    assert matches(second) == ["0007.md"]
    second.close()


def test_a_leftover_index_is_deleted_once_no_process_uses_it(tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "v1-000000.sqlite").write_text("no database at all" * 100)
    first = DocumentIndex(tmp_path)
    matches(first)
    first.close()

    assert files(tmp_path) == ["v1-000001.sqlite"]


def test_a_cache_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UserError, match="set HANDOFF_CACHE_DIR"):
        matches(DocumentIndex(tmp_path / "file"))


def test_many_threads_search_and_fill_concurrently(index: DocumentIndex) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda number: matches(index, f"word{number}"), range(64)))

    assert answers == [[f"{number:04}.md"] for number in range(64)]


@pytest.mark.slow
def test_a_forked_process_opens_its_own_connections(index: DocumentIndex) -> None:
    matches(index)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, matches(index)[0].encode())
        os._exit(0)
    os.waitpid(child, 0)

    assert os.read(read_end, 100) == b"0007.md"
    assert matches(index) == ["0007.md"]
    os.close(read_end)
    os.close(write_end)


def test_a_new_file_is_opened_after_another_process_has_written_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers open the new index at the same moment."""
    folder = tmp_path / "documents"
    folder.mkdir()
    file = folder / "v1-000000.sqlite"
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr("time.sleep", lambda _: other.execute("COMMIT"))

        database = Database(tmp_path)
        with database.connection() as (generation, _):
            assert (generation, other.in_transaction) == (0, False)
        database.close()


def _search_elsewhere(folder: str) -> list[str]:
    index = DocumentIndex(Path(folder))
    try:
        return matches(index)
    finally:
        index.close()


@pytest.mark.slow
def test_several_processes_fill_the_same_index_at_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert pool.map(_search_elsewhere, [str(tmp_path)] * 6) == [["0007.md"]] * 6

    with closing(Database(tmp_path)) as database, database.connection() as (_, connection):
        assert connection.execute("SELECT count(*) FROM documents").fetchone() == (600,)
        assert connection.execute("SELECT count(*) FROM passages").fetchone() == (600,)
        connection.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 0)")


_FILL_AND_DIE = """
import os, signal, sys
from pathlib import Path
from tests.workers.index.test_database import LIBRARY
from handoff_queue.workers.index.index import DocumentIndex

def text_of(digest, seen=[]):
    seen.append(digest)
    if len(seen) == 400:
        os.kill(os.getpid(), signal.SIGKILL)
    return LIBRARY.text_of(digest)

DocumentIndex(Path(sys.argv[1])).search(LIBRARY.manifest, "word7", text_of=text_of)
"""


@pytest.mark.slow
def test_a_kill_during_the_filling_repeats_at_most_one_batch(
    tmp_path: Path, index: DocumentIndex
) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", _FILL_AND_DIE, str(tmp_path)],
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert killed.returncode == -signal.SIGKILL
    before = len(LIBRARY.fetched)

    assert matches(index) == ["0007.md"]
    assert len(LIBRARY.fetched) - before == 350
