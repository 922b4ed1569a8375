"""A process is set up once."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from handoff_queue.shared.runtime.process_resources import raise_open_file_limit


@pytest.mark.slow
def test_a_process_raises_its_limit_of_open_files_to_the_maximum() -> None:
    """Most systems start a process with a limit of 1,024 open files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowered = (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (256, r.getrlimit(r.RLIMIT_NOFILE)[1]))"
    )
    code = (
        f"{lowered};"
        " from handoff_queue.shared.runtime.process_resources import raise_open_file_limit;"
        " raise_open_file_limit();"
        " print(*r.getrlimit(r.RLIMIT_NOFILE))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == [
        str(min(hard, 65_536) if hard != resource.RLIM_INFINITY else 65_536),
        str(hard),
    ]


def test_a_process_logs_a_refused_file_limit_and_continues(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuses(_which: int, _limits: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _which: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuses)
    raise_open_file_limit()

    assert "not let this process open more than 256 files" in caplog.text
