"""What a process tells an OpenTelemetry collector of its work. This form tells nothing and
costs nothing; it is in force until `start_telemetry` finds a reason for the other one: a
collector's URL in the environment, and the extra `otel` installed.

One trace holds a job, see docs/decisions/0013-one-trace.md.
"""

# ruff: noqa: ARG002 - this form does nothing with what it is told

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
"""The standard's own: with one of them set, spans are sent there."""


class Span:
    """A handoff, a model call or a tool call while it lasts, and what came of it. This one is
    told to nobody.
    """

    def finished(self, result: HandoffResult) -> None:
        """The handoff has this result, and it is in the journal."""

    def dropped(self) -> None:
        """Nobody wants the handoff any more: no result of it will be told."""

    def replied(self, reply: ModelReply) -> None:
        """The model call has this reply."""

    def observed(self, result: ToolObserved) -> None:
        """The tool call has this result."""


class Submissions:
    """Jobs while they are submitted together, and what came of each. These are told to nobody."""

    def __init__(self, traceparents: Sequence[str | None]) -> None:
        self.traceparents = traceparents
        """What is to be kept with each; None: nothing is."""

    def came_to(self, problems: Sequence[Exception | None]) -> None:
        """Why each was refused; None: it was not."""


class Telemetry:
    """Every method is safe to call from several threads, and none raises."""

    is_on = False

    def reads(self, kept: Callable[[JobId], StoredTrace]) -> None:
        """How to learn what the store keeps of a job's trace."""

    def submitting(self, job_id: JobId) -> AbstractContextManager[str | None]:
        """A job is submitted. Gives the `traceparent` that is to be kept with it; None: nothing is."""
        return _NOTHING_KEPT

    def submitting_each(self, job_ids: Sequence[JobId]) -> AbstractContextManager[Submissions]:
        """The same of jobs that share their round trips: each takes as long as all of them,
        and none is part of another.
        """
        return nullcontext(Submissions([None] * len(job_ids)))

    def within(self, job_id: JobId) -> AbstractContextManager[None]:
        """What is published here belongs to this job."""
        return _NOTHING

    def handoff(
        self, handoff: AgentHandoff, model: str | None, started_at: float | None
    ) -> AbstractContextManager[Span]:
        """One claim of a handoff. `started_at`: of its first claim, Unix time in seconds."""
        return _NO_SPAN

    def chat(self, call: ModelCall) -> AbstractContextManager[Span]:
        """A model call."""
        return _NO_SPAN

    def tool(self, call: Block, name: str) -> AbstractContextManager[Span]:
        """A tool call. `name`: the tool's, or words of ours where there is none of that name."""
        return _NO_SPAN

    def job_ended(self, life: JobSpan) -> None:
        """The journal says that a job has ended."""

    def ids(self) -> dict[str, str]:
        """`trace_id` and `span_id` of what this thread does, for its log lines."""
        return {}

    def stop(self) -> None:
        """Send what is left. At the end of a process."""


_NOTHING_KEPT: AbstractContextManager[str | None] = nullcontext()
_NOTHING: AbstractContextManager[None] = nullcontext()
_NO_SPAN: AbstractContextManager[Span] = nullcontext(Span())
_OFF = Telemetry()
_chosen: list[Telemetry] = []
"""At most one: the form of this process, once that is decided."""


def telemetry() -> Telemetry:
    """The form that is in force in this process."""
    return _chosen[0] if _chosen else _OFF


def choose(form: Telemetry) -> None:
    """Make this the form of the process."""
    _chosen[:] = [form]


def is_chosen() -> bool:
    """Return whether the form of the process is decided."""
    return bool(_chosen)


def is_wanted() -> bool:
    """Whether the environment asks for spans, by the standard's own variables."""
    is_off = (
        os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
    )
    return not is_off and any(os.environ.get(name) for name in ENDPOINTS)
