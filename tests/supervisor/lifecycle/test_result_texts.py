"""Events refer to results. The texts of results are loaded where the code needs them."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import Reviewed
from handoff_queue.shared.types.handoff import (
    Citation,
    Claim,
    HandoffResult,
    ResultStatus,
    StopReason,
    make_ref,
)
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.review import Decision, Verdict
from handoff_queue.supervisor.lifecycle.result_texts import (
    BRING_UP_TO_DATE,
    STOPPED_BY,
    TRY_AGAIN,
    UNEXPLAINED,
    ResultTexts,
)
from handoff_queue.supervisor.lifecycle.state import AttemptFeedback
from tests.doubles.handoffs import a_result
from tests.doubles.simulated_job import planned

QUOTE = Citation(source="a.md", digest=compute_digest("So."), start=0, end=3, quote="So.")
PROVEN = Claim(id="before.c1", text="So.", sources=(QUOTE,))
UNPROVEN = Claim(id="before.c2", text="Or so.")


def reason_of(result: HandoffResult) -> str | None:
    return ResultTexts({make_ref(result.to_json()).digest: result.to_json()}).explain(
        make_ref(result.to_json())
    )


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (a_result(), None),
        (a_result(status=ResultStatus.NEEDS_INPUT, needs="the year"), "needs: the year"),
        (a_result(status=ResultStatus.FAILED, error="no such\n  document"), "no such document"),
        (a_result(status=ResultStatus.FAILED, error="x" * 1_000), "x" * 299 + "…"),
        (
            a_result(status=ResultStatus.PARTIAL, stop_reason=StopReason.DEADLINE),
            "its time was over",
        ),
        (
            a_result(status=ResultStatus.PARTIAL, error="no prices", needs="the price list"),
            "no prices; needs: the price list",
        ),
        (a_result(status=ResultStatus.PARTIAL, needs="the year"), "needs: the year"),
        (
            a_result(status=ResultStatus.PARTIAL, claims=(PROVEN, UNPROVEN)),
            "1 of its 2 claims has no source that could be checked",
        ),
        (a_result(status=ResultStatus.PARTIAL, claims=(PROVEN,)), UNEXPLAINED),
        (a_result(status=ResultStatus.PARTIAL), UNEXPLAINED),
    ],
)
def test_a_result_gives_the_reason_for_its_gaps_in_one_line(
    result: HandoffResult, reason: str | None
) -> None:
    assert reason_of(result) == reason


def test_every_stop_reason_of_an_agent_has_plain_words() -> None:
    assert set(STOPPED_BY) == set(StopReason) - {StopReason.FINISHED}


def test_a_verdict_that_says_nothing_more_needs_no_payload() -> None:
    passed = Reviewed(round=1, decision=Decision.PASS, result=make_ref("the assessor's result"))

    assert ResultTexts().get_verdict(passed) == Verdict(verdict=Decision.PASS)
    assert ResultTexts().get_verdict(Reviewed(round=1, decision=None, problem="no time")) is None


def test_each_step_gets_its_own_problem_and_its_dependents_hear_about_the_repetition() -> None:
    job = planned(a="", b="a", c="")
    for name in ("a", "c", "b"):
        job.finish(name)
        job.advance()
    job.review(a="wrong", c="too long")

    problems = {
        name: job.texts.build_feedback(StepId(name), job.step(name).remarks[-1]).text
        for name in "abc"
    }
    assert problems == {"a": "wrong", "b": BRING_UP_TO_DATE, "c": "too long"}


def test_a_users_request_for_repetition_refers_to_no_result() -> None:
    assert (
        ResultTexts().build_feedback(StepId("a"), AttemptFeedback(author="user")).text == TRY_AGAIN
    )


def test_no_event_and_no_state_repeats_a_models_text() -> None:
    model_text = "what a model has written"
    job = planned(a="", b="", c="")
    job.finish("a", "needs_input", needs=model_text)
    job.finish("b", "failed", error=model_text)
    job.finish("c", "partial", error=model_text, output=model_text)
    job.advance()
    job.resolve_needs(a=model_text)
    job.advance()
    job.finish("a", output=model_text)
    job.advance()
    job.review(model_text, a=model_text)
    job.advance()

    assert model_text in job.handoffs["a.3"].feedback[-1].text
    assert not any(model_text in recorded.event.to_json() for recorded in job.journal)
    assert model_text not in job.state.to_json()
