"""The novelty check: an added step found news, or only known claims. Rounds of added steps without
news end.
"""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.types.events import JobStatus, PlanPatched
from handoff_queue.shared.types.handoff import Citation, Claim, HandoffResult, ResultStatus
from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.plan import Patch, Step
from handoff_queue.supervisor.lifecycle.answer import assemble
from handoff_queue.supervisor.lifecycle.commands import IssueGroup, IssueRole
from handoff_queue.supervisor.lifecycle.novelty_check import is_known, repeats_text
from handoff_queue.supervisor.lifecycle.plan_patches import FRUITLESS_ROUNDS
from tests.doubles.call_counts import calls_in
from tests.doubles.results import a_result_of
from tests.doubles.simulated_job import SimulatedJob

LOGS = "Three requests timed out at 14:02 because the pool of the database was empty, and the checkout service tried none of them again."
OTHER = (
    "The deployment of Tuesday had made the pool smaller, which nobody noticed "
    "before customers complained about their failing payments."
)


def cited(start: int = 0, source: str = "a") -> Citation:
    return Citation(
        source=f"{source}.md", digest=source * 64, start=start, end=start + 20, quote="x" * 20
    )


def claim(name: str, text: str, *sources: Citation, **parts: str) -> Claim:
    return Claim(id=name, text=text, sources=sources, **parts)


def height(
    name: str, value: str = "330", unit: str = "m", *sources: Citation, **parts: str
) -> Claim:
    said = {"subject": "Eiffel Tower", "attribute": "height", "value": value, "unit": unit} | parts
    return claim(name, f"It is {value} {unit} high.", *(sources or (cited(),)), **said)


def found(step: str, output: str, *claims: Claim) -> HandoffResult:
    return a_result_of(HandoffId(f"{step}.1"), ResultStatus.OK, output=output, claims=claims)


TOWER = found("a", "The tower is 330 m high [a.c1].", height("a.c1"))


@pytest.mark.parametrize(
    "again",
    [
        found("x", "Its height: 330 m [x.c1], as the tower is.", height("x.c1")),
        found(
            "x",
            "330 m high is the tower [x.c1].",
            height("x.c1", subject="the Eiffel Tower", attribute="Height"),
        ),
        found(
            "x",
            "The tower is 330 m high [x.c1].",
            claim(
                "x.c1",
                "The height is 330 m.",
                cited(10),
                subject="Eiffel Tower",
                attribute="height",
                value="330",
                unit="M",
            ),
        ),
    ],
)
def test_the_same_claims_from_the_same_places_are_no_news_in_any_words(
    again: HandoffResult,
) -> None:
    assert is_known(again, [TOWER])


@pytest.mark.parametrize(
    "news",
    [
        found("x", "The tower is 324 m high [x.c1].", height("x.c1", "324")),
        found("x", "The tower is 330 m high [x.c1].", height("x.c1", "330", "m", date="1931")),
        found("x", "The tower is 330 ft high [x.c1].", height("x.c1", "330", "ft")),
        found(
            "x",
            "The tower is 330 m high [x.c1].",
            height("x.c1", "330", "m", subject="Tokyo Tower"),
        ),
        found(
            "x", "The tower is 330 m high [x.c1].", height("x.c1", "330", "m", attribute="width")
        ),
        found(
            "x", "The tower is 330 m high [x.c1].", height("x.c1", "330", "m", cited(source="b"))
        ),
        found("x", "The tower is 330 m high [x.c1].", height("x.c1", "330", "m", cited(900))),
        found("x", "The tower is 330 m high [x.c1], says Gustave.", height("x.c1")),
        found(
            "x",
            "So nobody may fly a kite beside it without asking the city first [x.c1].",
            height("x.c1"),
        ),
    ],
    ids=[
        "value",
        "date",
        "unit",
        "subject",
        "attribute",
        "document",
        "place",
        "name",
        "conclusion",
    ],
)
def test_one_unknown_claim_is_news(news: HandoffResult) -> None:
    assert not is_known(news, [TOWER])


def test_without_claims_the_text_decides_about_news() -> None:
    assert is_known(found("x", LOGS), [found("a", OTHER), found("b", f"{LOGS} That is all.")])
    assert not is_known(found("x", LOGS), [found("a", OTHER)])
    assert not is_known(found("x", f"{LOGS} {OTHER}"), [found("a", LOGS)])


