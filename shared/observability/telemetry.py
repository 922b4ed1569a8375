"""The port to OpenTelemetry. This implementation exports nothing and costs nothing. It is in force
until `start_telemetry` finds a collector's URL in the environment and the extra `otel`.

One trace holds a job, see docs/decisions/0013-one-trace.md.
"""

# ruff: noqa: ARG002 - this implementation uses no argument

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
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

    def finished(self, result: HandoffResult) -> None:
        """Record the handoff's result, which is in the journal."""

    def dropped(self) -> None:
        """Note that no job needs the handoff any more, so it will have no result."""

    def replied(self, reply: ModelReply) -> None:
        """Record the reply of the model call."""

    def observed(self, result: ToolObserved) -> None:
        """Record the result of the tool call."""


class Submissions:
    """Spans of jobs that are submitted together. They are not exported."""

    def __init__(self, traceparents: Sequence[str | None]) -> None:
        self.traceparents = traceparents
        """Traceparent to store with each job, or None."""

    def came_to(self, problems: Sequence[Exception | None]) -> None:
        """Record why each job was refused, or None if it was accepted."""


class Telemetry:
    """The port. Every method is safe to call from several threads, and no method raises."""

    is_on = False

    def reads(self, kept: Callable[[JobId], StoredTrace]) -> None:
        """Set the function that reads a job's stored trace."""

    def submitting(self, job_id: JobId) -> AbstractContextManager[str | None]:
        """Open the span of a submission. Gives the `traceparent` to store with the job, or None."""
        return _NOTHING_KEPT

    def submitting_each(self, job_ids: Sequence[JobId]) -> AbstractContextManager[Submissions]:
        """Open the spans of jobs that share their round trips. All take the same time, and no span
        is the parent of another.
        """
        return nullcontext(Submissions([None] * len(job_ids)))

    def within(self, job_id: JobId) -> AbstractContextManager[None]:
        """Assign messages that the block publishes to this job."""
        return _NOTHING

    def handoff(
        self, handoff: AgentHandoff, model: str | None, started_at: float | None
    ) -> AbstractContextManager[Span]:
        """Open the span of a claim.

        Args:
            started_at: time of the handoff's first claim, Unix time in seconds.
        """
        return _NO_SPAN

    def chat(self, call: ModelCall) -> AbstractContextManager[Span]:
        """Open the span of a model call."""
        return _NO_SPAN

    def tool(self, call: Block, name: str) -> AbstractContextManager[Span]:
        """Open the span of a tool call.

        Args:
            name: name of the tool, or a fixed text if the tool does not exist.
        """
        return _NO_SPAN

    def job_ended(self, life: JobSpan) -> None:
        """Record that a job has ended by its journal."""

    def ids(self) -> dict[str, str]:
        """Return `trace_id` and `span_id` of this thread's span, for its log lines."""
        return {}

    def stop(self) -> None:
        """Send the last spans at the end of a process."""


_NOTHING_KEPT: AbstractContextManager[str | None] = nullcontext()
_NOTHING: AbstractContextManager[None] = nullcontext()
_NO_SPAN: AbstractContextManager[Span] = nullcontext(Span())
_OFF = Telemetry()
_chosen: list[Telemetry] = []
"""The implementation of this process, if it is chosen; at most one."""


def telemetry() -> Telemetry:
    """Return the implementation that is in force in this process."""
    if _chosen:
        return _chosen[0]
    return _OFF


def choose(form: Telemetry) -> None:
    """Make this the form of the process."""
    _chosen[:] = [form]


def is_chosen() -> bool:
    """Return whether the form of the process is decided."""
    return bool(_chosen)


def is_wanted() -> bool:
    """Return whether OpenTelemetry's own variables ask for spans."""
    is_off = (
        os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
    )
    return not is_off and any(os.environ.get(name) for name in ENDPOINTS)
