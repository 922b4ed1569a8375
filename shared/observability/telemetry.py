"""The port to OpenTelemetry, and its implementation that exports nothing.

A process uses this implementation until `start_telemetry` finds a collector's URL in the
environment and the packages of the extra `otel`. Each job has one trace, see
docs/decisions/0013-one-trace.md.
"""

# ruff: noqa: ARG002 - this implementation uses no argument

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from handoff_queue.shared.types.ids import JobId

if TYPE_CHECKING:
    from handoff_queue.shared.observability.trace_ids import JobSpan, StoredTrace
    from handoff_queue.shared.types.checkpoints import ToolObserved
    from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult
    from handoff_queue.shared.types.model import Block, ModelCall, ModelReply

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""OpenTelemetry's own variables. If one is set, spans are sent to its URL."""


class Span:
    """Span of a handoff, a model call or a tool call. This one is not exported."""

    def record_result(self, result: HandoffResult) -> None:
        """Record the handoff's result, which is in the journal."""

    def mark_dropped(self) -> None:
        """Note that no job needs the handoff any more, so it will have no result."""

    def record_reply(self, reply: ModelReply) -> None:
        """Record the reply of the model call."""

    def record_tool_result(self, result: ToolObserved) -> None:
        """Record the result of the tool call."""


@dataclass(frozen=True, slots=True)
class BatchedCallTimes:
    """When a model call in a batch began and ended, in Unix seconds by Redis's clock."""

    intended_at: float
    ended_at: float


class Submissions:
    """Spans of jobs that are submitted together. They are not exported."""

    def __init__(self, traceparents: Sequence[str | None]) -> None:
        self.traceparents = traceparents
        """Traceparent to store with each job, or None."""

    def record_results(self, problems: Sequence[Exception | None]) -> None:
        """Record why each job was refused, or None if it was accepted."""


class Telemetry:
    """The port. Its methods are safe to call from many threads, and raise no errors."""

    is_on = False

    def set_trace_reader(self, load_trace_context: Callable[[JobId], StoredTrace]) -> None:
        """Set the function that reads a job's stored trace. It may raise a StoreError."""

    def submitting(self, job_id: JobId) -> AbstractContextManager[str | None]:
        """Open the span of a submission. The block gets the `traceparent` to store with the
        job, or None.
        """
        return _NOTHING_KEPT

    def submitting_each(self, job_ids: Sequence[JobId]) -> AbstractContextManager[Submissions]:
        """Open a span for each of several jobs that are submitted together. No span is the
        parent of another, and all end with the block.
        """
        return nullcontext(Submissions([None] * len(job_ids)))

    def within(self, job_id: JobId) -> AbstractContextManager[None]:
        """Put spans and published messages of the block into the trace of this job."""
        return _NOTHING

    def handoff(
        self, handoff: AgentHandoff, model: str | None, started_at: float | None
    ) -> AbstractContextManager[Span]:
        """Open the span of a claim.

        Args:
            model: name of the model, if it is known.
            started_at: time of the handoff's first claim, Unix time in seconds.
        """
        return _NO_SPAN

    def chat(self, call: ModelCall) -> AbstractContextManager[Span]:
        """Open the span of a model call."""
        return _NO_SPAN

    def export_batched_chat(
        self,
        call: ModelCall,
        batch_id: str | None,
        times: BatchedCallTimes,
        outcome: ModelReply | str,
    ) -> None:
        """Export the span of a model call in a batch after its end. The process that created the
        batch may be another one.

        Args:
            batch_id: None if the id is not known.
            outcome: the reply, or the kind of failure.
        """

    def tool(self, call: Block, name: str) -> AbstractContextManager[Span]:
        """Open the span of a tool call.

        Args:
            name: name of the tool, or a fixed text if the tool does not exist.
        """
        return _NO_SPAN

    def record_job_end(self, life: JobSpan) -> None:
        """Record the end of a job."""

    def get_ids(self) -> dict[str, str]:
        """Return `trace_id` and `span_id` of this thread's span, for its log lines."""
        return {}

    def stop(self) -> None:
        """Send the last spans at the end of a process."""


_NOTHING_KEPT: AbstractContextManager[str | None] = nullcontext()
_NOTHING: AbstractContextManager[None] = nullcontext()
_NO_SPAN: AbstractContextManager[Span] = nullcontext(Span())
_OFF = Telemetry()
_implementations: list[Telemetry] = []
"""The implementation that `set_telemetry` has set, at most one."""


def get_telemetry() -> Telemetry:
    """Return the implementation of this process."""
    if _implementations:
        return _implementations[0]
    return _OFF


def set_telemetry(implementation: Telemetry) -> None:
    """Set the implementation of this process."""
    _implementations[:] = [implementation]


def is_chosen() -> bool:
    """Return whether `set_telemetry` has set the implementation of this process."""
    return bool(_implementations)


def is_telemetry_wanted() -> bool:
    """Return whether OpenTelemetry's own variables ask for spans."""
    is_off = (
        os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
    )
    return not is_off and find_endpoint_variable() is not None


def find_endpoint_variable() -> str | None:
    """Return the name of the first variable in `ENDPOINTS` that is set, or None."""
    for name in ENDPOINTS:
        if os.environ.get(name):
            return name
    return None
