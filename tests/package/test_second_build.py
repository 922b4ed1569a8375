"""A clone from which a user installs again after an update."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from benchmarks.installs import build_wheel_of, copy_sources

pytestmark = pytest.mark.slow
MODULE = "handoff_queue/shared/removed_later.py"
SPECIALIST = "handoff_queue/workers/specialists/removed_later.md"


@pytest.mark.usefixtures("own_certificates")
def test_a_second_build_leaves_out_files_that_the_new_version_has_removed(tmp_path: Path) -> None:
    clone = copy_sources(tmp_path)
    for name in (MODULE, SPECIALIST):
        (clone / name).write_text("")
    first = ZipFile(build_wheel_of(clone, tmp_path / "first"))
    for name in (MODULE, SPECIALIST):
        (clone / name).unlink()

    second = ZipFile(build_wheel_of(clone, tmp_path / "second"))

    assert set(first.namelist()) - set(second.namelist()) == {MODULE, SPECIALIST}
