"""Plans: one research step for each thing or question, and a writer who has them all."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema
import pytest

from handoff_queue.supervisor.roles.input_requests import NeedsFormat
from tests.shared.providers.offline.asking_the_model import PLAN_SCHEMA, ask


def _plan(request: str, specialists: list[str] | None = None, at_most: int = 20) -> dict[str, Any]:
    schema = copy.deepcopy(PLAN_SCHEMA)
    if specialists:
        schema["properties"]["steps"]["items"]["properties"]["specialist"]["enum"] = specialists
    plan = ask(
        f"<task>Make the plan for the request below, with at most {at_most} steps.\n\nRequest:\n{request}</task>",
        schema,
    )
    jsonschema.validate(plan, schema)
    assert isinstance(plan, dict)
    return plan


def test_a_comparison_is_researched_side_by_side_and_then_written_up() -> None:
    plan = _plan(
        "Compare Qdrant, pgvector and Milvus for a team that needs filtering and durable storage"
    )
    *research, write = plan["steps"]
    assert [step["id"] for step in research] == [
        "research_qdrant",
        "research_pgvector",
        "research_milvus",
    ]
    assert all(step["depends_on"] == [] and step["specialist"] == "researcher" for step in research)
    assert all("filtering and durable storage" in step["task"] for step in research)
    assert write["specialist"] == "writer"
    assert write["depends_on"] == [step["id"] for step in research]


def test_one_question_needs_one_researcher_and_a_writer() -> None:
    assert [step["specialist"] for step in _plan("How does HNSW work?")["steps"]] == [
        "researcher",
        "writer",
    ]


@pytest.mark.parametrize("at_most", [1, 2, 3, 5])
def test_a_plan_never_has_more_steps_than_allowed(at_most: int) -> None:
    plan = _plan("Compare Ant, Bee, Cat, Dog, Elk, Fox, Gnu, Hen, Ibex and Jay", at_most=at_most)
    assert len(plan["steps"]) <= at_most


@pytest.mark.parametrize(
    "specialists",
    [["generalist"], ["coder"], ["researcher"], ["generalist", "writer"], ["analyst", "legal"]],
)
def test_a_plan_names_only_specialists_that_exist(specialists: list[str]) -> None:
    plan = _plan("Compare Qdrant and Milvus", specialists)
    assert {step["specialist"] for step in plan["steps"]} <= set(specialists)


def test_step_ids_are_unique_and_well_formed_whatever_is_compared() -> None:
    ids = [step["id"] for step in _plan("Compare C++, C# and C")["steps"]]
    assert len(set(ids)) == len(ids)
    assert all(
        each.replace("_", "").isalnum() and each[0].isalpha() and len(each) <= 48 for each in ids
    )


def test_what_steps_lack_is_given_up_since_there_is_nothing_but_the_documents() -> None:
    one = {
        "type": "object",
        "properties": {
            "step": {"enum": ["find"]},
            "action": {"enum": ["answer", "give_up"]},
            "answer": {"type": "string"},
        },
        "required": ["step", "action", "answer"],
    }
    schema = {
        "type": "object",
        "properties": {"resolutions": {"type": "array", "items": one}},
        "required": ["resolutions"],
    }
    answer = ask(
        "<task>Steps of your plan cannot go on without something.\n\nRequest:\nx</task>", schema
    )
    assert [(each["step"], each["action"]) for each in answer["resolutions"]] == [
        ("find", "give_up")
    ]


def test_no_other_step_is_asked_for_what_the_documents_do_not_tell() -> None:
    schema = NeedsFormat(("find",), ("researcher", "writer")).schema
    answer = ask(
        "<task>Steps of your plan cannot go on without something.\n\nRequest:\nx</task>", schema
    )
    jsonschema.validate(answer, schema)
    assert [each["action"] for each in answer["resolutions"]] == ["give_up"]
