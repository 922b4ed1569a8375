"""A verdict is PASS, or REVISE with the steps to repeat."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.review import Decision, Revision, Verdict

AGAIN = Revision(step=StepId("a"), problem="No licence is named.")


def test_revise_names_at_least_one_step() -> None:
    with pytest.raises(ValidationError, match="REVISE names at least one step"):
        Verdict(verdict=Decision.REVISE)


def test_pass_names_no_step() -> None:
    with pytest.raises(ValidationError, match="PASS names none"):
        Verdict(verdict=Decision.PASS, revisions=(AGAIN,))


def test_a_step_is_named_once() -> None:
    with pytest.raises(ValidationError, match="a step is named twice"):
        Verdict(verdict=Decision.REVISE, revisions=(AGAIN, AGAIN))


def test_a_verdict_survives_json() -> None:
    verdict = Verdict(
        verdict=Decision.REVISE, revisions=(AGAIN,), open_points=("Prices are of 2024.",)
    )
    assert Verdict.from_json(verdict.to_json()) == verdict
    assert verdict.steps == {"a"}
