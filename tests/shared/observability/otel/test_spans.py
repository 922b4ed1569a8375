"""A span has its attributes, and omits texts and secrets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link

from handoff_queue.shared.observability.otel.export import RedactingExporter, SpanIds
from handoff_queue.shared.observability.otel.spans import OpenTelemetry
from handoff_queue.shared.observability.redaction import HIDDEN, Redactor
from handoff_queue.shared.observability.telemetry import Telemetry, _implementations
from handoff_queue.shared.observability.trace_ids import (
    JobSpan,
    StoredTrace,
    derive_handoff_span,
    derive_job_span,
    find_position,
)
from handoff_queue.shared.types.errors import ModelRejected, StoreUnavailable
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.ids import JobId
from handoff_queue.testing import tool_call_reply
from tests.doubles.agent_runs import answer_reply, run_with_replies
from tests.doubles.handoffs import JOB, a_handoff, a_result, a_tool

SECRET = "canary-2f81bb"
CONTENT = "mellifluous"


class RecordedTelemetry:
    """Telemetry that exports its spans to memory."""

    def __init__(self, *, captures: bool = False) -> None:
        self._kept = InMemorySpanExporter()
        ids = SpanIds()
        self.provider = TracerProvider(id_generator=ids, shutdown_on_exit=False)
        self.provider.add_span_processor(
            SimpleSpanProcessor(
                RedactingExporter(self._kept, Redactor([SECRET]), keeps_errors=captures)
            )
        )
        self.telemetry = OpenTelemetry(self.provider, ids, "anthropic", captures=captures)

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._kept.get_finished_spans()}

    def named(self, beginning: str) -> list[ReadableSpan]:
        return [span for span in self._kept.get_finished_spans() if span.name.startswith(beginning)]


@contextmanager
def telemetry_in_use(form: Telemetry) -> Iterator[None]:
    """Use this telemetry in the process during the context."""
    before = _implementations[:]
    _implementations[:] = [form]
    try:
        yield
    finally:
        _implementations[:] = before


@pytest.fixture(params=[False, True], ids=["content-off", "content-on"])
def captures(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def run_handoff(
    recorded: RecordedTelemetry, *replies: Any, tool: Callable[[dict[str, Any]], str] | None = None
) -> None:
    """Run a handoff with a secret in its task, its tool result and its answer."""
    tools = (a_tool("look", tool or (lambda _: f"It is {CONTENT}: {SECRET}")),)
    with (
        telemetry_in_use(recorded.telemetry),
        recorded.telemetry.handoff(a_handoff(), "claude-haiku-5-5", None) as span,
    ):
        handoff = a_handoff(task_description=f"Be {CONTENT} about {SECRET}.")
        span.record_result(run_with_replies(*replies, handoff=handoff, tools=tools).go())


def test_content_is_exported_only_on_request_and_a_secret_never(captures: bool) -> None:
    recorded = RecordedTelemetry(captures=captures)
    run_handoff(
        recorded,
        tool_call_reply(("look", {"q": f"{CONTENT} {SECRET}"})),
        answer_reply(f"{CONTENT} {SECRET}"),
    )

    texts = {
        span.name: [repr(value) for value in (span.attributes or {}).values()]
        for span in recorded.spans.values()
    }
    assert set(texts) == {"invoke_agent researcher", "chat claude-haiku-5-5", "execute_tool look"}
    assert any(CONTENT in text for text in texts["chat claude-haiku-5-5"]) == captures
    assert any(CONTENT in text for text in texts["execute_tool look"]) == captures
    assert not any(SECRET in text for of_span in texts.values() for text in of_span)
    assert any(HIDDEN in text for of_span in texts.values() for text in of_span) == captures


def test_the_events_and_links_of_a_users_span_contain_no_secret() -> None:
    recorded = RecordedTelemetry(captures=True)
    tracer = recorded.provider.get_tracer("a user's tool")
    with tracer.start_as_current_span("first") as first:
        pass
    link = Link(first.get_span_context(), {"note": SECRET})

    with tracer.start_as_current_span("second", links=[link]) as span:
        span.add_event(f"asked for {SECRET}", {"key": SECRET})

    exported = recorded.spans["second"]
    texts = [event.name for event in exported.events]
    texts += [repr(dict(event.attributes or {})) for event in exported.events]
    texts += [repr(dict(link.attributes or {})) for link in exported.links]
    assert len(texts) == 3
    assert not any(SECRET in text for text in texts)


def test_a_failed_call_names_the_kind_of_error_and_no_text() -> None:
    recorded = RecordedTelemetry()
    run_handoff(recorded, ModelRejected(f"{CONTENT} is not a model", status=400))

    chat = recorded.spans["chat claude-haiku-5-5"]
    assert (chat.attributes or {})["error.type"] == "ModelRejected"
    assert CONTENT not in chat.to_json()
    agent = recorded.spans["invoke_agent researcher"]
    assert (agent.attributes or {})["error.type"] == StopReason.MODEL_ERROR


def test_a_result_that_reports_failure_is_a_failed_span() -> None:
    recorded = RecordedTelemetry()
    run_handoff(recorded, answer_reply("", status="failed", problem=CONTENT))

    attributes = recorded.spans["invoke_agent researcher"].attributes or {}
    assert attributes["error.type"] == "failed"
    assert str(attributes["gen_ai.response.finish_reasons"]) in ("['finished']", "('finished',)")


def test_a_tool_that_a_model_has_made_up_is_not_named() -> None:
    recorded = RecordedTelemetry()
    run_handoff(recorded, tool_call_reply((CONTENT, {})), answer_reply())

    assert [span.name for span in recorded.named("execute_tool")] == [
        "execute_tool an unknown tool"
    ]


def test_an_error_in_a_users_own_span_is_exported_without_its_text() -> None:
    recorded = RecordedTelemetry()
    with (
        pytest.raises(ValueError, match=CONTENT),
        recorded.provider.get_tracer("mine").start_as_current_span("mine"),
    ):
        raise ValueError(CONTENT)

    (event,) = recorded.spans["mine"].events
    assert dict(event.attributes or {}) == {
        "exception.type": "ValueError",
        "exception.escaped": "False",
    }
    assert CONTENT not in recorded.spans["mine"].to_json()


def test_turns_of_a_claim_without_a_result_are_below_the_handoff_that_another_ends() -> None:
    recorded = RecordedTelemetry()
    with recorded.telemetry.handoff(a_handoff(), None, None):
        recorded.telemetry._tracer.start_span("of the first").end()
    with recorded.telemetry.handoff(a_handoff(), None, 1_000.5) as span:
        span.record_result(a_result())

    (agent,) = recorded.named("invoke_agent")
    first = recorded.spans["of the first"]
    assert agent.context is not None
    assert first.parent is not None
    assert (
        first.parent.span_id
        == agent.context.span_id
        == derive_handoff_span(JOB, a_handoff().handoff_id)
    )
    assert agent.start_time == 1_000_500_000_000, "of its first claim"


def test_a_dropped_handoff_has_a_span() -> None:
    recorded = RecordedTelemetry()
    with recorded.telemetry.handoff(a_handoff(), None, None) as span:
        span.mark_dropped()

    attributes = recorded.spans["invoke_agent researcher"].attributes or {}
    assert (attributes["handoff.status"], attributes["error.type"]) == ("dropped", "cancelled")


@pytest.mark.parametrize(("earlier_s", "is_within"), [(0.0, True), (60.0, False)])
def test_a_handoff_is_below_the_span_that_runs_it_unless_it_began_earlier(
    earlier_s: float, is_within: bool
) -> None:
    recorded, place = RecordedTelemetry(), find_position(JOB, lambda _: StoredTrace())
    began_at = time.time() - earlier_s
    run, handoff = (
        recorded.telemetry._tracer.start_as_current_span("run"),
        recorded.telemetry.handoff(a_handoff(), None, began_at),
    )
    with recorded.telemetry.within(JOB), run as runs, handoff as span:
        span.record_result(a_result())

    (agent,) = recorded.named("invoke_agent")
    assert agent.parent is not None
    assert agent.parent.span_id == (runs.get_span_context().span_id if is_within else place.span_id)


def ended_job_span(retries: int = 0) -> JobSpan:
    return JobSpan(
        JOB, "team", "ok", is_failed=False, started_at=10.0, ended_at=12.0, retries=retries
    )


def test_a_job_without_a_parent_span_is_the_root_of_its_trace() -> None:
    recorded = RecordedTelemetry()
    recorded.telemetry.record_job_end(ended_job_span())

    (job,) = recorded.named("invoke_workflow")
    assert job.context is not None
    assert (job.parent, job.context.trace_id, job.context.span_id) == (
        None,
        find_position(JOB, lambda _: StoredTrace()).trace_id,
        derive_job_span(JOB),
    )
    assert (job.start_time, job.end_time) == (10_000_000_000, 12_000_000_000)


def test_the_end_after_a_retry_is_below_the_first_end() -> None:
    recorded = RecordedTelemetry()
    recorded.telemetry.record_job_end(ended_job_span())
    recorded.telemetry.record_job_end(ended_job_span(retries=1))

    first, again = recorded.named("invoke_workflow")
    assert first.context is not None
    assert again.context is not None
    assert again.parent is not None
    assert again.parent.span_id == first.context.span_id != again.context.span_id


def test_without_a_store_only_the_place_in_the_callers_trace_is_lost() -> None:
    recorded = RecordedTelemetry()

    def away(_: JobId) -> StoredTrace:
        raise StoreUnavailable("away")

    recorded.telemetry.set_trace_reader(away)
    with recorded.telemetry.within(JOB):
        recorded.telemetry._tracer.start_span("published").end()

    parent = recorded.spans["published"].parent
    assert parent is not None
    assert parent.span_id == derive_job_span(JOB)
