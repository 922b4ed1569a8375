"""Each mode of supervision runs as the user chooses it, with the offline model.

All jobs run on one shared system.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from handoff_queue.supervisor.client.job_result import CHECKED_OFFLINE
from tests.e2e.commands import BAD_INPUT, DOCUMENTS, REQUEST, Handoff
from tests.running_system import RunningSystem

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
UNKNOWN_SPECIALIST = """\
description: A step of a specialist that does not exist.
steps:
  - id: a
    specialist: nobody
    task: Write.
"""


class JsonRun:
    """The command `handoff run --json` on the shared system."""

    def __init__(self, handoff: Handoff, system: RunningSystem) -> None:
        self.folder = handoff.folder
        self._handoff = handoff
        self._redis_url = system.redis_url

    def __call__(self, *arguments: str) -> dict[str, Any]:
        completed = self._handoff.run(
            *("run", *arguments, "--docs", str(DOCUMENTS), "--json"),
            HANDOFF_REDIS_URL=self._redis_url,
        )
        assert completed.returncode == 0, completed.stderr
        outcome: dict[str, Any] = json.loads(completed.stdout)
        return outcome


@pytest.fixture
def run_json(handoff: Handoff, system: RunningSystem) -> JsonRun:
    return JsonRun(handoff, system)


def roles(outcome: dict[str, Any]) -> list[str]:
    return [handoff["assigned_to"] for handoff in outcome["handoffs"]]


@pytest.mark.slow
def test_a_single_agent_answers_alone_with_its_tools(run_json: JsonRun) -> None:
    outcome = run_json(QUESTION, "--mode", "single")

    assert (outcome["status"], outcome["mode"], roles(outcome)) == ("ok", "single", ["generalist"])
    assert "Rust" in outcome["answer"]
    assert outcome["citations"]


@pytest.mark.slow
def test_auto_gives_a_question_to_one_specialist_with_a_reason(run_json: JsonRun) -> None:
    outcome = run_json(QUESTION, "--mode", "auto")

    assert (outcome["status"], outcome["mode"]) == ("ok", "single")
    assert roles(outcome) == ["router", outcome["route"]["specialist"]]
    assert outcome["route"]["why"]


@pytest.mark.slow
def test_auto_gives_a_comparison_of_several_to_a_team(run_json: JsonRun) -> None:
    outcome = run_json(REQUEST, "--mode", "auto")

    assert (outcome["status"], outcome["mode"], outcome["route"]["specialist"]) == (
        "ok",
        "team",
        None,
    )
    assert roles(outcome)[:2] == ["router", "planner"]


@pytest.mark.slow
def test_an_adaptive_job_is_replanned_after_each_fan_in_and_ends(
    run_json: JsonRun,
) -> None:
    outcome = run_json(REQUEST, "--mode", "adaptive")

    assert (outcome["status"], outcome["mode"]) == ("ok", "adaptive")
    assert roles(outcome).count("replanner") == len(outcome["patches"]) == 2
    assert outcome["patches"][-1]["final"]


@pytest.mark.slow
def test_a_workflow_is_run_without_a_planner(run_json: JsonRun) -> None:
    outcome = run_json(QUESTION, "--workflow", "brief")

    assert (outcome["status"], outcome["mode"]) == ("ok", "pipeline")
    assert roles(outcome) == ["researcher", "writer", "reviewer", "writer"]


@pytest.mark.slow
def test_a_step_is_repeated_over_the_lines_of_a_file(run_json: JsonRun) -> None:
    (run_json.folder / "each.yaml").write_text(WORKFLOW_PER_LINE)
    (run_json.folder / "questions.txt").write_text(f"{QUESTION}\nWhat is Milvus written in?\n")
    outcome = run_json("Answer these.", "--workflow", "./each.yaml", "--items", "questions.txt")

    assert [step["id"] for step in outcome["plan"]["steps"]] == ["look_0001", "look_0002"]
    assert outcome["status"] == "ok"


@pytest.mark.slow
def test_an_answer_that_fails_its_gates_is_sent_back_and_then_names_its_faults(
    run_json: JsonRun,
) -> None:
    (run_json.folder / "gates.yaml").write_text("sections: [Risks]\ncited: true\n")
    outcome = run_json(QUESTION, "--mode", "single", "--gates", "gates.yaml", "--allow-partial")

    assert (outcome["status"], roles(outcome)) == ("partial", ["generalist"] * 3)
    assert [entry["feedback"][-1]["author"] for entry in outcome["handoffs"][1:]] == [
        "gate",
        "gate",
    ]
    assert 'no section "Risks"' in outcome["answer"]
    assert "no sources" not in outcome["answer"]


@pytest.mark.slow
def test_a_rubric_adds_a_review_to_a_single_agent_and_offline_there_is_no_score(
    run_json: JsonRun,
) -> None:
    (run_json.folder / "rubric.yaml").write_text(
        "accuracy: Every figure has its source.\ntone: It is friendly.\n"
    )
    outcome = run_json(QUESTION, "--mode", "single", "--rubric", "rubric.yaml")

    assert roles(outcome) == ["generalist", "assessor"]
    (verdict,) = outcome["verdicts"]
    assert (verdict["verdict"], verdict["scores"]) == ("PASS", [])
    assert verdict["checked"] == CHECKED_OFFLINE
    assert "Every figure has its source." in outcome["handoffs"][1]["task_description"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--mode", "pipeline"), "mode pipeline needs a workflow"),
        (
            ("--mode", "single", "--workflow", "brief"),
            "remove mode (--mode) or workflow (--workflow)",
        ),
        (("--workflow", "nope"), "there is no workflow 'nope'"),
        (("--items", "lines.txt"), "items (--items) need a workflow"),
        (("--workflow", "each.yaml", "--items", "nope.txt"), "nope.txt"),
        (("--workflow", "./each.yaml"), "repeats over lines, and the job has none"),
        (("--workflow", "brief", "--items", "lines.txt"), "no step repeats over them"),
        (("--rubric", "wrong.yaml"), "least_words: must be a text that describes a good answer"),
        (("--gates", "nope.yaml"), "'nope.yaml' cannot be read"),
        (("--gates", "untrue.yaml"), "facts.csv:2: column 'value' is empty"),
        (("--gates", "lines.txt"), "must be lines of `field: value`"),
        (("--gates", "wrong.yaml"), "least_words: there is no such field"),
        (("--gates", "unchecked.yaml"), "fact_checker: there is no specialist 'nobody'"),
        (("--workflow", "./unknown.yaml"), "step 'a': there is no specialist 'nobody'"),
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
    (handoff.folder / "unknown.yaml").write_text(UNKNOWN_SPECIALIST)
    (handoff.folder / "unchecked.yaml").write_text("fact_checker: nobody\n")
    left_behind = handoff.folder / "handoff-run-killed"  # the next run that starts removes it
    left_behind.mkdir()
    (left_behind / "lock").touch()
    completed = handoff.run("run", QUESTION, *arguments)

    assert completed.returncode == BAD_INPUT
    assert text in completed.stderr
    assert left_behind.exists()
    assert len(completed.stderr.splitlines()) == 1, completed.stderr
