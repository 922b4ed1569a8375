"""The trace page of a job works in a real browser."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from handoff_queue.shared.store.handoff_info import ClaimEnd
from handoff_queue.supervisor.client.request import Request
from tests.browser.driver import Browser
from tests.browser.pages import write_page
from tests.running_system import DOCUMENTS, ROOT, running_system
from tests.supervisor.tracing.job_record_builder import JOB, JobRecordBuilder

pytestmark = [pytest.mark.browser, pytest.mark.slow]
REQUEST = "Compare Qdrant, pgvector and Milvus for a team that needs filtering and durable storage"
HOSTILE = (
    "</script><script>document.title='taken'</script><img src=x"
    " onerror=\"document.title='taken'\"><b>bold</b>"
)
DESKTOP, PHONE = (1200, 900), (390, 844)


@pytest.fixture(scope="module")
def trace_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the trace page of a job that real workers did."""
    folder = tmp_path_factory.mktemp("system")
    with running_system(folder, settings={"HANDOFF_KEEP_TURNS": "true"}) as system:
        jobs = system.jobs()
        job_id = jobs.submit(Request(REQUEST, documents=DOCUMENTS))
        assert jobs.result(job_id, wait_s=60).status == "ok"
        command = [
            sys.executable,
            "-m",
            "handoff_queue.supervisor.cli.main",
            "trace",
            job_id,
            "-o",
            str(folder / "job.html"),
        ]
        subprocess.run(command, env=system.environment, cwd=ROOT, check=True, capture_output=True)
    return folder / "job.html"


def test_a_clicked_handoff_shows_the_task_the_answer_and_each_turn(
    window: Browser, trace_page: Path
) -> None:
    window.resize(*DESKTOP)
    window.open(trace_page)
    window.screenshot(ROOT / "build" / "trace.png")

    window.click('[id$="/research_qdrant.1"] button')
    window.click('[id$="/research_qdrant.1"] details:last-child summary')

    text = window.text('[id$="/research_qdrant.1"]')
    assert "Asked" in text
    assert "Answered" in text
    assert "turn 1:" in text
    assert "search_documents" in text
    assert window.console_errors() == []


def test_the_page_has_the_answer_the_events_and_the_share_of_each_specialist(
    window: Browser, trace_page: Path
) -> None:
    window.resize(*DESKTOP)
    window.open(trace_page)

    window.click("section > details:last-child summary")

    text = window.text()
    assert "review, round 1: PASS" in text
    assert "Qdrant is an open-source vector database" in text
    assert "researcher\t3\t" in text


def test_an_ended_handoff_whose_turns_are_gone_says_so(window: Browser, tmp_path: Path) -> None:
    builder = JobRecordBuilder()
    builder.step("a", (0, 0, 3))
    window.open(write_page(builder, tmp_path / "gone.html"))

    window.click(".row button")

    assert "messages and tool calls of this handoff are not stored" in window.text(".detail")


def test_a_search_and_the_critical_path_filter_stay_active(
    window: Browser, trace_page: Path
) -> None:
    window.resize(*DESKTOP)
    window.open(trace_page)
    everything = window.count(".row")

    window.click("input[type=checkbox]")
    critical = window.count(".row")
    window.click("input[type=checkbox]")
    window.type("input[type=search]", "researcher qdrant")

    assert 1 <= critical < everything
    assert window.count(".row") == 1


@pytest.mark.parametrize(
    ("attempts", "text"), [(1, "3.0 s of work in 1 handoff"), (4, "12.0 s of work in 4 handoffs")]
)
def test_consecutive_attempts_are_one_path_with_a_written_count(
    window: Browser, tmp_path: Path, attempts: int, text: str
) -> None:
    builder = JobRecordBuilder()
    for n in range(attempts):
        builder.step("a", (3 * n, 3 * n, 3 * n + 3), attempt=n + 1)

    window.open(write_page(builder, tmp_path / "attempts.html"))

    assert text in window.text("#head").splitlines()
    assert window.count("svg .edge.critical") == attempts - 1


