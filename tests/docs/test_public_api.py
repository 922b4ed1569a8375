"""`import handoff_queue` gives the public API, and the documents import from nowhere else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import handoff_queue
from handoff_queue import testing
from tests.docs.pages import DOCS, ROOT, blocks

IMPORT = re.compile(r"^\s*(?:from|import) handoff_queue(\S*)", re.MULTILINE)
PLACE = re.compile(r"handoff_queue\.(?:shared|supervisor|workers|chaos)\.[a-z_.]*")
APPS = {"handoff_queue.supervisor.app", "handoff_queue.workers.app"}
"""Celery's command takes the path of an app."""
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("name", handoff_queue.__all__)
def test_each_public_name_is_there(name: str) -> None:
    assert getattr(handoff_queue, name) is not None


@pytest.mark.parametrize("name", testing.__all__)
def test_each_public_name_for_tests_is_there(name: str) -> None:
    assert getattr(testing, name) is not None


def test_a_name_that_is_not_public_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'StoreBooks'"):
        _ = handoff_queue.StoreBooks  # type: ignore[attr-defined]


def test_the_import_of_the_package_loads_none_of_its_modules() -> None:
    program = "import sys, handoff_queue; print([m for m in sys.modules if 'handoff_queue.' in m])"

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_sample_imports_from_the_package_and_from_no_module_of_it(page: Path) -> None:
    samples = "".join(blocks(page.read_text(), "python"))

    assert set(IMPORT.findall(samples)) <= {"", ".testing"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_for_users_names_no_private_module(page: Path) -> None:
    named = {place.rstrip(".") for place in PLACE.findall(page.read_text())}

    assert named <= APPS | {"handoff_queue.supervisor.cli.main"}
