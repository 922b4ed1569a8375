"""Every program of the how-to pages runs against a real Redis."""

from __future__ import annotations

import pytest

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
