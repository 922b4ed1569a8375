"""Fixture with the wheel that all tests of the package install."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from benchmarks.installs import build_wheel


@pytest.fixture(scope="module")
def wheel(own_certificates: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel once, also if several test processes need it. uv downloads
    missing packages."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "wheel"
    with (shared / "wheel.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            folder.mkdir()
            build_wheel(folder)
    (built,) = (folder / "dist").glob("*.whl")
    return built
