"""Test processes of pytest-xdist as forks of one process that has imported all test files.

The imports of the test files take seven seconds of processor time. Each test process would repeat
them, and each would start its own fork server for Celery processes and commands.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Iterable, Sequence

import pytest
from execnet import XSpec
from execnet.gateway_io import popen_bootstrapline

from handoff_queue.shared.local.fork_server import ForkServer, is_supported
from tests import forked_processes

ARGUMENTS = "TESTS_PYTEST_ARGUMENTS"
THIS_MODULE = "tests.forked_test_processes"
IMPORTS = f"{THIS_MODULE}:import_test_files"
"""The import of the test files, as an entry of `ForkServer`."""


def fork_test_processes(config: pytest.Config, specs: Iterable[XSpec]) -> None:
    """Let xdist fork its test processes, and share the fork server of Celery processes."""
    if not is_supported():
        return
    server = ForkServer(
        [IMPORTS],
        forked_processes.environment_with({ARGUMENTS: json.dumps(config.invocation_params.args)}),
    )
    server.__enter__()
    atexit.register(server.__exit__, None, None, None)
    if "not slow" not in config.option.markexpr:
        # It imports modules for seconds, while the other server imports the test files.
        forked_processes.shared_fork_server()
    for spec in specs:
        spec.python = f"{forked_processes.forked_python(server)} -P -m {THIS_MODULE}"
    os.environ[forked_processes.SHARED] = forked_processes.offer_fork_server()


class _ImportsOnly:
    """Plugin that imports the test files without collecting tests."""

    has_failed = False

    def pytest_pycollect_makeitem(self) -> list[pytest.Item]:
        """Return no tests for any name of a module."""
        return []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note that a test file cannot be imported."""
        self.has_failed |= report.failed


def import_test_files() -> None:
    """Import the test files that the arguments of pytest select.

    pytest captures no output here, because a module may keep the standard streams of its import.
    If an import fails, replace this fork server by a new interpreter without test files. Each test
    process then imports the files itself, and reports the error.
    """
    imports = _ImportsOnly()
    arguments: Sequence[str] = json.loads(os.environ[ARGUMENTS])
    pytest.main([*arguments, "-n0", "--collect-only", "-q", "-s"], plugins=[imports])
    if imports.has_failed:
        command = [word for word in sys.orig_argv if word != IMPORTS]
        os.execv(sys.executable, command)  # it keeps the socket for requests
    # In a new clone, each test process would compute the characters of texts for two seconds.
    # pytest must import Hypothesis first.
    from hypothesis.internal import charmap

    charmap.intervals_from_codec("utf-8")


if __name__ == "__main__":
    exec(popen_bootstrapline)  # the program that execnet gives to a new interpreter
