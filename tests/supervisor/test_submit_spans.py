"""Each job of a joint submission has a span, with its duration and its error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from handoff_queue.shared.types.errors import StoreRefusesWrites
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from tests.shared.observability.otel.test_spans import RecordedTelemetry, telemetry_in_use

MANY = [Request(f"Compare {number}.") for number in range(3)]


@pytest.fixture
def recorded_telemetry() -> Iterator[RecordedTelemetry]:
    made = RecordedTelemetry()
    with telemetry_in_use(made.telemetry):
        yield made


def by_job(recorded_telemetry: RecordedTelemetry) -> dict[JobId, ReadableSpan]:
    return {
        JobId(str((span.attributes or {})["handoff.job.id"])): span
        for span in recorded_telemetry.named("submit")
    }


def test_each_span_lasts_from_before_to_after_its_commit_and_is_a_root(
    jobs: Client, recorded_telemetry: RecordedTelemetry
) -> None:
    job_ids = list(jobs.submit_each(MANY))

    spans = by_job(recorded_telemetry)
    assert set(spans) == set(job_ids)
    assert len({span.context.trace_id for span in spans.values() if span.context}) == len(MANY)
    for job_id, span in spans.items():
        (written,) = jobs.store.journal.read(job_id)
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time < (written.at + 0.001) * 1e9, "its clock counts whole milliseconds"
        assert written.at * 1e9 < span.end_time
        assert span.parent is None
        assert span.status.status_code is StatusCode.UNSET
        assert span.context is not None
        assert f"{span.context.trace_id:032x}" in str(jobs.store.traces.load_trace_context(job_id))


def test_spans_of_refused_commits_are_errors(
    jobs: Client, recorded_telemetry: RecordedTelemetry
) -> None:
    redis = jobs.store.connection.redis
    redis.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(StoreRefusesWrites):
            list(jobs.submit_each(MANY))
    finally:
        redis.execute_command("REPLICAOF", "NO", "ONE")

    spans = by_job(recorded_telemetry).values()
    assert [span.status.status_code for span in spans] == [StatusCode.ERROR] * len(MANY)
    assert {(span.attributes or {})["error.type"] for span in spans} == {"StoreRefusesWrites"}


def test_jobs_that_exist_because_a_reply_was_lost_were_not_refused(
    jobs: Client, recorded_telemetry: RecordedTelemetry, armed: Path
) -> None:
    (armed / "script.commit.after").write_text("drop")

    job_ids = list(jobs.submit_each(MANY))

    assert not (armed / "script.commit.after").exists()
    assert {
        job_id: span.status.status_code for job_id, span in by_job(recorded_telemetry).items()
    } == dict.fromkeys(job_ids, StatusCode.UNSET)
