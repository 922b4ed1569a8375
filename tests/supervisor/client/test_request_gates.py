"""A job has its own gates, or the workflow's, or the settings', never a combination."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.gates import Gates, GatesFrom
from handoff_queue.supervisor.client.request import Request, check_request
from handoff_queue.supervisor.client.submission import Submission, build_submission
from handoff_queue.supervisor.workflows import Workflow, read_workflow
from tests.doubles.facts import a_fact, a_table

STEPS = "description: Looks.\nsteps:\n  - {id: look, specialist: researcher, task: Look.}\n"


def settings(folder: Path, gates: str | None = "min_words: 100\n") -> Settings:
    if gates is not None:
        (folder / "ours.yaml").write_text(gates)
    return Settings(offline=True, gates=folder / "ours.yaml")


def workflow(
    folder: Path, gates: str = "gates: {min_words: 10, cited: yes, sections: [Risks]}\n"
) -> Workflow:
    (folder / "look.yaml").write_text(gates + STEPS)
    return read_workflow(str(folder / "look.yaml"))


def submitted(folder: Path, request: Request) -> Submission:
    return build_submission(request, settings(folder))


def test_a_job_without_gates_has_the_gates_of_the_settings(tmp_path: Path) -> None:
    event = submitted(tmp_path, Request("Look.")).event

    assert (event.gates, event.gates_from) == (Gates(min_words=100), GatesFrom.SETTINGS)


def test_the_gates_of_a_workflow_replace_the_settings_gates(tmp_path: Path) -> None:
    event = submitted(tmp_path, Request("Look.", workflow=workflow(tmp_path))).event

    assert (event.gates, event.gates_from) == (
        Gates(min_words=10, cited=True, sections=("Risks",)),
        GatesFrom.WORKFLOW,
    )


def test_the_gates_of_the_job_replace_both(tmp_path: Path) -> None:
    event = submitted(
        tmp_path, Request("Look.", workflow=workflow(tmp_path), gates=Gates(max_words=5))
    ).event

    assert (event.gates, event.gates_from) == (Gates(max_words=5), GatesFrom.JOB)


def test_without_gates_anywhere_there_are_none(tmp_path: Path) -> None:
    event = build_submission(
        Request("Look.", workflow=workflow(tmp_path, "")), Settings(offline=True)
    ).event

    assert (event.gates, event.gates_from, event.facts) == (None, None, None)


def test_facts_are_sent_with_the_job_and_act_as_gates(tmp_path: Path) -> None:
    table = a_table(a_fact("330", "m"))
    submission = submitted(tmp_path, Request("Look.", facts=table))

    assert submission.event.gates == Gates()
    assert submission.event.facts is not None
    assert submission.event.facts.digest == table.content_digest
    assert table.to_json() in submission.payloads


def test_facts_of_a_workflow_are_read_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "towers.csv").write_text("subject,attribute,value\nEiffel Tower,height,330 m\n")
    event = submitted(
        tmp_path,
        Request("Look.", workflow=workflow(tmp_path, "gates: {facts: {file: towers.csv}}\n")),
    ).event

    assert event.facts is not None


@pytest.mark.parametrize(
    ("gates", "message"),
    [
        ("gates: 3\n", r"look.yaml:1: gates: must hold fields"),
        ("gates: {least: 3}\n", r"look.yaml:1: gates: least: there is no such field"),
        (
            "gates:\n  min_words: 3\n  cited: perhaps\n",
            r"look.yaml:3: gates: cited: must be true or false",
        ),
        ("gates: {sections: [2024-13-45]}\n", r"look.yaml:1: gates has an invalid value"),
        ("gates: {facts: {file: nope.csv}}\n", r"nope.csv cannot be read"),
    ],
)
def test_invalid_gates_of_a_workflow_are_refused_with_their_place(
    tmp_path: Path, gates: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        workflow(tmp_path, gates)


def test_invalid_gates_of_the_settings_are_refused_before_the_start(
    tmp_path: Path,
) -> None:
    with pytest.raises(UserError, match=r"HANDOFF_GATES: .*ours.yaml.* cannot be read"):
        check_request(Request("Look."), settings(tmp_path, gates=None))
