"""The briefs of the assessor and the synthesizer are exact and hold no history of the job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from handoff_queue.shared.agent.opening_message import LoadedPayloads, build_opening
from handoff_queue.shared.agent.system_prompt import AnswerForm
from handoff_queue.shared.types.events import HandoffIssued
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.review import DEFAULT_RUBRIC
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.roles.briefs import read_role
from handoff_queue.supervisor.workflows import read_workflow
from tests.supervisor.shell import Shell, running_shell

REQUEST = "Weigh Qdrant against Milvus."
WORKFLOW = """
description: Two views of one finding.
review: true
synthesis: reconcile
steps:
  - {id: find, specialist: researcher, task: Find both.}
  - {id: pro, specialist: writer, task: Speak for Qdrant., depends_on: [find]}
  - {id: con, specialist: writer, task: Speak for Milvus., depends_on: [find]}
"""
FINDS = {
    "find": "Qdrant and Milvus are there.",
    "pro": "Qdrant is small.",
    "con": "Milvus is large.",
}
PLAN: list[dict[str, object]] = [
    {"step": "find", "specialist": "researcher", "task": "Find both."},
    {"step": "pro", "specialist": "writer", "task": "Speak for Qdrant.", "depends_on": ["find"]},
    {"step": "con", "specialist": "writer", "task": "Speak for Milvus.", "depends_on": ["find"]},
]


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    with running_shell(redis_url, "researcher", "writer") as supervisor:
        yield supervisor


@pytest.fixture
def job_id(shell: Shell, tmp_path: Path) -> JobId:
    """Return a job that has ended."""
    (tmp_path / "views.yaml").write_text(WORKFLOW)
    job_id = shell.jobs.submit(
        Request(REQUEST, workflow=read_workflow(str(tmp_path / "views.yaml")))
    )
    shell.advance(job_id)
    while open_handoffs := shell.open(job_id):
        for event in open_handoffs:
            shell.do(job_id, event, output=FINDS[event.step_id])
        shell.advance(job_id)
    return job_id


def prompt_of(shell: Shell, job_id: JobId, role: str) -> str:
    """Return the first message to the role, without its instructions."""
    event = next(
        event
        for event in shell.events(job_id)
        if isinstance(event, HandoffIssued) and event.assigned_to == role
    )
    handoff = AgentHandoff.from_json(
        shell.store.payloads.get(job_id, [event.handoff.digest])[event.handoff.digest]
    )
    texts = shell.store.payloads.get(job_id, [result.result.digest for result in handoff.context])
    results = {
        result.step_id: HandoffResult.from_json(texts[result.result.digest])
        for result in handoff.context
    }
    assert (handoff.feedback, handoff.artifacts) == ((), ())
    blocks = build_opening(
        handoff, read_role(role), LoadedPayloads(results), form=AnswerForm.OWN
    ).message["content"]
    return "".join(str(block["text"]) for block in blocks)


def expected_prompt(
    job: str, lists: dict[str, list[dict[str, object]]], *steps: str, note: str = ""
) -> str:
    paragraphs = {True: [job], False: list[str]()}
    for name, items in lists.items():
        paragraphs[name == "Rubric"] += [f"{name}:", *map(json.dumps, items)]
    if note:
        paragraphs[False].append(note)
    task = "\n".join((*paragraphs[True], "", *paragraphs[False], "", "Request:", REQUEST))
    results = (
        f'<result step="{step}" status="ok"> <data>{FINDS[step]}</data> </result>' for step in steps
    )
    return "\n\n".join((f"<task>{task}</task>", *results))


def test_the_assessors_context_holds_rubric_plan_request_and_results_and_nothing_else(
    shell: Shell, job_id: JobId
) -> None:
    rubric: list[dict[str, object]] = [
        {"criterion": criterion.name, "means": criterion.means}
        for criterion in DEFAULT_RUBRIC.criteria
    ]
    assert prompt_of(shell, job_id, "assessor") == expected_prompt(
        "Judge the results against the request below.",
        {"Rubric": rubric, "Plan": PLAN},
        "find",
        "pro",
        "con",
        note="This is round 1: work may be sent back 2 more times.",
    )


def test_the_synthesizers_context_holds_plan_request_and_last_results_and_nothing_else(
    shell: Shell, job_id: JobId
) -> None:
    job = "Write one answer to the request below from the results of these steps."
    assert prompt_of(shell, job_id, "synthesizer") == expected_prompt(
        job, {"Plan": PLAN}, "pro", "con"
    )
