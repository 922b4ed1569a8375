"""A Python process that has run some code, and that runs more code in forks of itself.

Tests use it for code whose effect on its process they check, if many tests need the same imports.
A fork starts in milliseconds, and its changes do not reach the other forks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import NamedTemporaryFile
from types import TracebackType
from typing import Self

_FORKS = """
import json as _json, os as _os, sys as _sys, traceback as _traceback

def _run(code):
    try:
        exec(code, globals())
        return 0
    except SystemExit as end:
        return end.code or 0
    except BaseException:
        _traceback.print_exc()
        return 1

for _line in _sys.stdin:
    _code, _environment, _output, _errors = _json.loads(_line)
    if (_child := _os.fork()) == 0:
        _os.dup2(_os.open(_output, _os.O_WRONLY), 1)
        _os.dup2(_os.open(_errors, _os.O_WRONLY), 2)
        _os.environ.clear()
        _os.environ.update(_environment)
        _exit_code = _run(_code)
        _sys.stdout.flush()
        _sys.stderr.flush()
        _os._exit(_exit_code)
    print(_os.waitstatus_to_exitcode(_os.waitpid(_child, 0)[1]), flush=True)
"""


class WarmInterpreter:
    """The process. Its forks run one after the other.

    Args:
        start: code that runs once. It must start no thread.
        folder: the working directory of the process.
    """

    def __init__(self, start: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", start + _FORKS],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.__exit__(kind, error, trace)  # It closes stdin, which ends the process.

    def run(self, code: str, **environment: str) -> CompletedProcess[str]:
        """Run code in a fork with these variables, in addition to those of this process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with NamedTemporaryFile("r") as output, NamedTemporaryFile("r") as errors:
            order = [code, {**os.environ, **environment}, output.name, errors.name]
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            exit_code = int(self._process.stdout.readline())
            return CompletedProcess(code, exit_code, output.read(), errors.read())
