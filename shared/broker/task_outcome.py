"""The ends of a handoff's Celery task, and the state that Flower shows for each end.

| the attempt ...              | Celery             | the part    | Flower                       |
|------------------------------|--------------------|-------------|------------------------------|
| has a result, not `failed`   | the body returns   | counted     | SUCCESS, the result's status |
| has the result `failed`      | `Ignore`           | counted     | FAILURE, the kind of failure |
| is not needed any more       | `Ignore`           | not counted | REVOKED, unless better known |
| is ended by another delivery | `Ignore`           | not counted | unchanged: it will report    |
| is paused or deferred        | `Ignore`           | not counted | RETRY, and why               |
| is handed back to its queue  | `Reject`, requeued | not counted | RETRY, and why               |
| has an unreadable message    | `Ignore`           | not counted | FAILURE, and why             |
| ... of another version       | `Ignore`           | not counted | RETRY, and why               |

Celery always shows a plain return as SUCCESS, and no later event changes that state.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

from celery.exceptions import Ignore, Reject
from celery.worker import state as worker_state
from celery.worker.request import Request

from handoff_queue.shared.broker.attempt_outcome import (
    AttemptEnd,
    AttemptOutcome,
    EventBeforeEnd,
    TaskFails,
    TaskUnwanted,
    TaskWaits,
)
from handoff_queue.shared.broker.chord_result_backend import tell_parts_left
from handoff_queue.shared.broker.message_publisher import SIGNATURE
from handoff_queue.shared.broker.message_verification import parse_and_verify_handoff
from handoff_queue.shared.broker.worker_slots import SLOTS
from handoff_queue.shared.observability.logs import get_log, logged_as
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import HandoffError
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult, ResultStatus

log = get_log(__name__)


class ParsedRequest(Request):  # type: ignore[misc]
    """Celery's request with the body that the consumer has already parsed. Celery would parse
    the body again in the thread that runs the task.
    """

    def __init__(self, message: Any, **kwargs: Any) -> None:
        super().__init__(message, **(kwargs | {"body": message.payload, "decoded": True}))


class HandoffRequest(ParsedRequest):
    """A request that reports RETRY, with a reason, when its message goes back to its queue or
    waits. Flower does not show REJECTED after STARTED.

    Its event for a successful task clears the reason of an earlier RETRY in Flower.
    """

    _handed_back = ""
    """Reason why the message goes back to its queue."""

    def reject(self, requeue: bool = False) -> None:
        """Reject the message. If the worker is stopping, put the message back from this
        thread. Celery leaves this to its loop, and would put the message back only when the
        last handoff of the process has ended.
        """
        # `should_stop` is None, False or the exit code, which may be 0
        is_stopping = worker_state.should_stop is not None and worker_state.should_stop is not False
        if requeue and is_stopping:
            self._on_reject = self.message.reject_log_error
        super().reject(requeue)

    def on_failure(self, exc_info: Any, *args: Any, **kwargs: Any) -> Any:
        # a pool of processes wraps the exception
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        if isinstance(error, Reject):
            self._handed_back = str(error.reason)
        else:
            self._handed_back = ""
        if isinstance(error, EventBeforeEnd):
            super().send_event(error.event, **error.fields())
        return super().on_failure(exc_info, *args, **kwargs)

    def send_event(self, type: str, **fields: Any) -> None:  # noqa: A002 - Celery's own signature
        if type == "task-rejected" and fields.get("requeue"):
            super().send_event(
                "task-retried", exception=f"handed back: {self._handed_back}", traceback=""
            )
        elif type == "task-succeeded":
            super().send_event(type, **{"exception": "", "traceback": "", **fields})
        else:
            super().send_event(type, **fields)


def register(
    app: Any, name: str, body: Callable[..., Any], request: type[ParsedRequest] = HandoffRequest
) -> None:
    """Register a task with this app. `body` takes the task and the arguments of its message.

    If `body` raises a `BaseException` that is not an `Exception`, the task raises `Ignore`
    instead. Celery's pools would not end the request: its message would stay unacknowledged,
    and its slot would be lost.
    """

    @wraps(body)
    def run(task: Any, *arguments: Any, **named_arguments: Any) -> Any:
        try:
            with SLOTS.count_as_running(str(task.request.id)):
                return body(task, *arguments, **named_arguments)
        except Exception:
            raise
        except BaseException as error:
            log.exception("a task was ended", task=name, error=type(error).__name__)
            raise Ignore(f"ended by {type(error).__name__}; the sweeper runs it again") from error

    # Celery checks the arguments of a message by the signature
    vars(run)["__signature__"] = inspect.signature(body)
    app.task(run, name=name, shared=False, bind=True, Request=request)


def run_task(
    task: Any,
    store: Store,
    agent: str,
    text: object,
    attempt: Callable[[AgentHandoff, str], AttemptOutcome],
) -> str:
    """Run a `specialist.<name>` task.

    Args:
        text: the message's only argument.
        attempt: runs the handoff, given the parsed handoff and its text.

    Raises:
        Ignore, Reject: Celery's exceptions for an end that is not a plain return.
    """
    signature = getattr(task.request, SIGNATURE, None)
    handoff, handoff_text = parse_and_verify_handoff(store, agent, text, signature)
    with logged_as(job_id=handoff.job_id, handoff_id=handoff.handoff_id):
        try:
            if handoff.limits.deadline is not None:
                left_s = handoff.limits.deadline - store.connection.now()
                SLOTS.set_time_left(str(task.request.id), left_s)
            outcome = attempt(handoff, handoff_text)
        except HandoffError as error:
            # the store is unreachable: the lease expires, and the sweeper publishes the handoff
            # again
            log.warning("the sweeper publishes this handoff again", why=str(error))
            outcome = AttemptOutcome(AttemptEnd.ELSEWHERE, str(error))
        except BaseException as error:
            log.exception("internal error outside of the attempt")
            outcome = AttemptOutcome(
                AttemptEnd.ELSEWHERE, f"an internal error: {type(error).__name__}"
            )
        return _end(task, outcome)


def _end(task: Any, outcome: AttemptOutcome) -> str:
    """End the Celery task in the way of an outcome. Return the text that Flower shows.

    Raises:
        Reject: the message goes back to its queue.
        Ignore, TaskWaits, TaskUnwanted, TaskFails: Celery stores no result.
    """
    match outcome.end:
        case AttemptEnd.FINISHED:
            tell_parts_left(task, outcome.parts_left)
            if outcome.result is not None and outcome.result.status is ResultStatus.FAILED:
                _end_as_failed(task, outcome.result)
            return outcome.why
        case AttemptEnd.HANDED_BACK:
            log.info("the worker hands the handoff back to its queue", why=outcome.why)
            raise Reject(outcome.why, requeue=True)
        case AttemptEnd.PAUSED | AttemptEnd.DEFERRED | AttemptEnd.ASKED:
            log.info(f"handoff {outcome.end}", why=outcome.why)
            raise TaskWaits(f"{outcome.end}: {outcome.why}")
        case AttemptEnd.UNWANTED:
            log.info("handoff dropped, because its job does not need it", why=outcome.why)
            raise TaskUnwanted(outcome.why)
        case AttemptEnd.ELSEWHERE:
            log.info("handoff skipped, because another delivery runs it", why=outcome.why)
            raise Ignore(outcome.why)


def _end_as_failed(task: Any, result: HandoffResult) -> NoReturn:
    """Return the part of the chord as Celery does after a plain return, and then raise
    `TaskFails`, so that Flower shows a failure.
    """
    try:
        task.backend.mark_as_done(
            task.request.id, result.status.value, request=task.request, store_result=False
        )
    except Exception:  # the part is done in the store; the sweeper wakes a job with a silent chord
        log.exception("cannot count a finished part of a chord")
    if result.failure == result.status:
        why = result.status.value
    else:
        why = f"{result.status}, stop reason {result.failure}"
    raise TaskFails(why)


def keep_unreadable(app: Any, store: Callable[[], Store]) -> None:
    """Have this app's consumer keep messages that it cannot run as dead letters of the store.
    Celery would only log and drop them.
    """

    def keep(queue: str, why: str, text: str) -> bool:
        return store().dead_letters.add_unreadable(queue, why, text)

    app.keep_unreadable = keep
