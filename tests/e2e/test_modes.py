"""Each mode of supervision runs as the user chooses it, with the offline model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.supervisor.client.report import CHECKED_OFFLINE
from tests.e2e.commands import BAD_INPUT, DOCUMENTS, REQUEST, Handoff

pytestmark = pytest.mark.slow

QUESTION = "What is Qdrant written in?"
WORKFLOW_PER_LINE = """\
description: A question a line.
review: false
steps:
  - id: look
    specialist: researcher
    for_each: lines
    task: "{item}"
"""


@pytest.fixture
def handoff(tmp_path: Path) -> Handoff:
    return Handoff(tmp_path)


def run_json(handoff: Handoff, *arguments: str) -> dict[str, Any]:
    completed = handoff.run("run", *arguments, "--docs", str(DOCUMENTS), "--json")
    assert completed.returncode == 0, completed.stderr
    outcome: dict[str, Any] = json.loads(completed.stdout)
    return outcome


def roles(outcome: dict[str, Any]) -> list[str]:
    return [handoff["assigned_to"] for handoff in outcome["handoffs"]]


def test_a_single_agent_answers_alone_with_its_tools(handoff: Handoff) -> None:
    outcome = run_json(handoff, QUESTION, "--mode", "single")

    assert (outcome["status"], outcome["mode"], roles(outcome)) == ("ok", "single", ["generalist"])
    assert "Rust" in outcome["answer"]
    assert outcome["citations"]


def test_auto_gives_a_question_to_one_specialist_with_a_reason(handoff: Handoff) -> None:
    outcome = run_json(handoff, QUESTION, "--mode", "auto")

    assert (outcome["status"], outcome["mode"]) == ("ok", "single")
    assert roles(outcome) == ["router", outcome["route"]["specialist"]]
    assert outcome["route"]["why"]


def test_auto_gives_a_comparison_of_several_to_a_team(handoff: Handoff) -> None:
    outcome = run_json(handoff, REQUEST, "--mode", "auto")

    assert (outcome["status"], outcome["mode"], outcome["route"]["specialist"]) == (
        "ok",
        "team",
        None,
    )
    assert roles(outcome)[:2] == ["router", "planner"]


def test_an_adaptive_job_is_replanned_after_each_fan_in_and_ends(
    handoff: Handoff,
) -> None:
    outcome = run_json(handoff, REQUEST, "--mode", "adaptive")

    assert (outcome["status"], outcome["mode"]) == ("ok", "adaptive")
    assert roles(outcome).count("replanner") == len(outcome["patches"]) == 2
    assert outcome["patches"][-1]["final"]


def test_a_workflow_is_run_without_a_planner(handoff: Handoff) -> None:
    outcome = run_json(handoff, QUESTION, "--workflow", "brief")

    assert (outcome["status"], outcome["mode"]) == ("ok", "pipeline")
    assert roles(outcome) == ["researcher", "writer", "reviewer", "writer"]


def test_a_step_is_repeated_over_the_lines_of_a_file(handoff: Handoff) -> None:
    (handoff.folder / "each.yaml").write_text(WORKFLOW_PER_LINE)
    (handoff.folder / "questions.txt").write_text(f"{QUESTION}\nWhat is Milvus written in?\n")
    outcome = run_json(
        handoff, "Answer these.", "--workflow", "./each.yaml", "--items", "questions.txt"
    )

    assert [step["id"] for step in outcome["plan"]["steps"]] == ["look_0001", "look_0002"]
    assert outcome["status"] == "ok"


def test_an_answer_that_fails_its_gates_is_sent_back_and_then_names_its_faults(
    handoff: Handoff,
) -> None:
    (handoff.folder / "gates.yaml").write_text("sections: [Risks]\ncited: true\n")
    outcome = run_json(
        handoff, QUESTION, "--mode", "single", "--gates", "gates.yaml", "--allow-partial"
    )

    assert (outcome["status"], roles(outcome)) == ("partial", ["generalist"] * 3)
    assert [entry["feedback"][-1]["author"] for entry in outcome["handoffs"][1:]] == [
        "gate",
        "gate",
    ]
    assert 'no section "Risks"' in outcome["answer"]
    assert "no sources" not in outcome["answer"]


def test_a_rubric_adds_a_review_to_a_single_agent_and_offline_there_is_no_score(
    handoff: Handoff,
) -> None:
    (handoff.folder / "rubric.yaml").write_text(
        "accuracy: Every figure has its source.\ntone: It is friendly.\n"
    )
    outcome = run_json(handoff, QUESTION, "--mode", "single", "--rubric", "rubric.yaml")

    assert roles(outcome) == ["generalist", "assessor"]
    (verdict,) = outcome["verdicts"]
    assert (verdict["verdict"], verdict["scores"]) == ("PASS", [])
    assert verdict["checked"] == CHECKED_OFFLINE
    assert "Every figure has its source." in outcome["handoffs"][1]["task_description"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--mode", "pipeline"), "mode pipeline needs a workflow"),
        (("--mode", "single", "--workflow", "brief"), "leave one of the two out"),
        (("--workflow", "nope"), "there is no workflow 'nope'"),
        (("--items", "lines.txt"), "name a workflow, too"),
        (("--workflow", "each.yaml", "--items", "nope.txt"), "nope.txt"),
        (("--workflow", "./each.yaml"), "is repeated over lines, and none are given"),
        (("--workflow", "brief", "--items", "lines.txt"), "no step is repeated over them"),
        (("--rubric", "wrong.yaml"), "least_words: describe a good answer in words"),
        (("--gates", "nope.yaml"), "'nope.yaml' cannot be read"),
        (("--gates", "untrue.yaml"), "facts.csv:2: column 'value' is empty"),
        (("--gates", "lines.txt"), "must be fields, one a line"),
        (("--gates", "wrong.yaml"), "least_words: there is no such field"),
    ],
)
def test_incompatible_options_are_refused_in_one_line_before_the_start(
    handoff: Handoff, arguments: tuple[str, ...], text: str
) -> None:
    (handoff.folder / "each.yaml").write_text(WORKFLOW_PER_LINE)
    (handoff.folder / "lines.txt").write_text("one\ntwo\n")
    (handoff.folder / "facts.csv").write_text("subject,attribute,value\nQdrant,language,\n")
    (handoff.folder / "untrue.yaml").write_text("facts: {file: facts.csv}\n")
    (handoff.folder / "wrong.yaml").write_text("least_words: 3\n")
    completed = handoff.run("run", QUESTION, *arguments)

    assert completed.returncode == BAD_INPUT
    assert text in completed.stderr
    assert len(completed.stderr.splitlines()) == 1, completed.stderr
