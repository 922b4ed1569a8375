"""A process records the outcome of its newest calls for each model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from handoff_queue.shared.runtime.models import ModelCallLog, RecordedModel
from handoff_queue.shared.types.errors import LimitReached, ModelBusy, ModelUnreachable
from handoff_queue.shared.types.limits import MAX_MODEL_ERROR_CHARS
from handoff_queue.shared.types.model import CallProgress, ModelCall, ModelReply, SystemPrompt
from handoff_queue.shared.types.presence import MAX_MODELS
from handoff_queue.shared.types.usage import NOTHING_USED


@dataclass
class FixedOutcomeModel:
    """Model that ends each call with the same outcome."""

    outcome: ModelReply | Exception

    def reply(self, call: ModelCall, on_progress: Callable[[CallProgress], None]) -> ModelReply:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


REPLY = ModelReply(content=(), stop_reason="end_turn", usage=NOTHING_USED, model="m")


def call(log: ModelCallLog, outcome: ModelReply | Exception, model: str = "m") -> None:
    request = ModelCall(model=model, system=SystemPrompt(""), messages=(), max_output_tokens=1)
    recorded = RecordedModel(FixedOutcomeModel(outcome), log)
    if isinstance(outcome, Exception):
        with pytest.raises(type(outcome)):
            recorded.reply(request, lambda _progress: None)
    else:
        assert recorded.reply(request, lambda _progress: None) is outcome


def test_consecutive_failures_are_counted_with_their_errors_and_times() -> None:
    times = iter([10.0, 20.0, 30.0])
    log = ModelCallLog(lambda: next(times))

    call(log, REPLY)
    call(log, ModelBusy("overloaded (529)"))
    call(log, ModelUnreachable("no connection\nto the server" + "x" * 1_000))

    (calls,) = log.list_newest()
    assert (calls.failures, calls.is_busy) == (2, False)
    assert (calls.succeeded_at, calls.failing_since, calls.failed_at) == (10.0, 20.0, 30.0)
    assert calls.error.startswith("no connection to the server")
    assert len(calls.error) == MAX_MODEL_ERROR_CHARS


def test_a_call_that_succeeds_clears_the_failures_before_it() -> None:
    log = ModelCallLog(lambda: 5.0)

    call(log, ModelUnreachable("no connection"))
    call(log, REPLY)

    (calls,) = log.list_newest()
    assert (calls.failures, calls.error, calls.succeeded_at) == (0, "", 5.0)


def test_a_call_that_the_client_cuts_is_not_a_failure_of_the_server() -> None:
    log = ModelCallLog()

    call(log, LimitReached("deadline"))

    assert log.list_newest() == ()


def test_only_the_models_that_were_called_last_are_kept() -> None:
    log = ModelCallLog()

    for number in range(MAX_MODELS + 3):
        call(log, REPLY, model=f"m{number}")

    assert [calls.model for calls in log.list_newest()] == [
        f"m{number}" for number in range(3, MAX_MODELS + 3)
    ]
