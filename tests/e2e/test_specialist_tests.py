"""The test file of docs/how-to/test-specialists.md passes as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked_processes
from tests.docs.samples import of_page
from tests.running_system import ROOT

pytestmark = pytest.mark.slow
PAGE = "docs/how-to/test-specialists.md"


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    files = {
        "our-specialists/orders.md": of_page("docs/how-to/add-a-specialist.md", "markdown"),
        "test-tools/shop.py": of_page(PAGE, "python", "def order_status"),
        "test_orders.py": of_page(PAGE, "python", "def test_"),
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    pytest_command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    completed = subprocess.run(
        forked_processes.with_forked_children([*pytest_command, "-W", "error"]),
        cwd=tmp_path,
        # The plugins of this repository's own tests take seconds, and a user does not have them.
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "3 passed" in completed.stdout
