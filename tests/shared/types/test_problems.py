"""Errors in a person's input are explained without Python's terms."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.job_options import Approvals
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.message import Message, problems_of
from handoff_queue.shared.types.review import Rubric
from handoff_queue.supervisor.gates.facts import FactsFile


@pytest.mark.parametrize(
    ("kind", "document", "message"),
    [
        (Gates, {"requird": ["x"]}, "requird: there is no such field"),
        (Gates, {"fact_checker": 3}, "fact_checker: must be a text"),
        (Gates, {"cited": "perhaps"}, "cited: must be true or false"),
        (Gates, {"min_words": "many"}, "min_words: must be a whole number"),
        (Gates, {"max_words": 0}, "max_words: must be at least 1"),
        (Gates, {"numbers": ["many"]}, "numbers.0: must be a number"),
        (Gates, {"sections": "Risks"}, "sections: must be a list"),
        (FactsFile, {"file": "a.csv", "columns": 3}, "columns: must hold fields"),
        (JobLimits, {"on_limit": "foo"}, "on_limit: must be 'stop', 'wrap-up' or 'ask'"),
        (Rubric, {"criteria": [{"name": "tone", "means": 3}]}, "criteria.0.means: must be a text"),
        (
            Rubric,
            {"criteria": []},
            "criteria: must have at least 1 item, not 0",
        ),
    ],
)
def test_a_problem_is_explained_once_without_pydantics_terms(
    kind: type[Message], document: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        kind.model_validate_json(json.dumps(document))
    assert problems_of(raised.value) == message


@pytest.mark.parametrize(
    ("field", "ending"),
    [("whom", ": use one of what, above_microusd, timeout_s, on_timeout"), ("on_time", "?")],
)
def test_an_unknown_field_gets_the_closest_field_or_the_few_known_fields(
    field: str, ending: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        Approvals.model_validate_json(json.dumps({field: 1}))

    problem = problems_of(raised.value, kind=Approvals)

    assert problem.startswith(f"{field}: there is no such field: ")
    assert problem.endswith(ending)
