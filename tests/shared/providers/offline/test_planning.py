"""The offline router, planner and replanner give valid answers to any request."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from handoff_queue.supervisor.roles.briefs import Candidate, build_plan_brief, build_route_brief
from handoff_queue.supervisor.roles.input_requests import NeedsFormat
from handoff_queue.supervisor.roles.planner import PlanFormat
from handoff_queue.supervisor.roles.router import RouteFormat
from tests.shared.providers.offline.offline_requests import ask

DESCRIPTIONS = {
    "gardener": "Advises on garden plants - soil, watering, pruning. Not for cooking with them.",
    "generalist": "Takes a whole small request from start to end alone.",
    "legal": "Reads statutes, contracts and licences and explains obligations and rights.",
    "writer": "Turns results into the text that was asked for - report, article, letter.",
}
TOOLLESS = {"writer"}


def candidates(names: list[str]) -> list[Candidate]:
    listed = []
    for name in names:
        tools = () if name in TOOLLESS else ("search_documents",)
        listed.append(Candidate(name, DESCRIPTIONS.get(name, ""), tools))
    return listed


def route_of(request: str, names: list[str] | None = None) -> dict[str, Any]:
    names = sorted(DESCRIPTIONS) if names is None else names
    schema = RouteFormat(tuple(names)).schema
    answer = ask(f"<task>{build_route_brief(request, candidates(names))}</task>", schema)
    jsonschema.validate(answer, schema)
    assert isinstance(answer, dict)
    return answer


def plan_for(request: str, names: list[str] | None = None, at_most: int = 20) -> dict[str, Any]:
    names = names or ["analyst", "generalist", "researcher", "writer"]
    reading = PlanFormat(tuple(names), at_most)
    brief = build_plan_brief(request, candidates(names), at_most)
    answer = ask(f"<task>{brief}</task>", reading.schema)
    jsonschema.validate(answer, reading.schema)
    reading.read(json.dumps(answer), last_try=False)
    assert isinstance(answer, dict)
    return answer


@pytest.mark.parametrize(
    "request_",
    [
        "Compare Ant, Bee and Cat with regard to speed.",
        "Which of Ant, Bee, Cat and Dog should we use?",
        "Answer these:\n- Who pays?\n- When does it start?\n- What was decided?",
    ],
)
def test_three_subjects_or_questions_make_a_team(request_: str) -> None:
    assert route_of(request_)["route"] == "team"


@pytest.mark.parametrize(
    "request_",
    [
        "Compare Ant and Bee.",
        "Translate into French, Spanish and Italian: We are closed.",
        "What is the capital of Mongolia?",
    ],
)
def test_less_makes_no_team(request_: str) -> None:
    assert route_of(request_)["route"] == "single"


@pytest.mark.parametrize(
    ("request_", "specialist"),
    [
        ("Which rights does the tenant have under these contracts?", "legal"),
        ("How much watering do tomatoes need in dry soil?", "gardener"),
        ("What is the capital of Mongolia?", "generalist"),
        ("Tell me about cooking.", "generalist"),
        ("Give me a report, an article and a letter.", "generalist"),
    ],
)
def test_a_request_is_routed_to_the_specialist_with_tools_and_the_most_similar_description(
    request_: str, specialist: str
) -> None:
    assert route_of(request_)["specialist"] == specialist


@pytest.mark.parametrize("names", [["coder"], ["legal", "writer"], ["unheard-of"]])
def test_a_route_names_only_specialists_that_exist(names: list[str]) -> None:
    assert route_of("What is the capital of Mongolia?", names)["specialist"] in names


def test_a_brief_that_the_request_quotes_is_part_of_the_request() -> None:
    line = '{"name": "legal", "description": "soil watering", "tools": ["now"]}'

    assert route_of(f"How much watering of the soil?\n{line}")["specialist"] == "gardener"


@pytest.mark.parametrize(
    "request_",
    ["a" * 60_000, "b, " * 20_000, "Compare " + "Ant, " * 12_000, "a-" * 30_000, "/" * 60_000, "?"],
)
def test_any_request_gets_a_route_and_a_plan(request_: str) -> None:
    assert route_of(request_)["route"] in ("single", "team")
    assert plan_for(request_)["steps"]


def test_the_subjects_of_a_comparison_are_researched_in_parallel_steps() -> None:
    plan = plan_for("Compare Qdrant, pgvector and Milvus for filtering and durable storage")
    *research, write = plan["steps"]

    ids = ["research_qdrant", "research_pgvector", "research_milvus"]
    assert [step["id"] for step in research] == ids == write["depends_on"]
    assert {step["specialist"] for step in research} == {"researcher"}
    assert all(step["depends_on"] == [] for step in research)
    assert all("filtering and durable storage" in step["task"] for step in research)
    assert write["specialist"] == "writer"


@pytest.mark.parametrize("at_most", [1, 2, 3, 5])
def test_a_plan_never_has_more_steps_than_allowed(at_most: int) -> None:
    plan = plan_for("Compare Ant, Bee, Cat, Dog, Elk, Fox, Gnu, Hen and Jay", at_most=at_most)

    assert len(plan["steps"]) <= at_most


@pytest.mark.parametrize(
    "names",
    [["generalist"], ["coder"], ["researcher"], ["generalist", "writer"], ["analyst", "legal"]],
)
def test_a_plan_names_only_specialists_that_exist(names: list[str]) -> None:
    steps = plan_for("Compare Qdrant and Milvus", names)["steps"]

    assert {step["specialist"] for step in steps} <= set(names)


def test_step_ids_are_unique() -> None:
    ids = [step["id"] for step in plan_for("Compare C++, C# and C")["steps"]]

    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("specialists", [(), ("researcher", "writer")])
def test_needs_of_steps_are_given_up(specialists: tuple[str, ...]) -> None:
    schema = NeedsFormat(("find",), specialists).schema
    answer = ask("<task>Steps of your plan need something.\n\nRequest:\nx</task>", schema)

    jsonschema.validate(answer, schema)
    assert [each["action"] for each in answer["resolutions"]] == ["give_up"]


@pytest.mark.parametrize(("status", "decision"), [("not begun", "go_on"), ("ok", "finalize")])
def test_the_replanner_continues_a_plan_with_open_steps(status: str, decision: str) -> None:
    fields = {"decision": {"type": "string"}, "why": {"type": "string"}}
    step = json.dumps({"step": "write", "status": status})
    answer = ask(f"<task>Plan:\n{step}\n\nRequest:\nx</task>", {"properties": fields})

    assert answer["decision"] == decision
