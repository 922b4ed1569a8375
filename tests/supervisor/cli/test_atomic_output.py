"""A file that a command writes is complete or unchanged, and no temporary file stays."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from handoff_queue.supervisor.cli.display.atomic_output import write_out
from handoff_queue.supervisor.cli.display.terminal import OutputFailed


def test_an_existing_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("old")
    write_out(tmp_path / "page.html", "new")

    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("page.html", "new")]


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
