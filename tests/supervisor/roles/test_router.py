"""A router's answer is parsed leniently. Its mode and specialist are checked, and its accuracy is
measured.
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.routing.measuring import (
    ALWAYS_SINGLE,
    ALWAYS_TEAM,
    RoutedRequest,
    compute_specialist_accuracy,
    compute_way_accuracy,
    load_labels,
    route_requests,
)
from handoff_queue.shared.agent.answer_format import InvalidAnswer
from handoff_queue.shared.specialists import load_specialists
from handoff_queue.shared.specialists.lint import lint
from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.specialist import Tier
from handoff_queue.supervisor.roles.briefs import read_role
from handoff_queue.supervisor.roles.router import Route, RouteFormat, find_route_specialists
from handoff_queue.workers.specialists import BUILT_IN
from tests.property_settings import draws

READING = RouteFormat(("writer", "generalist", "tax_desk"))
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.sampled_from(["single", "team", "writer"]),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.sampled_from(["route", "specialist", "why"]), inner)
    ),
)


def answer(route: object = "single", specialist: object = "writer", **fields: Any) -> str:
    return json.dumps(
        {"route": route, "specialist": specialist, "why": "It is one letter.", **fields}
    )


def read_route(text: str, *, last_try: bool = False) -> Route:
    result = READING.read(text, last_try=last_try)
    assert result.status is ResultStatus.OK
    return Route.from_value(result.output)


@pytest.fixture(scope="module")
def routed_labels() -> list[RoutedRequest]:
    return list(route_requests(load_labels()))


def test_the_router_uses_the_cheap_model_no_tools_and_one_repair_at_most() -> None:
    role = read_role("router")
    assert (role.name, role.tier, role.tools, role.max_turns) == ("router", Tier.CHEAP, (), 2)


def test_the_lint_has_no_complaint_about_the_router_next_to_the_roles() -> None:
    assert [
        str(remark)
        for remark in lint(
            map(read_role, ("router", "planner", "judge", "assessor", "synthesizer"))
        )
    ] == []


@pytest.mark.parametrize(("mode", "team"), [("single", False), ("team", True)])
def test_an_answer_that_fits_the_schema_becomes_a_route(mode: str, team: bool) -> None:
    jsonschema.validate(json.loads(answer(mode)), READING.schema)
    assert read_route(answer(mode)) == Route(
        team=team, specialist="writer", why="It is one letter."
    )


@pytest.mark.parametrize("changed", [{"specialist": "oracle"}, {"route": "both"}, {"because": "x"}])
def test_the_schema_is_closed_and_offers_existing_specialists(changed: dict[str, str]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**json.loads(answer()), **changed}, READING.schema)


def test_the_schema_shows_the_offered_specialists() -> None:
    assert find_route_specialists(READING.schema) == ("generalist", "tax_desk", "writer")
    assert find_route_specialists(RouteFormat(()).schema) == ("generalist",)
    assert find_route_specialists({}) == ()


def test_specialist_names_are_normalized() -> None:
    assert read_route(f"Sure:\n```json\n{answer(' Single. ', 'Tax Desk')}\n```") == Route(
        team=False, specialist="tax_desk", why="It is one letter."
    )


def test_a_reason_that_is_left_out_is_empty_and_a_long_one_is_cut() -> None:
    assert read_route(json.dumps({"route": "single", "specialist": "writer"})).why == ""
    assert len(read_route(answer(why="so " * 5_000)).why) <= 2_000


@pytest.mark.parametrize(
    ("named", "message"),
    [("oracle", "no specialist oracle"), (None, "no specialist was named"), ("", "was named")],
)
def test_a_specialist_that_does_not_exist_costs_a_turn_and_then_the_generalist_takes_it(
    named: str | None, message: str
) -> None:
    with pytest.raises(InvalidAnswer, match=rf"{message} \(known: generalist, tax_desk, writer\)"):
        READING.read(answer(specialist=named), last_try=False)
    last = READING.read(answer(specialist=named), last_try=True)
    assert Route.from_value(last.output).specialist == "generalist"
    (note,) = last.notes
    assert message in note
    assert "generalist takes it" in note


def test_without_a_generalist_another_live_specialist_takes_the_request() -> None:
    reading = RouteFormat(("writer", "coder"))
    assert (
        Route.from_value(reading.read(answer(specialist="oracle"), last_try=True).output).specialist
        == "coder"
    )


def test_a_team_route_with_an_unknown_specialist_costs_no_turn() -> None:
    result = READING.read(answer("team", "oracle"), last_try=False)
    assert (
        Route.from_value(result.output).team,
        Route.from_value(result.output).specialist,
        result.notes,
    ) == (
        True,
        "generalist",
        (),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "one JSON object was expected"),
        (
            "Give it to the writer.",
            "plain text (22 characters) came where one JSON object was expected",
        ),
        ('{"specialist": "writer"}', "route: is missing"),
        (answer("both"), "route must be single or team, not 'both'"),
        (answer(["team"]), "route: must be a text"),
        (answer(specialist=["writer"]), "specialist: must be a text"),
    ],
)
@pytest.mark.parametrize("last_try", [False, True])
def test_an_invalid_route_is_refused_with_a_repair_instruction(
    text: str, expected: str, last_try: bool
) -> None:
    with pytest.raises(InvalidAnswer) as refused:
        READING.read(text, last_try=last_try)
    assert expected in str(refused.value)


def specialist_for(text: str, *, last_try: bool) -> str | None:
    """Return the specialist of the parsed route, or None if the answer was refused."""
    try:
        return Route.from_value(READING.read(text, last_try=last_try).output).specialist
    except InvalidAnswer:
        return None


@given(ANYTHING, st.booleans())
def test_any_json_is_a_route_to_an_existing_specialist_or_refused(
    value: object, last_try: bool
) -> None:
    assert specialist_for(json.dumps(value), last_try=last_try) in (None, *READING.specialists)


@draws(40)
@given(ANYTHING, ANYTHING, ANYTHING, st.booleans())
def test_any_fields_are_a_route_to_an_existing_specialist_or_refused(
    route: object, specialist: object, why: object, last_try: bool
) -> None:
    assert specialist_for(answer(route, specialist, why=why), last_try=last_try) in (
        None,
        *READING.specialists,
    )


@pytest.mark.parametrize(
    "output",
    [None, {}, {"team": "yes", "specialist": "writer"}, {"team": True, "specialist": "No Name"}],
)
def test_an_output_that_no_reading_accepted_is_not_a_route(output: Any) -> None:
    with pytest.raises(MalformedMessage):
        Route.from_value(output)


def test_the_labels_are_many_unlike_each_other_and_name_specialists_that_exist() -> None:
    labels, built_in = load_labels(), set(load_specialists(BUILT_IN))
    assert len({label.request for label in labels}) == len(labels) >= 70
    assert sum(label.held_out for label in labels) >= 20
    assert all((label.specialist is None) == label.team for label in labels)
    assert {
        label.specialist
        for label in labels
        if not label.team and label.specialist not in label.own_specialists
    } <= built_in


def test_every_built_in_specialist_fits_some_request() -> None:
    assert set(load_specialists(BUILT_IN)) <= {label.specialist for label in load_labels()}


@pytest.mark.slow
def test_the_router_takes_one_call_and_says_why(routed_labels: list[RoutedRequest]) -> None:
    assert {each.calls for each in routed_labels} == {1}
    assert all(each.route.why for each in routed_labels)


@pytest.mark.slow
def test_the_router_is_as_often_right_as_it_was_measured_to_be(
    routed_labels: list[RoutedRequest],
) -> None:
    assert compute_way_accuracy(routed_labels) >= 0.79
    assert compute_specialist_accuracy(routed_labels) >= 0.69


def test_the_router_is_right_more_often_than_a_constant_route(
    routed_labels: list[RoutedRequest],
) -> None:
    labels = load_labels()
    for constant_route in (ALWAYS_SINGLE, ALWAYS_TEAM):
        assert compute_way_accuracy(routed_labels) > compute_way_accuracy(
            map(constant_route, labels)
        )
        assert compute_specialist_accuracy(routed_labels) > compute_specialist_accuracy(
            map(constant_route, labels)
        )