def test_lost_processes_their_gaps_and_their_successors_are_shown_separately(
    window: Browser, tmp_path: Path
) -> None:
    builder = JobRecordBuilder()
    builder.step("a", (0, 0, 30))
    builder.past_claims("a", (0, 6, ClaimEnd.LOST), (9, 12, ClaimEnd.RELEASED), last_claim_at=21)
    window.resize(*DESKTOP)
    window.open(write_page(builder, tmp_path / "lost.html"))

    window.click(".row button")
    window.screenshot(ROOT / "build" / "trace-lost.png")

    places = window.run(
        "return [...document.querySelectorAll('.track i')].map((i) => [i.className, i.style.left,"
        " i.style.width])"
    )
    assert places == [
        ["lost", "0%", "20%"],
        ["waited", "20%", "10%"],
        ["worked ok", "30%", "10%"],
        ["waited", "40%", "30%"],
        ["worked ok", "70%", "30%"],
    ]
    detail = window.text(".detail")
    assert "3: 1 process was lost" in detail
    assert "w10@host:6: 6.0 s, lost; then nobody for 3.0 s" in detail
    assert "w11@host:6: 3.0 s, handed it back; then nobody for 9.0 s" in detail
    assert "18.0 s of work in 1 handoff" in window.text("#head")


def test_a_box_of_the_graph_leads_to_its_handoff(window: Browser, trace_page: Path) -> None:
    window.resize(*DESKTOP)
    window.open(trace_page)

    window.run("document.querySelector('svg g').dispatchEvent(new MouseEvent('click'))")

    assert window.count(".detail") == 1


def test_hundreds_of_equal_chains_are_one_box_for_each_link(
    window: Browser, tmp_path: Path
) -> None:
    """Each row has a second step that depends on its first step."""
    builder = JobRecordBuilder()
    builder.role("planner", (0, 0, 1))
    for n in range(300):
        builder.step(f"check_{n}", (1, 1, 2))
        builder.step(f"answer_{n}", (2, 2, 3), after=f"check_{n}")

    window.open(write_page(builder, tmp_path / "chains.html"))
    window.run(
        "[...document.querySelectorAll('summary')].find((one) => one.textContent ==="
        " 'Graph').click()"
    )

    assert [
        window.run(f"return document.querySelectorAll('svg g text')[{n}].textContent")
        for n in range(3)
    ] == [
        "planner.1",
        "researcher × 300",
        "researcher × 300",
    ]
    assert (window.count("svg g"), window.count("svg path")) == (3, 2)


def test_the_page_marks_figures_that_are_upper_bounds(window: Browser, tmp_path: Path) -> None:
    builder = JobRecordBuilder()
    builder.step("a", (0, 0, 1))
    builder.cut_calls("a", calls=1, tokens=100)

    window.open(write_page(builder, tmp_path / "cut.html"))

    assert "at most 120" in window.text("#head")
    assert "at most 120" in window.text("#jobs table")


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desk", "phone"])
def test_nothing_is_wider_than_the_screen(
    window: Browser, trace_page: Path, size: tuple[int, int]
) -> None:
    window.resize(*size)
    window.open(trace_page)
    window.click('[id$="/research_qdrant.1"] button')
    window.screenshot(ROOT / "build" / f"trace-{size[0]}.png")

    assert window.run("return document.documentElement.scrollWidth") <= size[0]


def test_the_page_is_dark_if_the_reader_prefers_that(window: Browser, trace_page: Path) -> None:
    colours = []
    for scheme in ("light", "dark"):
        window.prefer(scheme)
        window.open(trace_page)
        colours.append(
            window.run(
                "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
            )
        )
    window.screenshot(ROOT / "build" / "trace-dark.png")
    window.prefer("light")

    assert colours == [
        ["rgb(255, 255, 255)", "rgb(26, 29, 33)"],
        ["rgb(15, 18, 22)", "rgb(230, 233, 237)"],
    ]


def test_a_models_text_is_shown_verbatim_and_runs_nothing(window: Browser, tmp_path: Path) -> None:
    builder = JobRecordBuilder(HOSTILE)
    builder.role("planner", (0, 0, 1), task=HOSTILE, output=HOSTILE, notes=(HOSTILE,))
    window.open(write_page(builder, tmp_path / "hostile.html"))

    window.click(".row button")

    assert window.text(".detail").count(HOSTILE) == 3
    assert window.run("return document.title").startswith(JOB)
    assert window.console_errors() == []


def many_contracts_page(to: Path) -> Path:
    """Write the page of a job with 1,000 handoffs whose long names differ only in a number."""
    builder = JobRecordBuilder()
    builder.role("planner", (0, 0, 1))
    for n in range(1_000):
        began = 1 + n % 75
        builder.step(
            f"check_the_supplier_contract_{n:04}",
            (1, began, began + 14),
            task=f"Read the contract with supplier number {n}.",
        )
    builder.role("assessor", (90, 90, 91))
    return write_page(builder, to)


