"""OpenTelemetry's instrumentation of Celery, with some faults corrected.

It makes a span `apply_async/TASK` for a published message and a span `run/TASK` for its run,
and joins both by the header `traceparent`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

from opentelemetry import trace
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.trace import Status, StatusCode

from handoff_queue.shared.types.ids import JOB_ID_IN_TEXT, JobId
from handoff_queue.shared.types.names import ADVANCE, SPECIALIST_PREFIX

_JOB = re.compile(JOB_ID_IN_TEXT)


class CelerySpans(CeleryInstrumentor):
    """The instrumentation for our tasks only, with fewer attributes.

    Celery's signals reach every receiver of the process, and a host service that uses our
    client may have tasks, too.
    """

    _instance = None
    _is_instrumented_by_opentelemetry = False
    """OpenTelemetry allows one instance of each class. This attribute belongs to this class
    alone, so that a host can also use `CeleryInstrumentor`.
    """

    def __init__(self, traceparent_of: Callable[[JobId], str | None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._traceparent_of = traceparent_of

    def _trace_prerun(self, *args: Any, **kwargs: Any) -> None:
        """Start the span of a run. A process without telemetry sends no trace in its message:
        the span then belongs to the trace of the message's job.
        """
        if not _is_ours(kwargs.get("task")):
            return
        request = kwargs["task"].request
        if getattr(request, "traceparent", None) is None:
            match = _JOB.match(f"{kwargs.get('task_id')}") or _match_job_in_first_argument(kwargs)
            if match is not None:
                request.update(traceparent=self._traceparent_of(JobId(match[0])))
        super()._trace_prerun(*args, **_add_thread_id(kwargs))  # type: ignore[no-untyped-call]

    def _trace_postrun(self, *args: Any, **kwargs: Any) -> None:
        if not _is_ours(kwargs.get("task")):
            return
        super()._trace_postrun(*args, **_add_thread_id(kwargs))  # type: ignore[no-untyped-call]

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
        """Record the type of the error, but not its text, which may quote a payload."""
        if not _is_ours(kwargs.get("sender")):
            return
        span = trace.get_current_span()
        span.set_attribute("error.type", type(kwargs.get("exception")).__name__)
        span.set_status(Status(StatusCode.ERROR))


def _is_ours(task: Any) -> bool:
    """Return whether a task, given as object or by name, is a task of our apps."""
    name = str(getattr(task, "name", task))
    return name == ADVANCE or name.startswith(SPECIALIST_PREFIX)


def _add_thread_id(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a signal with the thread's id added to the task's id.

    Two copies of one message may run in two threads, because a message that seems lost is sent
    again. With the same id, the end of one copy would end the span of the other.
    """
    return {**arguments, "task_id": f"{arguments.get('task_id')} {threading.get_ident()}"}


def _match_job_in_first_argument(signal_arguments: dict[str, Any]) -> re.Match[str] | None:
    """Return a match of the job's id in the first argument, which is where
    `supervisor.advance` has it, or None.
    """
    arguments = signal_arguments.get("args") or ("",)
    if isinstance(arguments[0], str):
        return _JOB.fullmatch(arguments[0])
    return None
