"""Telemetry that exports spans: one trace for each job, across all its processes. See
docs/decisions/0013-one-trace.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import lru_cache

from opentelemetry import context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

from handoff_queue.shared.observability.otel import gen_ai
from handoff_queue.shared.observability.otel.celery_spans import CelerySpans
from handoff_queue.shared.observability.otel.export import SpanIds, make_provider
from handoff_queue.shared.observability.redaction import Redactor, find_secrets
from handoff_queue.shared.observability.telemetry import (
    BatchedCallTimes,
    Span,
    Submissions,
    Telemetry,
)
from handoff_queue.shared.observability.trace_ids import (
    JobSpan,
    StoredTrace,
    TracePosition,
    derive_handoff_span,
    derive_job_span,
    find_position,
    format_traceparent,
)
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.checkpoints import ToolObserved
from handoff_queue.shared.types.errors import StoreError
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.model import Block, ModelCall, ModelReply

SCOPE = "handoff"
CLOCKS_APART_S = 1.0
"""Largest assumed difference in seconds between Redis's clock and a process's clock."""
KNOWN_JOBS = 10_000
"""Number of jobs whose trace position a process remembers, at about 200 bytes each."""


def open_telemetry(service: str, settings: Settings, flush_s: float | None) -> Telemetry:
    """Start to export spans, and return the implementation that exports them.

    In a supervisor or a worker, its provider becomes the global one if there is none yet. So the
    spans of a user's tools join the trace. A client leaves the global provider alone.

    Args:
        flush_s: see `start_telemetry`; None in a supervisor or a worker.
    """
    captures = os.environ.get(gen_ai.CAPTURE, "").strip().lower() in gen_ai.CAPTURES
    ids = SpanIds()
    provider = make_provider(
        service, Redactor(find_secrets(settings)), ids, keeps_errors=captures, flush_s=flush_s
    )
    telemetry = OpenTelemetry(provider, ids, gen_ai.get_provider(settings), captures=captures)
    # a client runs in the process of a host, which may set its own provider later
    is_own_process = flush_s is None
    if is_own_process and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(provider)
    CelerySpans(telemetry.get_traceparent).instrument(tracer_provider=provider)
    return telemetry


class _CallSpan(Span):
    """Exported span of a model call or a tool call."""

    def __init__(self, span: trace.Span, *, captures: bool) -> None:
        self._span = span
        self._captures = captures

    def record_reply(self, reply: ModelReply) -> None:
        self._span.set_attributes(gen_ai.reply_attributes(reply))
        if self._captures:
            self._span.set_attributes(gen_ai.build_reply_content(reply))

    def record_tool_result(self, result: ToolObserved) -> None:
        if result.is_error:
            _fail(self._span, "tool_error")
        if self._captures:
            self._span.set_attributes(gen_ai.build_tool_result_content(result))


class _ClaimOutcome(Span):
    """Outcome of a claim of a handoff: a result, a handoff that no job needs any more, or
    neither. In the last case, a later claim continues the handoff.
    """

    def __init__(self) -> None:
        self.result: HandoffResult | None = None
        self.is_dropped = False

    def record_result(self, result: HandoffResult) -> None:
        self.result = result

    def mark_dropped(self) -> None:
        self.is_dropped = True


class _Submitted(Submissions):
    """Exported spans of jobs that are submitted together."""

    def __init__(self, spans: Sequence[trace.Span]) -> None:
        super().__init__(list(map(_format_traceparent, spans)))
        self._spans = spans

    def record_results(self, problems: Sequence[Exception | None]) -> None:
        for span, problem in zip(self._spans, problems, strict=True):
            if problem is not None:
                _fail(span, type(problem).__name__)


class OpenTelemetry(Telemetry):
    """The implementation that exports spans. A process has one."""

    is_on = True

    def __init__(
        self, provider: TracerProvider, ids: SpanIds, model_provider: str, *, captures: bool
    ) -> None:
        self._provider = provider
        self._ids = ids
        self._model_provider = model_provider
        self._captures = captures
        self._tracer = provider.get_tracer(SCOPE)
        self._load_trace_context: Callable[[JobId], StoredTrace] = lambda _: StoredTrace()
        self._look_up_cached = lru_cache(KNOWN_JOBS)(self._look_up)

    def set_trace_reader(self, load_trace_context: Callable[[JobId], StoredTrace]) -> None:
        self._load_trace_context = load_trace_context

    @contextmanager
    def submitting(self, job_id: JobId) -> Iterator[str | None]:
        """Open the span of a submission. It is a root span, or a child of the caller's current
        span.
        """
        with self._working("submit", SpanKind.PRODUCER, {"handoff.job.id": job_id}) as span:
            yield _format_traceparent(span)

    @contextmanager
    def submitting_each(self, job_ids: Sequence[JobId]) -> Iterator[Submissions]:
        kind = SpanKind.PRODUCER
        spans: list[trace.Span] = []
        for job_id in job_ids:
            attributes = {"handoff.job.id": job_id}
            spans.append(self._tracer.start_span("submit", kind=kind, attributes=attributes))
        try:
            yield _Submitted(spans)
        except BaseException as error:
            for span in spans:
                _fail(span, type(error).__name__)
            raise
        finally:
            for span in spans:
                span.end()

    @contextmanager
    def within(self, job_id: JobId) -> Iterator[None]:
        place = self._find_position(job_id)
        with _use_remote_span(_build_context(place, place.span_id)):
            yield

    def get_traceparent(self, job_id: JobId) -> str:
        place = self._find_position(job_id)
        return format_traceparent(place.trace_id, place.span_id, is_sampled=bool(place.is_sampled))

    @contextmanager
    def handoff(
        self, handoff: AgentHandoff, model: str | None, started_at: float | None
    ) -> Iterator[Span]:
        """Put the spans of the block below the handoff's span. The claim that ends the handoff
        exports the handoff's span, which starts with the first claim.
        """
        place = self._find_position(handoff.job_id)
        began_ns = time.time_ns()
        claim_outcome = _ClaimOutcome()
        current = trace.get_current_span().get_span_context()
        above = _build_context(place, place.span_id)
        if current.trace_id == place.trace_id and _is_open_since(started_at):
            above = current
        own_id = derive_handoff_span(handoff.job_id, handoff.handoff_id)
        with _use_remote_span(_build_context(place, own_id)):
            yield claim_outcome
        result = claim_outcome.result
        if result is None and not claim_outcome.is_dropped:
            return
        attributes = gen_ai.build_handoff_attributes(handoff, self._model_provider, model)
        if result:
            attributes |= gen_ai.build_result_attributes(result)
        else:
            attributes |= gen_ai.DROPPED
        if started_at:
            since_ns = min(began_ns, int(started_at * 1e9))
        else:
            since_ns = began_ns
        with self._ids.span(own_id):
            span = self._tracer.start_span(
                f"invoke_agent {handoff.assigned_to}",
                _build_context_below(above),
                attributes=attributes,
                start_time=since_ns,
            )
        failure = result.failure if result else "cancelled"
        if failure:
            _fail(span, failure)
        span.end()

    @contextmanager
    def chat(self, call: ModelCall) -> Iterator[Span]:
        attributes = gen_ai.build_call_attributes(call, self._model_provider)
        if self._captures:
            attributes |= gen_ai.build_call_content(call)
        with self._working(f"chat {call.model}", SpanKind.CLIENT, attributes) as span:
            yield _CallSpan(span, captures=self._captures)

    def export_batched_chat(
        self,
        call: ModelCall,
        batch_id: str | None,
        times: BatchedCallTimes,
        outcome: ModelReply | str,
    ) -> None:
        attributes = gen_ai.build_batched_call_attributes(call, self._model_provider, batch_id)
        if self._captures:
            attributes |= gen_ai.build_call_content(call)
        span = self._tracer.start_span(
            f"chat {call.model}",
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=int(times.intended_at * 1e9),
        )
        if isinstance(outcome, ModelReply):
            _CallSpan(span, captures=self._captures).record_reply(outcome)
        else:
            _fail(span, outcome)
        span.end(int(times.ended_at * 1e9))

    @contextmanager
    def tool(self, call: Block, name: str) -> Iterator[Span]:
        attributes = gen_ai.build_tool_call_attributes(call, name)
        if self._captures:
            attributes |= gen_ai.build_tool_call_content(call)
        with self._working(f"execute_tool {name}", SpanKind.INTERNAL, attributes) as span:
            yield _CallSpan(span, captures=self._captures)

    def record_job_end(self, life: JobSpan) -> None:
        """Export the root span of the job. A job that ends again after a retry gets a second
        span below the first.
        """
        place = self._find_position(life.job_id)
        own_id = derive_job_span(life.job_id)
        above = place.parent_id
        if life.retries > 0:
            own_id = self._ids.generate_span_id()
            above = place.span_id
        parent = _build_context_below(_build_context(place, above)) if above else context.Context()
        with self._ids.span(own_id, place.trace_id):
            span = self._tracer.start_span(
                f"invoke_workflow {life.mode}",
                parent,
                attributes=gen_ai.build_job_attributes(life),
                start_time=int(life.started_at * 1e9),
            )
        if life.is_failed:
            _fail(span, life.status)
        span.end(int(life.ended_at * 1e9))

    def get_ids(self) -> dict[str, str]:
        current = trace.get_current_span().get_span_context()
        if current.is_valid:
            return {"trace_id": f"{current.trace_id:032x}", "span_id": f"{current.span_id:016x}"}
        return {}

    def stop(self) -> None:
        self._provider.shutdown()

    @contextmanager
    def _working(
        self, name: str, kind: SpanKind, attributes: gen_ai.Attributes
    ) -> Iterator[trace.Span]:
        """Open a span for the block. Only the kind of an error is recorded, because its text
        may quote a payload.
        """
        with self._tracer.start_as_current_span(
            name,
            kind=kind,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                _fail(span, type(error).__name__)
                raise

    def _find_position(self, job_id: JobId) -> TracePosition:
        """Return the job's position in its trace. If the store is unreachable, derive the
        position from the job's id alone.
        """
        try:
            return self._look_up_cached(job_id)
        except StoreError:
            return self._add_sampling_decision(find_position(job_id, lambda _: StoredTrace()))

    def _look_up(self, job_id: JobId) -> TracePosition:
        return self._add_sampling_decision(find_position(job_id, self._load_trace_context))

    def _add_sampling_decision(self, place: TracePosition) -> TracePosition:
        """Add the sampler's decision if there is none yet. It depends on the trace's id, so
        all processes decide the same.
        """
        if place.is_sampled is not None:
            return place
        decision = self._provider.sampler.should_sample(None, place.trace_id, "submit").decision
        return replace(place, is_sampled=decision is not Decision.DROP)


def _is_open_since(started_at: float | None) -> bool:
    """Return whether the current span began before that time, in Unix seconds, or may have
    done so. The span of a later claim began after the handoff.
    """
    began_ns = getattr(trace.get_current_span(), "start_time", None)
    return not started_at or began_ns is None or began_ns < (started_at + CLOCKS_APART_S) * 1e9


def _format_traceparent(span: trace.Span) -> str:
    position = span.get_span_context()
    return format_traceparent(
        position.trace_id, position.span_id, is_sampled=position.trace_flags.sampled
    )


def _fail(span: trace.Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


def _build_context(place: TracePosition, span_id: int) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if place.is_sampled else TraceFlags.DEFAULT)
    return SpanContext(place.trace_id, span_id, is_remote=True, trace_flags=flags)


def _build_context_below(above: SpanContext) -> context.Context:
    return trace.set_span_in_context(NonRecordingSpan(above))


def _use_remote_span(above: SpanContext) -> AbstractContextManager[trace.Span]:
    """Put the spans of this thread below a span that another process exports."""
    return trace.use_span(
        NonRecordingSpan(above), record_exception=False, set_status_on_exception=False
    )
