"""The trace page shows a summary above the timeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.types.cost_quote import Estimate, Quote
from handoff_queue.supervisor.quoting.quote_history import convert_quote
from tests.browser.driver import Browser
from tests.browser.pages import write_page
from tests.supervisor.tracing.job_record_builder import JobRecordBuilder

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def estimate(likely: float) -> Estimate:
    return Estimate(likely=likely, most=2 * likely, drawn_likely=likely, drawn_most=2 * likely)


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        (Quote(), ""),
        (Quote(seconds=estimate(9.0)), "likely 9.0 s"),
        (Quote(microusd=estimate(27.0)), "likely $0.000027"),
        (Quote(microusd=estimate(12_300.0), seconds=estimate(9.0)), "likely $0.0123, 9.0 s"),
    ],
    ids=["nothing", "its time", "its cost", "both"],
)
def test_the_page_shows_the_known_parts_of_a_quote(
    window: Browser, tmp_path: Path, quote: Quote, text: str
) -> None:
    builder = JobRecordBuilder()
    builder.step("a", (0, 0, 3))

    window.open(write_page(builder, tmp_path / "quoted.html", quote=convert_quote(quote)))

    lines = window.text("#head").splitlines()
    assert "3.0 s of work in 1 handoff" in lines
    assert [line for line in lines if line.startswith("likely")] == [text] * bool(text)
    assert window.console_errors() == []
