"""Celery's spans, from OpenTelemetry's instrumentation: `apply_async/TASK` for a published message,
`run/TASK` for its run, and the `traceparent` header that joins both. This module fixes its
faults.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

from opentelemetry import trace
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.trace import Status, StatusCode

from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.names import ADVANCE, SPECIALIST_PREFIX

_JOB = re.compile(r"j-[0-9a-f]{12}")


class CelerySpans(CeleryInstrumentor):
    """The instrumentation for our tasks only, with fewer attributes.

    Celery's signals reach every receiver of the process, and a host service that uses our client
    may have tasks, too.
    """

    _instance = None
    _is_instrumented_by_opentelemetry = False
    """OpenTelemetry allows one instrumentor of a class. The host may use Celery's, which is
    another.
    """

    def __init__(self, traceparent_of: Callable[[JobId], str | None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._traceparent_of = traceparent_of

    def _trace_prerun(self, *args: Any, **kwargs: Any) -> None:
        """Start the span. A message without a trace, from a process without telemetry, belongs to
        its job's trace.
        """
        if not _is_ours(kwargs.get("task")):
            return
        request = kwargs["task"].request
        if getattr(request, "traceparent", None) is None and (
            match := _JOB.match(f"{kwargs.get('task_id')}") or _of_first(kwargs)
        ):
            request.update(traceparent=self._traceparent_of(JobId(match[0])))
        super()._trace_prerun(*args, **_of_this_copy(kwargs))  # type: ignore[no-untyped-call]

    def _trace_postrun(self, *args: Any, **kwargs: Any) -> None:
        if not _is_ours(kwargs.get("task")):
            return
        super()._trace_postrun(*args, **_of_this_copy(kwargs))  # type: ignore[no-untyped-call]

    def _trace_before_publish(self, *args: Any, **kwargs: Any) -> None:
        if _is_ours(kwargs.get("sender")):
            super()._trace_before_publish(*args, **kwargs)  # type: ignore[no-untyped-call]

    @staticmethod
    def _trace_after_publish(*args: Any, **kwargs: Any) -> None:
        if _is_ours(kwargs.get("sender")):
            CeleryInstrumentor._trace_after_publish(*args, **kwargs)  # type: ignore[no-untyped-call]

    @staticmethod
    def _trace_retry(*args: Any, **kwargs: Any) -> None:
        if _is_ours(kwargs.get("sender")):
            CeleryInstrumentor._trace_retry(*args, **kwargs)  # type: ignore[no-untyped-call]

    @staticmethod
    def _trace_failure(*_: Any, **kwargs: Any) -> None:
        """Note the kind of an error and no more: its text may quote a payload."""
        if not _is_ours(kwargs.get("sender")):
            return
        span, error = trace.get_current_span(), kwargs.get("exception")
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(Status(StatusCode.ERROR))


def _is_ours(task: Any) -> bool:
    """Return whether a task, or the name of a task, is one of our apps'."""
    name = str(getattr(task, "name", task))
    return name == ADVANCE or name.startswith(SPECIALIST_PREFIX)


def _of_this_copy(sent: dict[str, Any]) -> dict[str, Any]:
    """Distinguish the copies of one message that run in different threads, after a message that
    seemed lost was sent again. The instrumentation would end the span of one copy with the
    other.
    """
    return {**sent, "task_id": f"{sent.get('task_id')} {threading.get_ident()}"}


def _of_first(sent: dict[str, Any]) -> re.Match[str] | None:
    """Match the job's id, which is the first argument of `supervisor.advance`."""
    arguments = sent.get("args") or ("",)
    if isinstance(arguments[0], str):
        return _JOB.fullmatch(arguments[0])
    return None
