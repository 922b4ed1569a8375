"""The test file of docs/how-to/test-specialists.md passes as a user runs it, and the program of
docs/how-to/add-a-specialist.md prints the output of the page. Both run in the shell of
`handoff up`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from handoff_queue.shared.trust.key_files import build_key_variables, make_keys
from tests import forked_processes
from tests.docs.samples import of_page
from tests.e2e.commands import Handoff
from tests.running_system import ROOT

pytestmark = pytest.mark.slow
GUIDE = "docs/how-to/add-a-specialist.md"
PAGE = "docs/how-to/test-specialists.md"


def write_files(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The variables that `handoff up` prints. The Redis does not answer."""
    keys = tmp_path / "keys"
    make_keys(keys)
    return {"HANDOFF_REDIS_URL": "redis://127.0.0.1:1/0", **build_key_variables(keys, "client")}


def test_the_tests_of_the_page_pass(tmp_path: Path, shell: dict[str, str]) -> None:
    files = {
        "our-specialists/orders.md": of_page(GUIDE, "markdown"),
        "test-tools/shop.py": of_page(PAGE, "python", "def order_status"),
        "test_orders.py": of_page(PAGE, "python", "def test_"),
    }
    write_files(tmp_path, files)

    pytest_command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    completed = subprocess.run(
        forked_processes.with_forked_children([*pytest_command, "-W", "error"]),
        cwd=tmp_path,
        # The plugins of this repository's own tests take seconds, and a user does not have them.
        env={
            **os.environ,
            **shell,
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "3 passed" in completed.stdout


def test_the_program_of_the_guide_prints_the_result_of_the_tool(
    tmp_path: Path, shell: dict[str, str]
) -> None:
    program = of_page(GUIDE, "python", "running_system")
    files = {
        "our-specialists/orders.md": of_page(GUIDE, "markdown"),
        "our-tools/shop.py": of_page("docs/how-to/add-a-tool.md", "python", "def order_status"),
    }
    write_files(tmp_path, files)
    home = tmp_path / "home"
    home.mkdir()

    completed = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT), **shell},
        capture_output=True,
        text=True,
        check=False,
    )

    assert completed.stdout == of_page(GUIDE, "text", "order_status#1"), completed.stderr


@pytest.mark.parametrize(("named", "remarks"), [("greet", "0 remarks"), ("now", "1 remark")])
def test_a_tool_that_no_specialist_names_is_a_remark_of_the_lint(
    tmp_path: Path, named: str, remarks: str
) -> None:
    specialist = of_page(GUIDE, "markdown").replace("order_status", named)
    tool = 'def greet() -> str:\n    "Says something."\n    return "hello"\n'
    write_files(tmp_path, {"own/orders.md": specialist, "tools/greet.py": tool})

    done = Handoff(tmp_path).run(
        "specialists", "--lint", "--specialists", "own", "--tools", "tools"
    )

    assert done.stderr.splitlines()[-1].endswith(f", {remarks}")
    assert done.returncode == (remarks != "0 remarks")
