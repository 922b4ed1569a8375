"""The benchmarks run and print their table. The figures are not checked, because the machine is
shared.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.critical_path import run_jobs
from benchmarks.table import HEAD
from benchmarks.tokens.__main__ import MODEL, SYSTEMS, measure
from benchmarks.tokens.__main__ import main as compare_tokens
from benchmarks.tokens.jobs import list_jobs
from benchmarks.tokens.prompt_cache import MIN_TOKENS
from tests import forked_processes

pytestmark = pytest.mark.slow


def test_the_table_has_a_line_for_every_row_under_every_load(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drivers and the model servers are forked, too."""
    rows = ["canvas", "1 worker"]
    calls = ["1:streamed"]
    fork_server = forked_processes.shared_fork_server()
    if fork_server is not None:
        monkeypatch.setattr(sys, "executable", forked_processes.python())
    main(["--quick", "--rows", *rows, "--calls", *calls], fork_server=fork_server)

    output = capsys.readouterr().out.splitlines()
    lines = [
        line.split(" | ") for line in output[output.index(HEAD) + 2 :] if line.startswith("| ")
    ]
    loads = 2 * len(calls)  # one job and five jobs at once
    assert len(lines) == loads * len(rows)
    assert all(float(figure) > 0 for _, _, _, *figures in lines for figure in figures[:3])


def test_the_table_of_tokens_has_a_line_for_each_agent_by_hand(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks.tokens", "--rows", "by hand, one agent"])

    compare_tokens()

    output = capsys.readouterr().out.splitlines()
    for variant in ("", ", documents in the prompt", ", documents in the prompt, checked claims"):
        name = f"| by hand, one agent{variant} | "
        rows = [line.split(" | ") for line in output if line.startswith(name)]
        assert int(rows[0][2].replace(",", "")) > 0, "the input tokens"


def test_the_tokens_of_this_project_with_built_in_specialists_are_counted() -> None:
    system = next(system for system in SYSTEMS if system.name == "this project, single")

    row = measure(system, MODEL, MIN_TOKENS)

    assert row.spending.calls == 2 * len(list_jobs())


@pytest.mark.alone
@pytest.mark.xdist_group("others")
def test_steps_of_random_dags_start_when_their_dependencies_have_ended(tmp_path: Path) -> None:
    """The bound is 1.25: a wait for an unneeded call adds a quarter of the critical path to each
    run. A busy machine adds less to one run of four.
    """
    fork_server = forked_processes.shared_fork_server()
    dags = (8, 15, 8, 15)
    ratios = []
    with closing(run_jobs(tmp_path, dags, 0.25, 0.75, fork_server=fork_server)) as runs:
        for run in runs:
            ratios.append(run.ratio)
            if run.ratio < 1.25:
                break

    assert min(ratios) < 1.25
