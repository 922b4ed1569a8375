"""Errors in a person's input are explained without Python's terms."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from handoff_queue.shared.types.audit import Actor
from handoff_queue.shared.types.errors import MalformedMessage, ManyProblems, UserError
from handoff_queue.shared.types.gates import FactTable, Gates, KnownFact
from handoff_queue.shared.types.job_options import Approvals
from handoff_queue.shared.types.limits import JobLimits, NewLimits
from handoff_queue.shared.types.message import Message, describe_problems
from handoff_queue.shared.types.review import Criterion, Rubric
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
        (
            FactsFile,
            {"file": "a.csv", "columns": 3},
            "columns: must hold fields: write `name: value`",
        ),
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
    assert describe_problems(raised.value) == message


@pytest.mark.parametrize(
    ("field", "ending"),
    [("whom", ": use one of what, above_microusd, timeout_s, on_timeout"), ("on_time", "?")],
)
def test_an_unknown_field_gets_the_closest_field_or_the_few_known_fields(
    field: str, ending: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        Approvals.model_validate_json(json.dumps({field: 1}))

    problem = describe_problems(raised.value, kind=Approvals)

    assert problem.startswith(f"{field}: there is no such field: ")
    assert problem.endswith(ending)


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (
            JobLimits,
            {"max_usd": 0.5},
            "Limits: max_usd: there is no such field: did you mean max_microusd, in millionths of"
            " a US dollar?",
        ),
        (
            JobLimits,
            {"max_turn": 3},
            "Limits: max_turn: there is no such field: did you mean max_turns?",
        ),
        (JobLimits, {"max_turns": -1}, "Limits: max_turns: must be at least 1, not -1"),
        (JobLimits, {"max_turns": "3"}, "Limits: max_turns: must be a whole number, not '3'"),
        (NewLimits, {"max_turns": 0}, "NewLimits: max_turns: must be at least 1, not 0"),
        (Gates, {"min_words": -1}, "Gates: min_words: must be at least 0, not -1"),
        (Gates, {"sections": ["Risks"]}, "Gates: sections: must be a tuple"),
        (KnownFact, {}, "KnownFact: subject: is missing: add it; attribute: is missing: add it;"),
        (FactTable, {"rows": ()}, "FactTable: rows: there is no such field: use one of facts"),
        (Rubric, {}, "Rubric: criteria: is missing: add it"),
        (
            Rubric,
            {"criteria": ("tone",)},
            "Rubric: criteria.0: must hold fields, not 'tone': use name, means",
        ),
        (Criterion, {"name": "tone"}, "Criterion: means: is missing: add it"),
        (
            Approvals,
            {"plan": True},
            "Approvals: plan: there is no such field: use one of what, above_microusd, timeout_s,"
            " on_timeout",
        ),
        (
            Approvals,
            {"what": ("plan",)},
            "Approvals: what.0: must be an instance of ApprovalOf, not 'plan': use one of"
            " ApprovalOf.PLAN, ",
        ),
        (
            JobLimits,
            {"on_limit": "x"},
            "Limits: on_limit: must be an instance of OnLimit, not 'x': use one of OnLimit.",
        ),
        (Actor, {"name": "", "via": "api"}, "Actor: name: must have at least 1 character"),
    ],
)
def test_a_program_that_passes_a_wrong_argument_gets_a_user_error_of_one_line(
    kind: type[Message], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as refused:
        kind(**fields)

    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)
    assert "pydantic" not in str(refused.value)


@pytest.mark.parametrize("kind", [JobLimits, Gates, Rubric, Approvals])
def test_a_parser_of_a_message_does_not_raise_the_error_of_a_wrong_argument(
    kind: type[Message],
) -> None:
    with pytest.raises(MalformedMessage, match=f"^{kind.__name__}: x: there is no such field"):
        kind.from_json('{"x": 1, "criteria": [{"name": "tone", "means": "polite"}]}')
    with pytest.raises(ValidationError):
        kind.model_validate({"x": 1})


def test_only_the_command_line_shows_the_option_of_a_field() -> None:
    error = UserError("deadline_s (--deadline TIME) is 0: leave it out (no --batch)", command="x")

    assert str(error) == "deadline_s is 0: leave it out"
    assert error.lines == (
        "deadline_s (--deadline TIME) is 0: leave it out (no --batch) (see `x`)",
    )
    assert str(ManyProblems(["mode (--mode) is wrong", "b"])).splitlines() == ["mode is wrong", "b"]
    assert ManyProblems(["mode (--mode) is wrong"]).lines == ("mode (--mode) is wrong",)
