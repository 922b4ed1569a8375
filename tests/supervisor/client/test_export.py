"""An export holds everything about a job, so that `show` can be rebuilt from it, and no API key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.types.events import HandoffIssued, JobEnded, WebhookTried
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.export import Export, extract_record
from handoff_queue.supervisor.client.job_result import JobResult, build_report
from handoff_queue.supervisor.client.request import Request
from tests.doubles.jobs import model_reply
from tests.supervisor.shell import Shell, running_shell
from tests.waiting import wait_until

SECRET = "hunter2-and-more"


@pytest.fixture
def shell(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.setenv("SHOP_PASSWORD", SECRET)
    with running_shell(redis_url, "researcher", "writer") as supervisor:
        yield supervisor


def finished_job(
    shell: Shell, documents: Path | None = None, request: str = "Compare Qdrant and Milvus"
) -> JobId:
    job_id = shell.jobs.submit(
        Request(request, documents=documents, webhook_url="https://hooks.example/T0/B1/secret-path")
    )
    shell.advance(job_id)
    while shell.open(job_id):
        for event in shell.open(job_id):
            shell.do(job_id, event)
        shell.advance(job_id)
    return job_id


def exported(jobs: Client, job_id: JobId, *, texts: bool = False) -> Export:
    """Return the export after a round trip through JSON."""
    return Export.from_json(jobs.export(job_id, texts=texts).to_json())


def json_without_time(result: JobResult) -> str:
    return result.model_copy(update={"wall_s": 0.0}).to_json()


def test_the_output_of_show_for_an_ended_job_is_rebuilt_from_the_file_alone(
    shell: Shell,
) -> None:
    job_id = finished_job(shell)
    file = exported(shell.jobs, job_id)
    before = shell.jobs.result(job_id)
    shell.jobs.delete(job_id)

    assert any(isinstance(entry.event, JobEnded) for entry in file.journal)
    assert build_report(extract_record(file)) == before


def test_the_output_of_show_for_a_waiting_job_is_rebuilt_with_the_turns_so_far(
    shell: Shell,
) -> None:
    job_id = shell.submit()
    shell.advance(job_id)
    shell.leave()
    event: HandoffIssued = shell.open(job_id)[0]
    claim = shell.claim(job_id, event)
    claim.checkpoint(model_reply())
    file = exported(shell.jobs, job_id)

    assert json_without_time(build_report(extract_record(file))) == json_without_time(
        shell.jobs.result(job_id)
    )
    assert file.turns == {HandoffId(event.handoff_id): (model_reply(),)}


def test_every_payload_matches_its_digest(shell: Shell) -> None:
    file = exported(shell.jobs, finished_job(shell))

    assert len(file.payloads) > 5
    assert all(compute_digest(text) == digest for digest, text in file.payloads.items())


def test_the_export_contains_no_key_no_webhook_and_no_credential(
    shell: Shell,
) -> None:
    job_id = finished_job(
        shell,
        request=(
            f'Log in with {SECRET} at https://me:pass@example.com:1/"x", Bearer'
            " abcdefghijklmnop1234"
        ),
    )
    text = shell.jobs.export(job_id).to_json()

    assert not [
        secret
        for secret in (SECRET, "me:pass", "abcdefghijklmnop1234", "secret-path")
        if secret in text
    ]
    assert build_report(extract_record(Export.from_json(text))).status.has_ended


def test_the_texts_of_documents_are_included_on_request(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("Order A-1042 was shipped.")
    job_id = finished_job(shell, tmp_path)

    without, with_them = exported(shell.jobs, job_id), exported(shell.jobs, job_id, texts=True)

    assert [document.path for document in without.documents] == ["a.md"]
    assert (without.texts, list((with_them.texts or {}).values())) == (
        None,
        ["Order A-1042 was shipped."],
    )


def has_tried_its_webhook(shell: Shell, job_id: JobId) -> bool:
    """Return whether the first attempt to post to the webhook has ended."""
    newest = shell.events(job_id)[-1]
    return isinstance(newest, WebhookTried) and not newest.under_way


def test_an_export_changes_nothing(shell: Shell) -> None:
    job_id = finished_job(shell)
    wait_until(lambda: has_tried_its_webhook(shell, job_id), expected="the end of the attempt")
    before = shell.store.connection.redis.hgetall(keys.job(job_id))
    shell.jobs.export(job_id)

    assert shell.store.connection.redis.hgetall(keys.job(job_id)) == before


@pytest.mark.parametrize("depth", [400, 500, 600, 700, 800, 900, 1_000, 50_000])
def test_a_text_of_lists_within_lists_is_exported_as_it_is(jobs: Client, depth: int) -> None:
    text = "[" * depth + "]" * depth
    job_id = jobs.submit(Request(text))

    assert text in jobs.export(job_id).payloads.values()


def test_a_text_with_an_address_that_is_none_is_exported(jobs: Client) -> None:
    job_id = jobs.submit(Request('{"webhook_url": "http://["}'))

    assert '{"webhook_url":"[redacted]"}' in jobs.export(job_id).payloads.values()


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_half_a_character_in_json_next_to_a_secret_stops_no_export(
    jobs: Client, levels: int
) -> None:
    text = '{"cut": "\\ud83d", "webhook_url": "https://hooks.example/secret-path"}'
    for _ in range(levels - 1):
        text = json.dumps({"output": text})
    job_id = jobs.submit(Request(text))

    export = exported(jobs, job_id)

    (request,) = [payload for payload in export.payloads.values() if "ud83d" in payload]
    assert "secret-path" not in request
