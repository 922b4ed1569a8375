"""A request with documents gets a cited answer from the offline model, through real processes.

`tests/package/test_beside_other_packages.py` shows a job in new interpreters, with the command of
a Celery user.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from handoff_queue.shared.documents.folder import read_folder
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.client.request import Request
from tests.e2e.fleet import Fleet
from tests.running_system import DOCUMENTS, RunningSystem

pytestmark = pytest.mark.slow

COMPARISON = (
    "Compare Qdrant, pgvector and Milvus for a team that needs filtering and durable storage"
)


def run(jobs: Client, text: str) -> JobResult:
    return jobs.result(jobs.submit(Request(text, documents=DOCUMENTS, model="offline")), wait_s=60)


@pytest.fixture(scope="module")
def jobs(system: RunningSystem) -> Iterator[Client]:
    connected = system.jobs()
    yield connected
    connected.store.connection.close()


@pytest.fixture(scope="module")
def result(jobs: Client) -> JobResult:
    return run(jobs, COMPARISON)


def test_the_job_succeeds_with_an_answer(result: JobResult) -> None:
    assert result.status is JobStatus.OK
    assert result.answer


def test_at_least_three_researchers_of_one_chord_run_in_worker_processes(result: JobResult) -> None:
    researchers = [handoff for handoff in result.handoffs if handoff["assigned_to"] == "researcher"]

    assert len(researchers) >= 3
    planner = next(
        handoff["worker"] for handoff in result.handoffs if handoff["assigned_to"] == "planner"
    )
    workers = {handoff["worker"] for handoff in researchers}
    assert planner not in workers
    assert len({handoff["group"] for handoff in researchers}) == 1


def test_researchers_that_run_at_once_run_in_separate_processes(fleet: Fleet) -> None:
    fleet.model.specialists["own"] = "researcher"
    job_id, held = fleet.occupy("own")

    steps = [event for event in fleet.issued(job_id) if event.assigned_to == "researcher"]
    assert (
        len({fleet.pid_of(job_id, step.handoff_id) for step in steps})
        == len(steps)
        == len(held)
        == 3
    )
    assert len({step.group for step in steps}) == 1
    for call in held:
        call.release.set()
    fleet.wait_for_success(job_id)


def test_every_citation_matches_its_document(result: JobResult) -> None:
    texts = read_folder(DOCUMENTS, max_document_bytes=10**7, max_documents=100).texts

    assert result.citations
    assert all(
        texts[citation["digest"]][citation["start"] : citation["end"]] == citation["quote"]
        for citation in result.citations
    )
    assert all(f"[{citation['n']}]" in str(result.answer) for citation in result.citations)


def test_the_answer_was_reviewed_and_says_that_no_model_made_it(result: JobResult) -> None:
    assert [verdict["verdict"] for verdict in result.verdicts][-1] == "PASS"
    assert any("without a language model" in note for note in result.notes)


def test_every_handoff_and_every_result_is_readable_in_full(result: JobResult) -> None:
    report_fields = {
        "state",
        "worker",
        "claims",
        "lost_claims",
        "past_claims",
        "usage",
        "issued_at",
        "started_at",
        "finished_at",
        "group",
        "child",
    }
    for handoff in result.handoffs:
        parsed = AgentHandoff.from_json(
            _json({name: value for name, value in handoff.items() if name not in report_fields})
        )
        assert [item.step_id for item in parsed.context] == list(parsed.depends_on)
    assert {
        HandoffResult.from_json(_json(step_result)).handoff_id for step_result in result.results
    } == {handoff["handoff_id"] for handoff in result.handoffs}


def test_two_concurrent_jobs_do_not_disturb_each_other(jobs: Client) -> None:
    texts = [COMPARISON, "Which index does Faiss offer, and what is HNSW?"]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda text: run(jobs, text), texts)

    assert first.status.has_ended
    assert second.status.has_ended
    assert first.status is JobStatus.OK
    assert second.answer != first.answer


def _json(value: object) -> str:
    from json import dumps

    return dumps(value)