REPORT = (
    "The load test of the checkout service ran for an hour on the staging cluster, with fifty clients that bought one article each. "
    "The median of its answers was at 340 ms, and the slowest of them took nine seconds. The database did not run out of connections. "
    "The search service was idle at 12 ms meanwhile. While Alice watched the test, Bob watched the queue, which was never longer than what "
    "the workers could take up within one minute, so that nothing had to be said to those who were on call that night."
)
RETESTED = {
    "figure": ("340 ms", "1200 ms"),
    "figures that change places": ("340 ms", "12 ms"),
    "number in words": ("nine seconds", "two seconds"),
    "service": ("test of the checkout", "test of the search"),
    "name": ("Alice", "Carol"),
    "name that was there": ("Alice", "Bob"),
    "negation": ("did not run", "did run"),
    "contracted": ("did not run", "didn't walk"),
    "opposite": ("slowest", "fastest"),
    "unit": ("340 ms", "340 s"),
    "sign": ("340 ms", "-340 ms"),
}


@pytest.mark.parametrize("change", RETESTED.values(), ids=RETESTED)
def test_a_long_report_with_one_different_word_is_news(
    change: tuple[str, str],
) -> None:
    again = REPORT.replace(*change)

    assert again != REPORT
    assert not is_known(found("x", again), [found("a", REPORT)])
    assert not repeats_text(found("x", again), found("a", REPORT))
    assert not is_known(found("x", again), [found("a", f"{REPORT} {LOGS}"), found("b", OTHER)])


def test_a_long_report_in_another_order_or_in_part_is_no_news() -> None:
    *most, last = REPORT.split(". ")
    turned = f"{last} {'. '.join(most)}."

    assert is_known(found("x", REPORT), [found("a", f"{REPORT} {LOGS}")])
    assert is_known(found("x", turned), [found("a", REPORT)])
    assert is_known(found("x", f"{most[0]}."), [found("a", REPORT)])


def test_the_same_words_around_other_values_are_news_for_a_dependent_step_too() -> None:
    text = "The claims below say all that could be found out about the tower, which is high and was built for a fair."

    assert repeats_text(found("x", text, height("x.c1")), found("a", text, height("a.c1")))
    assert not repeats_text(
        found("x", text, height("x.c1", "324")), found("a", text, height("a.c1"))
    )


CLAIMED = (
    "The hosted service keeps up to four copies of an index, and copies from Leipzig to Lisbon."
)


@pytest.mark.parametrize(
    "text",
    [
        "The hosted service keeps up to three copies of an index, and copies from Leipzig to Lisbon.",
        "Of an index, and copies from Leipzig to Lisbon, the hosted service keeps three.",
        "The hosted service does not keep up to four copies of an index, and copies from Leipzig to Lisbon.",
        "The hosted service doesn't keep up to four copies of an index, and copies from Leipzig to Lisbon.",
        "The hosted service keeps up to four copies of an index, and copies from Lisbon to Leipzig.",
        "The hosted service keeps only four copies of an index, and copies from Leipzig to Lisbon.",
        "The hosted service loses up to four copies of an index, and copies from Leipzig to Lisbon.",
    ],
)
def test_a_claim_without_parts_that_says_otherwise_at_the_same_place_is_news(text: str) -> None:
    before = [found("a", CLAIMED, claim("a.c1", CLAIMED, cited()))]

    assert is_known(
        found("x", f"It is so [x.c1]: {CLAIMED}", claim("x.c1", CLAIMED, cited(10))), before
    )
    assert not is_known(found("x", CLAIMED, claim("x.c1", text, cited())), before)


def test_a_known_claim_in_a_reversed_conclusion_is_news() -> None:
    before = [
        found("a", "The tower is 330 m high [a.c1], which is safe in a storm.", height("a.c1"))
    ]

    assert is_known(
        found("x", "The tower is 330 m high [x.c1], which is safe in a storm.", height("x.c1")),
        before,
    )
    assert not is_known(
        found("x", "The tower is 330 m high [x.c1], which isn't safe in a storm.", height("x.c1")),
        before,
    )


