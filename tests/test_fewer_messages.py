"""The process that starts the test processes gets fewer messages, and the same summary."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked_processes import ROOT

pytestmark = pytest.mark.slow

CONFTEST = """
from tests.fewer_messages import send_fewer_messages

def pytest_sessionstart(session):
    send_fewer_messages(session.config)

def pytest_runtest_logreport(report):
    print("report:", report.when, report.outcome)
"""
TESTS = """
import pytest

@pytest.fixture
def refusing():
    raise ValueError

@pytest.fixture
def ending_badly():
    yield
    raise ValueError

@pytest.fixture
def absent():
    pytest.skip("absent")

def test_that_passes(): pass
def test_that_fails(): assert False
def test_without_its_fixture(refusing): pass
def test_whose_fixture_ends_badly(ending_badly): pass
def test_that_is_skipped(absent): pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_file.py").write_text(TESTS)
    return tmp_path


def output_of(folder: Path, *options: str) -> str:
    """Return the output of pytest with one test process."""
    arguments = ["-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider", *options]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the other plugins take seconds
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", "-n1", "-s", *arguments, str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def test_each_failure_is_in_the_summary_and_no_fixture_that_works(folder: Path) -> None:
    output = output_of(folder)

    assert "1 failed, 2 passed, 1 skipped, 2 errors" in output
    assert "report: setup failed" in output
    assert "report: teardown failed" in output
    assert "report: setup passed" not in output
    assert "report: teardown passed" not in output


def test_an_option_that_shows_durations_gets_all_reports(folder: Path) -> None:
    output = output_of(folder, "--durations=3")

    assert "report: setup passed" in output
    assert "report: teardown passed" in output
