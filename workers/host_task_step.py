"""Runs a handoff as a task of the host's own Celery app (`celery_task` in a specialist's
file).

The worker sends the task to the host's broker, and waits for its end in the host's result
backend. Both are settings of the worker. The names of the task and its queue come from the
worker's own specialist file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any
from uuid import UUID, uuid5

from celery import Celery
from pydantic import SecretStr

from handoff_queue.shared.agent.answer_envelope import EnvelopeFormat
from handoff_queue.shared.agent.answer_format import InvalidAnswer
from handoff_queue.shared.agent.call_reservation import UNKNOWN_CALL, FirstCall
from handoff_queue.shared.agent.checkpoint_store import CheckpointStore
from handoff_queue.shared.agent.opening_message import LoadedPayloads
from handoff_queue.shared.agent.tool import ToolContext
from handoff_queue.shared.broker.host_celery_tasks import (
    HostMessage,
    HostResult,
    HostResults,
    check_transport,
    send_to_host,
)
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.checkpoints import ToolCallStarted, ToolObserved
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.handoff import (
    AgentHandoff,
    HandoffResult,
    ResultStatus,
    StopReason,
    build_failed_result,
    build_result,
    only_announces_completion,
)
from handoff_queue.shared.types.job_options import DEFAULT_QUEUE
from handoff_queue.shared.types.origins import build_tool_origin, get_origins, union
from handoff_queue.shared.types.specialist import SpecialistSpec

BROKER, RESULTS = "HANDOFF_HOST_BROKER_URL", "HANDOFF_HOST_RESULT_URL"
MAX_ARGUMENT_CHARS = 1_000_000
"""Characters of a task's argument as JSON."""
MAX_RESULT_CHARS = 1_000_000
"""Characters of a task's return value as JSON."""
SEND_TRIES = 5
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0
"""First and longest pause in seconds between two requests to the result backend."""
_SEND_PAUSE_S = 2.0
"""Seconds between two tries to send a task."""
_IDS = UUID("0f4d1a7e-9a55-4c1c-8a0c-6a8f2f0f0b63")
"""Namespace of task ids, a constant random UUID."""
log = get_log(__name__)


@dataclass(slots=True)
class HostTasks:
    """The broker and the result backend of the host, by the settings of this worker."""

    app: Celery
    """The worker's own Celery app. It builds the messages."""
    settings: Settings
    _results: HostResults | None = field(default=None, init=False)

    def check(self, spec: SpecialistSpec) -> None:
        """Check the settings that a specialist with a `celery_task` needs.

        Raises:
            UserError: a URL is not set, or kombu or Celery cannot use it.
        """
        for name, url in ((BROKER, self._broker_url), (RESULTS, self._result_url)):
            if not url:
                raise UserError(
                    f"the specialist {spec.name} is the Celery task {spec.celery_task}:"
                    f" set {name} for this worker"
                )
        check_transport(BROKER, self._broker_url)
        self.open_results()

    def open_results(self) -> HostResults:
        """Return the host's result backend, which is made once.

        Raises:
            UserError: Celery cannot use its URL.
        """
        if self._results is None:
            self._results = HostResults(RESULTS, self._result_url)
        return self._results

    def send(self, message: HostMessage) -> None:
        """Send a task.

        Raises:
            Exception: of any broker's client. Its text may hold the URL.
        """
        send_to_host(self.app, self._broker_url, message)

    @property
    def _broker_url(self) -> str:
        return _get_text(self.settings.host_broker_url)

    @property
    def _result_url(self) -> str:
        return _get_text(self.settings.host_result_url)


def _get_text(secret: SecretStr | None) -> str:
    """Return the text of a setting; '' if it is not set."""
    return secret.get_secret_value() if secret else ""


