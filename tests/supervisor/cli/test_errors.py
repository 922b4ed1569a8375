"""A command ends with one line and an exit code."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from handoff_queue.shared.types.errors import StoreError, StoreUnavailable, UserError
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.supervisor.cli.commands import ENTRIES, load_command
from handoff_queue.supervisor.cli.errors import (
    BAD_INPUT,
    end_like_ctrl_c,
    get_exit_code,
    run_guarded,
)
from handoff_queue.supervisor.cli.main import app


def exit_code_after(command: Callable[[], object]) -> object:
    with pytest.raises(SystemExit) as end:
        run_guarded(command)
    return end.value.code


def command_that_raises(error: BaseException) -> Callable[[], object]:
    def command() -> object:
        raise error

    return command


@pytest.mark.parametrize("debug", ["", "1"])
def test_an_internal_error_hides_the_secrets_of_the_process(
    debug: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "canary-77\\b")
    monkeypatch.setenv("HANDOFF_DEBUG", debug)
    error = RuntimeError("no answer for 'canary-77\\\\b' of redis://:canary-88@host")

    assert exit_code_after(command_that_raises(error)) == 70
    shown = capsys.readouterr().err
    assert "no answer for" in shown
    assert "canary" not in shown


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("wrong"), 2),
        (StoreUnavailable("gone"), 3),
        (StoreError("odd"), 1),
        (KeyboardInterrupt(), 130),
        (PermissionError(13, "Permission denied", "/x"), 1),
        (RuntimeError("a\nb"), 70),
    ],
)
def test_every_error_is_one_line_and_an_exit_code(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_after(command_that_raises(error)) == code

    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert output.err.startswith("handoff: ")


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOENT, "make its folder first, or name another file"),
        (errno.EISDIR, "it is a folder, so name a file"),
        (errno.EACCES, "change the permissions, or name another file"),
        (errno.ENOSPC, "free space on this disk, or use another one"),
        (errno.EIO, "check the path and its permissions, or name another file"),
    ],
)
def test_an_error_of_a_file_names_the_file_and_the_remedy(
    number: int, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = OSError(number, os.strerror(number), "/x/page.html")

    assert exit_code_after(command_that_raises(error)) == 1
    assert capsys.readouterr().err == f"handoff: /x/page.html: {os.strerror(number)}: {remedy}\n"


def test_a_command_returns_its_exit_code() -> None:
    assert exit_code_after(lambda: 4) == 4
    assert exit_code_after(lambda: None) == 0


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("ok", 0),
        ("partial", 5),
        ("failed", 1),
        ("cancelled", 130),
        ("running", 4),
        ("queued", 4),
        ("waiting", 4),
    ],
)
def test_a_jobs_status_is_an_exit_code(status: str, code: int) -> None:
    assert get_exit_code(JobStatus(status)) == code


def test_a_partial_answer_is_exit_code_0_for_a_caller_that_allows_it() -> None:
    assert get_exit_code(JobStatus.PARTIAL, allow_partial=True) == 0
    assert get_exit_code(JobStatus.FAILED, allow_partial=True) == 1


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_output_stays_silent_and_the_exit_code_is_kept(closed: str) -> None:
    process = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m handoff_queue.supervisor.cli.main --version {closed}'],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (process.returncode, "Traceback" in process.stderr) == (0, False)


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (
            "run x --max-turnz 3",
            "there is no option --max-turnz: did you mean --max-turns? (see `handoff run --help`)",
        ),
        (
            "watch j-0 --reconect=3",
            "there is no option --reconect: did you mean --reconnect? (see `handoff watch --help`)",
        ),
        ("run x --facts f", "there is no option --facts (see `handoff run --help`)"),
        ("list --colour", "there is no option --colour (see `handoff list --help`)"),
        (
            "run x --max-turns",
            "Option '--max-turns' requires an argument (see `handoff run --help`)",
        ),
        (
            "result",
            (
                "Missing argument 'JOB': `handoff list` shows the ids of jobs"
                " (see `handoff result --help`)"
            ),
        ),
        (
            "retry j-0 1",
            (
                "the command does not take '1': remove it, or put a text of several words into"
                " quotes (see `handoff retry --help`)"
            ),
        ),
        ("list --since 1h", "there is no option --since (see `handoff list --help`)"),
        (
            "fork j-0",
            "Missing option '--from': write --from STEP (see `handoff fork --help`)",
        ),
        (
            "run x --timeout 10x",
            (
                "Invalid value for '--timeout': '10x' is not a duration: write a number of seconds,"
                " or a duration such as 500ms, 45s, 10m, 1h30m or 7d (see `handoff run --help`)"
            ),
        ),
        (
            "run x --max-usd abc",
            "Invalid value for '--max-usd': must be a number, not 'abc' (see `handoff run --help`)",
        ),
        (
            "run x --max-rounds 11",
            (
                "Invalid value for '--max-rounds': must be at most 10, not 11 (see `handoff run"
                " --help`)"
            ),
        ),
        (
            "list -n 0",
            "Invalid value for '-n': must be at least 1, not 0 (see `handoff list --help`)",
        ),
        ("rum x", "there is no command 'rum': did you mean run? (see `handoff --help`)"),
        ("fly", "there is no command 'fly' (see `handoff --help`)"),
        ("--verson", "there is no option --verson: did you mean --version? (see `handoff --help`)"),
    ],
)
def test_a_wrong_command_line_is_answered_with_the_closest_word_and_the_commands_help(
    typed: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        exit_code_after(lambda: app(typed.split(), prog_name="handoff", standalone_mode=False))
        == BAD_INPUT
    )
    assert capsys.readouterr().err == f"handoff: {line}\n"


@pytest.mark.parametrize("name", ENTRIES)
def test_an_option_with_one_value_is_refused_if_it_is_given_twice(name: str) -> None:
    command = load_command(name)
    for option in command.params:
        if option.param_type_name == "argument" or option.is_flag or option.multiple:
            continue
        first, last = option.opts[0], option.opts[-1]
        problem = f"{max(option.opts, key=len)} is given twice: give it once"

        with pytest.raises(Exception, match=f"^{re.escape(problem)}$"):
            command.make_context(name, [first, "1", last, "2"])


@pytest.mark.parametrize("value", ["", "  "])
@pytest.mark.parametrize("name", ENTRIES)
def test_an_option_with_an_empty_value_is_refused(name: str, value: str) -> None:
    command = load_command(name)
    for option in command.params:
        if option.param_type_name == "argument" or option.is_flag:
            continue
        problem = f"{max(option.opts, key=len)} is empty: give it a value, or leave the option out"

        with pytest.raises(Exception, match=f"^{re.escape(problem)}$"):
            command.make_context(name, [option.opts[0], value])


def test_an_empty_value_of_a_repeatable_option_is_refused() -> None:
    with pytest.raises(Exception, match=r"^--specialists is empty"):
        load_command("run").make_context("run", ["--specialists", "mine", "--specialists", ""])


def test_an_empty_folder_of_keys_does_not_mean_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UserError, match="the SUBJECT is empty: name the folder"):
        load_command("keys").main(["init", ""], standalone_mode=False)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("to", "problem"),
    [
        ("-", "a golden set is a file: name one, such as golden.jsonl"),
        (".", "Is a directory"),
        ("missing/golden.jsonl", "No such file or directory"),
    ],
)
def test_a_golden_set_that_cannot_be_written_is_refused_before_the_job_is_read(
    to: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(Exception, match=problem):
        load_command("golden").make_context("golden", ["add", "j-0123456789ab", "--to", to])


def test_a_folder_of_documents_given_twice_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    typed = "run x --docs a --docs b".split()

    assert exit_code_after(lambda: app(typed, prog_name="handoff", standalone_mode=False)) == 2
    assert capsys.readouterr().err == (
        "handoff: --docs is given twice: give it once (see `handoff run --help`)\n"
    )


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_nohup_ignores_stays_ignored(kind: signal.Signals) -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(kind, signal.SIG_IGN)

        end_like_ctrl_c()

        assert signal.getsignal(kind) is signal.SIG_IGN
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
