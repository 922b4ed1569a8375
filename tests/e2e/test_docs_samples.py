"""The sample files in the docs work with the commands next to them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.samples import Sample, calls, commands, samples
from tests.e2e.commands import Handoff
from tests.running_system import ROOT, RunningSystem

pytestmark = pytest.mark.slow
SAMPLES = samples()
LINTS = {
    tuple(words[1:])
    for sample in SAMPLES
    if sample.language == "console"
    for command in commands(sample.text)
    for words in calls(command)
    if words[:2] == ["handoff", "specialists"] and "--lint" in words
}

FIRST_PROGRAMS = [
    sample
    for sample in SAMPLES
    if sample.language == "python" and sample.page.startswith(("README", "docs/get-started/"))
]


def of_page(page: str, language: str, holding: str = "") -> str:
    """Return the first sample of a page and language that holds these words."""
    return next(
        one.text
        for one in SAMPLES
        if (one.page, one.language) == (page, language) and holding in one.text
    )


@pytest.fixture
def handoff(tmp_path: Path) -> Handoff:
    """Return a folder with the specialists and tools of the documents, as the commands name them."""
    for folder in ("our-specialists", "our-tools"):
        (tmp_path / folder).mkdir()
    orders = of_page("docs/how-to/add-a-specialist.md", "markdown")
    (tmp_path / "our-specialists" / "orders.md").write_text(orders)
    (tmp_path / "our-tools" / "shop.py").write_text(of_page("docs/how-to/add-a-tool.md", "python"))
    return Handoff(tmp_path)


@pytest.mark.parametrize("arguments", sorted(LINTS))
def test_the_lint_of_the_documents_has_no_remark(
    handoff: Handoff, arguments: tuple[str, ...]
) -> None:
    done = handoff.run(*arguments)

    last = done.stderr.splitlines()[-1]
    assert (done.returncode, done.stdout, last) == (0, "", "12 specialists, 0 remarks")


@pytest.mark.parametrize("sample", FIRST_PROGRAMS, ids=str)
def test_a_first_program_runs_on_a_system(system: RunningSystem, sample: Sample) -> None:
    done = subprocess.run(
        [sys.executable, "-c", sample.text],
        cwd=ROOT,
        env={**os.environ, "HANDOFF_REDIS_URL": system.redis_url},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    if "jobs.events" in sample.text:
        assert "job_ended" in done.stdout
        assert "Made without a language model" in done.stdout