@dataclass(frozen=True, slots=True)
class HostTaskRunner:
    """Runs one handoff as a task of the host's app. A `shared.runtime.runner_factory.Runner`."""

    host: HostTasks
    handoff: AgentHandoff
    spec: SpecialistSpec
    loaded: LoadedPayloads
    context: ToolContext
    answer_format: EnvelopeFormat
    now: Callable[[], float]
    """Unix time in seconds, by the clock of `ends_at`."""
    wait: Callable[[float], None] = time.sleep

    @property
    def model_name(self) -> None:
        return None

    def estimate_first_call(self) -> FirstCall:
        """Return no call, because no model is called."""
        return UNKNOWN_CALL

    def run(self, checkpoints: CheckpointStore, ends_at: float | None) -> HandoffResult:
        """Send the task, unless an earlier claim has sent it, and return the result.

        A task with an effect has a checkpoint before it is sent, so that no later claim sends
        it again. Any other task has a checkpoint after it. If a worker dies in between, the
        next worker sends the task again, with the same task id.
        """
        limit = inf
        if ends_at is not None:
            limit = ends_at
        acts = self.spec.task_with_effect is not None
        if acts and self.handoff.acts_with == ():
            return self._build_failed_result(
                f"this step may not run {self._name}, which has an effect"
            )
        failure = None
        if not self._is_sent(checkpoints, acts=acts):
            failure = self._send(checkpoints, limit, acts=acts)
        return failure or self._wait(checkpoints, limit)

    def _is_sent(self, checkpoints: CheckpointStore, *, acts: bool) -> bool:
        """Return whether a checkpoint says that an earlier claim has sent the task. For a task
        with an effect, that claim may have sent it.
        """
        kind = ToolCallStarted if acts else ToolObserved
        return any(
            isinstance(checkpoint, kind) for checkpoint in checkpoints.load_earlier_checkpoints()
        )

    def _send(
        self, checkpoints: CheckpointStore, limit: float, *, acts: bool
    ) -> HandoffResult | None:
        """Send the task, and store checkpoints. Return a failed result if it was not sent,
        else None.
        """
        message = self._build_message(limit)
        if isinstance(message, HandoffResult):
            return message
        if acts:
            checkpoints.checkpoint(ToolCallStarted(tool_use_id=self.task_id))
        problem = self._send_message(message, checkpoints, limit)
        if problem:
            return self._build_failed_result(f"the task {self._name} was not sent: {problem}")
        checkpoints.checkpoint(ToolObserved(tool_use_id=self.task_id, text="sent"))
        return None

    def _wait(self, checkpoints: CheckpointStore, limit: float) -> HandoffResult:
        """Wait for the end of the task. Return its result, or a failed result after the Unix
        time `limit`.
        """
        pause_s = _FIRST_PAUSE_S
        while True:
            checkpoints.heartbeat(f"waits for the task {self._name}")
            end, problem = self._read_task_end()
            if end is not None:
                return self._build_ended_task_result(end)
            if self.now() >= limit:
                return self._build_failed_result(
                    f"the task {self._name} ({self.task_id}) has no result in time{problem};"
                    f" is a worker of its queue {self._queue!r} running?",
                    StopReason.DEADLINE,
                )
            left_s = max(0.0, limit - self.now())
            self.wait(min(pause_s, left_s))
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 1.5)

    def _read_task_end(self) -> tuple[HostResult | None, str]:
        """Return the end of the task, or None, and the error of the result backend, or ""."""
        try:
            return self.host.open_results().get(self.task_id), ""
        except Exception as error:  # noqa: BLE001 - of any backend's client; its text may hold the URL
            return None, f"; {RESULTS}: {type(error).__name__}"

    @property
    def task_id(self) -> str:
        """Id of the task. It is the same for each claim of this handoff. The next attempt at
        the step has another id.
        """
        return str(uuid5(_IDS, f"{self.handoff.job_id}/{self.handoff.handoff_id}"))

    @property
    def _name(self) -> str:
        assert self.spec.celery_task is not None
        return self.spec.celery_task

    @property
    def _queue(self) -> str:
        return self.spec.celery_queue or DEFAULT_QUEUE

    def _build_message(self, limit: float) -> HostMessage | HandoffResult:
        """Return the message for the broker, or a failed result if its argument is too long.

        Args:
            limit: the deadline that the task gets, Unix time in seconds.
        """
        inputs: dict[str, Any] = {}
        for step_id, result in self.loaded.results.items():
            inputs[step_id] = {"status": result.status.value, "output": result.output}
        call = {
            "tenant": self.context.tenant(),
            "job_id": self.handoff.job_id,
            "handoff_id": self.handoff.handoff_id,
            "step_id": self.handoff.step_id,
            "attempt": self.handoff.attempt,
            "task": self.handoff.task_description,
            "inputs": inputs,
            "feedback": [item.text for item in self.handoff.feedback],
            "deadline": None if limit == inf else limit,
        }
        length = len(json.dumps(call))
        if length > MAX_ARGUMENT_CHARS:
            return self._build_failed_result(
                f"the argument of the task {self._name} has {length:,} characters as"
                f" JSON, at most {MAX_ARGUMENT_CHARS:,} are sent: let the step use fewer results"
            )
        return HostMessage(self.task_id, self._name, self._queue, args=(call,))

    def _send_message(
        self, message: HostMessage, checkpoints: CheckpointStore, limit: float
    ) -> str:
        """Send the message, in at most `SEND_TRIES` tries. Return the problem, or "" if it was
        sent.
        """
        problem = ""
        for number in range(SEND_TRIES):
            if number:
                self.wait(_SEND_PAUSE_S)
            checkpoints.heartbeat(f"sends the task {message.task}")
            if self.now() >= limit:
                break
            try:
                self.host.send(message)
            except Exception as error:  # noqa: BLE001 - of any broker's client; its text may hold the URL
                problem = f"{BROKER}: {type(error).__name__}"
                log.warning("cannot send a host task", task=message.task, why=type(error).__name__)
            else:
                return ""
        return problem or "the time of the step is over"

    def _build_ended_task_result(self, end: HostResult) -> HandoffResult:
        """Return the result of a task that has ended."""
        if end.error:
            return self._build_failed_result(
                f"the task {self._name} ({self.task_id}) ended as {end.error};"
                " see the log of its worker"
            )
        try:
            return self._build_result(end.value)
        except (InvalidAnswer, TypeError, ValueError, RecursionError) as problem:
            return self._build_failed_result(
                f"the result of the task {self._name} cannot be used:"
                f" {problem or 'it is nested too deep'}",
                StopReason.INVALID_OUTPUT,
            )

    def _build_result(self, value: Any) -> HandoffResult:
        """Return the handoff's result with the value that the task returned.

        Raises:
            InvalidAnswer: the value does not match the schema of the step.
            TypeError: the value is not a JSON value. An example is a UUID, which kombu reads from
                JSON.
            ValueError: the value is too long, or it cannot be stored.
            RecursionError: the value is nested too deep.
        """
        name = self._name
        text = json.dumps(value)
        if len(text) > MAX_RESULT_CHARS:
            raise ValueError(
                f"it has {len(text):,} characters as JSON, at most {MAX_RESULT_CHARS:,} are"
                " allowed; let the task return an id"
            )
        if value is None:
            value = f"{name} ran, and returned nothing."
        elif isinstance(value, str):
            if only_announces_completion(value):
                value = f"{name} returned: {value}"
        elif self.answer_format.output_schema.get("type") == "string":
            value = json.dumps(value, ensure_ascii=False, indent=1)
        envelope = json.dumps({"status": "ok", "output": value})
        answer = self.answer_format.read(envelope, last_try=True)
        own_origin = build_tool_origin(self.spec.name)
        return build_result(
            self.handoff,
            status=ResultStatus.OK,
            output=answer.output,
            claims=answer.claims,
            confidence=1.0,
            origins=union(get_origins(self.handoff.origins), (own_origin,)),
        )

    def _build_failed_result(
        self, why: str, reason: StopReason = StopReason.INTERNAL_ERROR
    ) -> HandoffResult:
        return build_failed_result(self.handoff, why, reason)
