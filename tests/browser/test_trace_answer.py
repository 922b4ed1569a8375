"""The answer and the timeline controls of a trace page work in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.types.handoff import ResultStatus
from tests.browser.driver import Browser
from tests.browser.pages import write_page
from tests.running_system import ROOT
from tests.supervisor.tracing.job_record_builder import JOB, JobRecordBuilder

pytestmark = [pytest.mark.browser, pytest.mark.slow]
DESKTOP, PHONE = (1280, 900), (390, 844)
HOURS = 36_000.0
ROWS = 145
ANSWER = """# Complaints

We ship **worldwide** [1], see [the terms](https://shop.example/terms) and ![x](https://evil.example/x.png).

| Order | What our terms promise to the customer in this case | Days |
|:--|:--|--:|
| A-1042 | A refund within 14 days of the return of the goods [2] | 14 |

<script>document.title = 'taken'</script>
"""


def cited(n: int, name: str, quote: str) -> dict[str, Any]:
    return {"n": n, "source": name, "quote": quote, "claim": "So.", "step": "check_0001"}


def rows_job(to: Path) -> Path:
    """Write the page of a job with 145 rows and one failure. Its last step starts 10 hours
    later.
    """
    builder = JobRecordBuilder()
    builder.role("planner", (0, 0, 3))
    for n in range(1, ROWS + 1):
        began = 4 + n % 12
        failure: dict[str, Any] = {
            "status": ResultStatus.FAILED,
            "error": "no terms",
            "output": None,
        }
        builder.step(f"check_{n:04}", (4, began, began + 3), **(failure if n == 77 else {}))
    builder.step("summary", (20 + HOURS, 20 + HOURS, 30 + HOURS), after="check_0001")
    citations = (
        cited(1, "terms.md", "We ship to all countries."),
        cited(2, "https://shop.example/terms", "A refund takes 14 days."),
    )
    return write_page(builder, to, answer=ANSWER, citations=citations)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rows_job(tmp_path_factory.mktemp("pages") / "rows.html")


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desk", "phone"])
def test_the_answer_is_the_first_thing_on_the_page_and_is_rendered(
    window: Browser, page: Path, size: tuple[int, int]
) -> None:
    window.resize(*size)
    window.open(page)
    window.screenshot(ROOT / "build" / f"trace-answer-{size[0]}.png")

    first = window.run("return document.querySelector('#jobs h2').textContent")
    top = window.run("return document.querySelector('.answer').getBoundingClientRect().top")
    assert (first, top < size[1]) == ("Answer", True)
    assert window.text(".answer strong") == "worldwide"
    assert window.count(".answer td") == 3
    assert window.run("return document.documentElement.scrollWidth") <= size[0]
    assert window.run("return document.title").startswith(JOB)
    assert window.console_errors() == []


def test_a_citation_number_links_to_the_document_and_the_proving_quote(
    window: Browser, page: Path
) -> None:
    window.resize(*DESKTOP)
    window.open(page)

    window.click(".answer table .cite")

    assert window.text(".sources li:target blockquote") == "A refund takes 14 days."
    assert window.text(".sources li:target strong") == "https://shop.example/terms"
    below, top = window.run(
        "return ['#tools', ':target'].map((one) =>"
        " document.querySelector(one).getBoundingClientRect()).map((box, n) => n ? box.top :"
        " box.bottom)"
    )
    assert below <= top < DESKTOP[1]


def test_similar_rows_are_folded_and_failures_stay_visible(window: Browser, page: Path) -> None:
    window.resize(*DESKTOP)
    window.open(page)

    assert window.text(".row.group .begin") == "check × 144"
    assert window.count(".row") == 4  # The planner, the group, the failed row and the summary.
    assert window.count(f'[id="{JOB}/check_0077.1"]') == 1

    window.click(".row.group button")
    assert window.count(".row") == 4 + 144
    window.click(".row.group button")
    window.type("input[type=search]", "check_0003")
    assert window.count(".row") == 1


def widths(window: Browser) -> list[float]:
    values: list[float] = window.run(
        "return [...document.querySelectorAll('.row:not(.folded) .worked')]"
        ".map((one) => one.getBoundingClientRect().width)"
    )
    return values


def test_a_night_without_work_is_hidden_until_the_user_shows_it(
    window: Browser, page: Path
) -> None:
    window.resize(*DESKTOP)
    window.open(page)
    before = widths(window)

    window.click(".controls input")

    assert min(before) > 40
    assert max(widths(window)) < 5


def test_a_wait_in_a_queue_is_hidden_as_idle_time(window: Browser, tmp_path: Path) -> None:
    builder = JobRecordBuilder()
    builder.step("a", (0, HOURS, HOURS + 5))
    window.open(write_page(builder, tmp_path / "queued.html"))

    assert min(widths(window)) > 100


def test_a_timeline_is_zoomed_with_the_keyboard_and_keeps_its_labels_in_sight(
    window: Browser, page: Path
) -> None:
    window.resize(*DESKTOP)
    window.open(page)
    before = widths(window)

    window.type('[aria-label="Zoom in"]', "\ue007\ue007")  # The key Enter in WebDriver.

    assert [
        round(after / earlier) for after, earlier in zip(widths(window), before, strict=True)
    ] == [4] * len(before)
    assert window.text(".zoom output") == "4×"
    label = window.run("return document.querySelector('.row .label').getBoundingClientRect().left")
    assert 0 <= label < 200
    assert window.run("return document.documentElement.scrollWidth") <= DESKTOP[0]


def test_a_legend_names_the_meaning_of_each_colour(window: Browser, page: Path) -> None:
    window.open(page)

    legend = window.text(".legend")
    for word in ("worked, ok", "failed", "waited", "its process was lost", "on the critical path"):
        assert word in legend


def test_a_print_shows_the_bars_in_their_colours_in_every_screen_theme(
    window: Browser, page: Path
) -> None:
    window.resize(*DESKTOP)
    window.open(page)
    window.print_media("dark")
    styles = window.run(
        "const at = (place) => getComputedStyle(document.querySelector(place));"
        " return [at('.track .worked').printColorAdjust, at('.track .worked').backgroundColor,"
        " at('body').backgroundColor, at('#tools').display, at('.answer').display]"
    )
    window.print_media(None)

    assert styles == ["exact", "rgb(23, 112, 60)", "rgb(255, 255, 255)", "none", "block"]
