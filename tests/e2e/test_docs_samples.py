"""The sample files in the docs work with the commands next to them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.docs.samples import PROMPT, Sample, calls, commands, samples
from tests.e2e.commands import Handoff
from tests.running_system import ROOT, RunningSystem
from tests.warm_interpreter import WarmInterpreter

pytestmark = pytest.mark.slow
SAMPLES = samples()
FIRST_PROGRAMS = [
    sample
    for sample in SAMPLES
    if sample.language == "python" and sample.page.startswith(("README", "docs/get-started/"))
]

TRANSCRIPTS = [
    sample
    for sample in SAMPLES
    if (sample.page == "README.md" and "handoff run" in sample.text)
    or (sample.page == "docs/get-started/offline.md" and sample.heading == "1. Run one job")
]
"""Samples that show the output of the first `handoff run`."""
NAME = r"j-(?:[a-z2-7]{16}|[0-9a-f]{12})|redis://\S+|/\S+(?=/\.handoff/)|\w+:\d+(?=\s|$)"
"""Ids, addresses, folders and processes differ in each run."""
FIGURE = re.compile(rf"{NAME}|[\d,.]*\d")
NAME_OR_SECONDS = re.compile(rf"{NAME}|\d+\.\d+")
"""The built-in specialists and the offline model use the same tokens in each run."""


@pytest.fixture(scope="module")
def client_process() -> Iterator[WarmInterpreter]:
    """Yield a process that has imported the client."""
    with WarmInterpreter("import handoff_queue; handoff_queue.connect", ROOT) as interpreter:
        yield interpreter


@pytest.mark.parametrize("sample", FIRST_PROGRAMS, ids=str)
def test_a_first_program_runs_on_a_system(
    client_process: WarmInterpreter, system: RunningSystem, sample: Sample
) -> None:
    done = client_process.run(sample.text, HANDOFF_REDIS_URL=system.redis_url)

    assert (done.returncode, done.stderr) == (0, "")
    if "jobs.events" in sample.text:
        assert "job_ended" in done.stdout
        assert "Made without a language model" in done.stdout


def generalized(line: str, differing: re.Pattern[str] = FIGURE) -> str:
    """Return a line of output without the parts that differ between two runs."""
    return " ".join(differing.sub("N", line).split())


def missing_lines(
    shown: Iterable[Sample], done: CompletedProcess[str], differing: re.Pattern[str] = FIGURE
) -> set[str]:
    """Return the output lines of samples that a command did not print."""
    output_of_run = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    printed = {generalized(line, differing) for line in output_of_run}
    lines = [line for sample in shown for line in sample.text.splitlines()]
    output = [line for line in lines if line.strip(" .") and not line.startswith(PROMPT)]
    return {line for line in output if generalized(line, differing) not in printed}


def typed(shown: Iterable[Sample], command: str) -> list[str]:
    """Return the arguments of the first call of a command in samples."""
    lines = [line for sample in shown for line in commands(sample.text)]
    words = [call for line in lines for call in calls(line)]
    return next(call[1:] for call in words if call[:2] == ["handoff", command])


def test_the_transcript_of_run_is_its_output_with_the_same_tokens(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    arguments = typed(TRANSCRIPTS, "run")

    done = Handoff(tmp_path).run(*arguments, COLUMNS="200", HANDOFF_MODE="auto")

    assert missing_lines(TRANSCRIPTS, done, NAME_OR_SECONDS) == set()


def test_the_transcript_of_watch_is_its_output(system: RunningSystem, tmp_path: Path) -> None:
    section = [
        sample
        for sample in SAMPLES
        if sample.page == "docs/get-started/offline.md" and sample.heading.startswith("3.")
    ]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    handoff = Handoff(tmp_path)
    url = system.redis_url

    submitted = handoff.run(*typed(section, "submit"), HANDOFF_REDIS_URL=url, HANDOFF_MODE="auto")
    done = handoff.run("watch", submitted.stdout.strip(), HANDOFF_REDIS_URL=url)

    assert missing_lines([block for block in section if block.language == "text"], done) == set()