TICKS = (
    "return [...document.querySelectorAll('.axis span')].filter((one) =>"
    " one.offsetParent).map((one) => one.getBoundingClientRect())"
)


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desk", "phone"])
def test_many_handoffs_fit_the_screen_and_their_bars_do_not_overlap(
    window: Browser, tmp_path: Path, size: tuple[int, int]
) -> None:
    window.resize(*size)
    window.open(many_contracts_page(tmp_path / "contracts.html"))
    window.screenshot(ROOT / "build" / f"trace-many-{size[0]}.png")

    assert window.run("return document.documentElement.scrollWidth") <= size[0]
    ticks = window.run(TICKS)
    assert len(ticks) >= 2
    assert all(earlier["right"] < later["left"] for earlier, later in pairwise(ticks))
    window.click(".row.group button")
    ends = window.run(
        "return [...document.querySelectorAll('.row:not(.group)')].slice(1, 40).map((row) => {"
        " const [label, end] = ['.label', '.end'].map((one) =>"
        " row.querySelector(one).getBoundingClientRect()); return end.width > 0 && end.right <="
        " label.right + 0.5; })"
    )
    assert all(ends)
    assert window.run(
        "return document.querySelectorAll('.row:not(.group)')[8].querySelector('.end').textContent"
    ).endswith("_0007.1")


def test_one_click_leads_to_a_section_below_a_thousand_rows(
    window: Browser, tmp_path: Path
) -> None:
    window.resize(*PHONE)
    window.open(many_contracts_page(tmp_path / "contracts.html"))

    for name in ("Events", "Graph", "Timeline"):
        window.run(
            "[...document.querySelectorAll('#tools a')].find((one) =>"
            f" one.textContent.startsWith({name!r})).click()"
        )
        place = window.run(
            "const all = [...document.querySelectorAll('section > h2, section > details')]; const"
            f" one = all.find((it) => it.textContent.startsWith({name!r})); return [one.open ??"
            " true, one.getBoundingClientRect().top,"
            " document.querySelector('#tools').getBoundingClientRect().bottom]"
        )
        is_open, top, below = place
        assert is_open
        assert below - 1 <= top < PHONE[1], name
    assert window.console_errors() == []


def test_a_handoff_is_found_by_the_words_of_its_task(window: Browser, tmp_path: Path) -> None:
    window.open(many_contracts_page(tmp_path / "contracts.html"))

    window.type("input[type=search]", "Supplier NUMBER 777")

    assert window.count(".row") == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (59.97, "1 min 0 s"),
        (119.8, "2 min 0 s"),
        (3_599.9, "1 h 0 min"),
        (7_170, "2 h 0 min"),
        (59.9, "59.9 s"),
    ],
)
def test_a_duration_never_shows_60_seconds_or_60_minutes(
    window: Browser, tmp_path: Path, seconds: float, text: str
) -> None:
    builder = JobRecordBuilder()
    builder.step("a", (0, 0, seconds))

    window.open(write_page(builder, tmp_path / "time.html"))

    assert f"{text} of work in 1 handoff" in window.text("#head")


def test_the_time_to_show_and_open_handoffs_grows_with_their_number_and_not_with_its_square(
    window: Browser, tmp_path: Path
) -> None:
    took_s = {count: seconds_to_open_a_handoff(window, tmp_path, count) for count in (100, 1_000)}

    assert took_s[1_000] < 30 * took_s[100]


def seconds_to_open_a_handoff(window: Browser, tmp_path: Path, count: int) -> float:
    """Return the seconds to load the page of a job, search one of its handoffs and open it."""
    builder = JobRecordBuilder()
    builder.role("planner", (0, 0, 1))
    for n in range(count):
        builder.step(f"s{n}", (1, 1 + n % 50, 3 + n % 50), output="It is so. " * 200)
    page = write_page(builder, tmp_path / f"{count}.html")
    began = time.monotonic()

    window.open(page)
    name = f"s{count - 1}"
    window.type("input[type=search]", name)
    window.click(f'[id$="/{name}.1"] button')

    assert window.count(".row") == 1
    assert "It is so." in window.text(".detail")
    return time.monotonic() - began