def many_claims(count: int, shift: int) -> HandoffResult:
    """Return claims about few subjects with a single value. Half of the claims have structured
    parts.
    """
    said = [height(f"a.c{n}", str(n + shift), subject=f"Tower {n % 7}") for n in range(count // 4)]
    said += [
        height(f"b.c{n}", "yes", "x", subject=f"Tower {n + shift}", attribute="filtering support")
        for n in range(count // 4)
    ]
    said += [
        claim(f"d.c{n}", f"The Eiffel Tower is painted in red number {n + shift}.", cited())
        for n in range(count // 4)
    ]
    return found(
        "a",
        LOGS,
        *said,
        *(
            claim(f"e.c{n}", f"It was painted by the people of {n}.", cited())
            for n in range(count // 4)
        ),
    )


def test_many_claims_are_compared_with_many_more_without_comparing_each_pair() -> None:
    new, others = many_claims(100, 0), many_claims(2_000, 0)

    assert calls_in(lambda: is_known(new, [others])) < 2 * 100 * 2_000, (
        "two function calls a pair would not do to compare one"
    )


@pytest.mark.parametrize(
    "short",
    ["Yes.", "None was found.", "42", "It is so, and there is nothing to be said about it beside."],
)
def test_a_short_answer_is_no_sign_of_anything(short: str) -> None:
    assert not is_known(found("x", short), [found("a", short)])


def test_a_part_of_a_text_is_no_repeat_of_the_text() -> None:
    assert repeats_text(found("x", LOGS), found("a", LOGS))
    assert not repeats_text(found("x", LOGS), found("a", f"{LOGS} {OTHER}"))


# Rounds


def adds(name: str, *depends_on: str, specialist: str = "researcher") -> Patch:
    return Patch(
        add=(
            Step(
                id=StepId(name),
                specialist=specialist,
                task=f"Do {name}.",
                depends_on=tuple(map(StepId, depends_on)),
            ),
        )
    )


def a_job() -> SimulatedJob:
    """Return a job whose only step is finished, with an open replanner."""
    job = SimulatedJob(JobLimits(max_rounds=6), mode=Mode.ADAPTIVE)
    job.advance()
    job.make_plan(a="")
    job.advance()
    job.finish("a", output=LOGS)
    job.advance()
    return job


def comes_to(job: SimulatedJob, patch: Patch, **results: Any) -> list[Any]:
    """Apply the replanner's patch, and finish the added steps with these results. Return the
    commands that follow the last result.
    """
    job.patch_plan(patch)
    followed = job.advance()
    for step, result in results.items():
        job.finish(step, output=result)
        followed = job.advance()
    return followed


def notes_of(job: SimulatedJob) -> tuple[str, ...]:
    return assemble(job.state, JobStatus.OK, job.texts, None).notes


def test_two_rounds_in_a_row_without_news_are_the_last_and_the_answer_says_so() -> None:
    job = a_job()
    comes_to(job, adds("x"), x=LOGS)
    comes_to(job, adds("y"), y=LOGS)

    assert comes_to(job, adds("z"))[1:] == [IssueRole("assessor", 1)]
    assert set(job.state.steps) == {"a", "x", "y"}, "what it wanted a third time is not run"
    assert [one.nothing_new for one in job.events(PlanPatched)] == [(), ("x",), ("y",)]
    said = "The plan was not changed any more: what the replanner asked for brought nothing new, 2 rounds in a row (x, y)."
    assert said in notes_of(job)
    assert FRUITLESS_ROUNDS == 2


def test_a_round_with_news_resets_the_count() -> None:
    job = a_job()
    comes_to(job, adds("x"), x=LOGS)
    comes_to(job, adds("y"), y=OTHER)
    comes_to(job, adds("z"), z=LOGS)

    assert isinstance(comes_to(job, adds("w"))[1], IssueGroup)


def test_a_round_with_news_from_one_step_is_worthwhile() -> None:
    job = a_job()
    both = Patch(add=(*adds("x").add, *adds("y").add))
    comes_to(job, both, x=LOGS, y=OTHER)
    comes_to(job, adds("z"), z=LOGS)

    assert isinstance(comes_to(job, adds("w"))[1], IssueGroup)


@pytest.mark.parametrize("how", [{"specialist": "writer"}, {"depends_on": "a"}])
def test_another_specialist_or_a_dependent_step_may_repeat_a_part(how: dict[str, str]) -> None:
    job, part = a_job(), " ".join(LOGS.split()[:-4])
    after, who = how.get("depends_on", "").split(), how.get("specialist", "researcher")
    for name in ("x", "y"):
        comes_to(
            job,
            adds(name, *after, specialist=who),
            **{name: part if who == "researcher" else f"{name} {OTHER} {LOGS}"},
        )

    assert job.events(PlanPatched)[-1].nothing_new == ()


def test_a_dependent_step_that_only_repeats_its_input_brings_no_news() -> None:
    job = a_job()
    comes_to(job, adds("x", "a"), x=LOGS)
    comes_to(job, adds("y", "x"), y=LOGS)

    assert comes_to(job, adds("z", "y"))[1:] == [IssueRole("assessor", 1)]


def test_a_failed_step_is_no_round_without_news() -> None:
    job = a_job()
    comes_to(job, adds("x"), x=LOGS)
    job.patch_plan(adds("y"))
    job.advance()
    job.finish("y", "failed")
    job.advance()

    assert job.state.patches.fruitless == ()
