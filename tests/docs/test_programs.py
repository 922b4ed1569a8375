"""Every program of the how-to pages runs against a real Redis."""

from __future__ import annotations

import ast
from contextlib import closing

import pytest

from handoff_queue import connect
from tests.docs.pages import ROOT
from tests.docs.samples import Sample
from tests.docs.test_samples import SAMPLES, check_of, check_program

PROGRAMS = [
    sample
    for sample in SAMPLES
    if sample.page.startswith("docs/how-to/") and check_of(sample) is check_program
]


@pytest.mark.parametrize("sample", PROGRAMS, ids=str)
def test_a_program_of_a_how_to_page_runs(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, sample: Sample
) -> None:
    monkeypatch.setenv("HANDOFF_REDIS_URL", redis_url)

    names = {"__name__": "sample", "__file__": str(ROOT / sample.page)}
    exec(compile(sample.text, str(sample), "exec"), names)

    with closing(connect(redis_url)) as jobs:
        assert len(jobs.newest()) == calls_at_once(sample, "submit")
        assert len(jobs.schedules()) == calls_at_once(sample, "add_schedule")


def calls_at_once(sample: Sample, method: str) -> int:
    """Count the calls of a method that a program makes without the call of its functions."""
    calls = 0
    for statement in ast.parse(sample.text).body:
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            calls += ast.unparse(statement).count(f".{method}(")
    return calls
