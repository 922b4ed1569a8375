"""A file that a command writes is complete or unchanged, and no temporary file stays."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from handoff_queue.supervisor.cli.display.atomic_output import write_lines, write_out
from handoff_queue.supervisor.cli.display.terminal import OutputFailed


def test_an_existing_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("old")
    write_out(tmp_path / "page.html", "new")

    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("page.html", "new")]


def test_another_file_in_the_folder_of_the_target_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "rows.csv.part").write_text("the user's")
    write_out(tmp_path / "rows.csv", "new")

    assert (tmp_path / "rows.csv.part").read_text() == "the user's"


def test_each_of_two_writers_writes_a_whole_file(tmp_path: Path) -> None:
    """The second writer starts while the first one writes, and ends after it."""
    target, first_has_ended = tmp_path / "rows.jsonl", threading.Event()
    second_has_begun = threading.Event()

    def write_second() -> Iterator[str]:
        yield "second"
        second_has_begun.set()
        assert first_has_ended.wait(30)
        yield "second"

    def write_first() -> Iterator[str]:
        yield "first"
        assert second_has_begun.wait(30)
        yield "first"

    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(write_lines, target, write_second())
        write_lines(target, write_first())
        after_first = target.read_text()
        first_has_ended.set()
        second.result(30)

    assert after_first == "first\nfirst\n"
    assert target.read_text() == "second\nsecond\n"
    assert [file.name for file in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize("target", [".", "", "/"])
def test_an_empty_name_is_refused_like_a_folder(target: str) -> None:
    with pytest.raises(IsADirectoryError) as error:
        write_out(Path(target), "new")
    assert error.value.filename == str(Path(target))


def test_a_folder_is_refused_and_no_temporary_file_stays(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(IsADirectoryError) as error:
        write_out(tmp_path / "there", "new")

    assert error.value.filename == str(tmp_path / "there")
    assert [file.name for file in tmp_path.iterdir()] == ["there"]


def test_a_missing_folder_is_named_as_the_user_typed_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        write_out(tmp_path / "no" / "page.html", "new")
    assert error.value.filename == str(tmp_path / "no" / "page.html")


def test_the_target_of_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "real.html").write_text("old")
    (tmp_path / "page.html").symlink_to("real.html")
    write_out(tmp_path / "page.html", "new")

    assert (tmp_path / "page.html").is_symlink()
    assert (tmp_path / "real.html").read_text() == "new"


def test_a_pipe_is_written_and_stays_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        reads = pool.submit((tmp_path / "pipe").read_text)
        write_out(tmp_path / "pipe", "new")

        assert reads.result(30) == "new"
    assert (tmp_path / "pipe").is_fifo()
    assert [file.name for file in tmp_path.iterdir()] == ["pipe"]


def test_a_descriptor_that_another_process_reads_is_written() -> None:
    test_end, program_end = os.pipe()
    write_out(Path(f"/dev/fd/{program_end}"), "new")
    os.close(program_end)

    assert os.read(test_end, 100) == b"new"
    os.close(test_end)


def test_a_pipe_that_loses_its_reader_is_reported_and_no_other_file_changes(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipe.part").write_text("somebody's")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: os.close(os.open(tmp_path / "pipe", os.O_RDONLY)))
        with pytest.raises(OutputFailed, match="the pipe has no reader"):
            write_out(tmp_path / "pipe", "new" * 1_000_000)

    assert (tmp_path / "pipe.part").read_text() == "somebody's"


def test_a_log_that_is_open_as_a_descriptor_keeps_its_content(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        log.write("begun\n")
        log.flush()
        write_out(Path(f"/dev/fd/{log.fileno()}"), "new\n")
        log.seek(0, os.SEEK_END)
        log.write("over\n")

    assert (tmp_path / "log").read_text() == "begun\nnew\nover\n"
