"""The progress of a model call says whether the model is called, thinks or writes."""

from __future__ import annotations

from collections.abc import Callable

from handoff_queue.shared.types.model import CallProgress, ModelCall, ModelReply
from handoff_queue.shared.types.rate_limits import NO_RATE_LIMITS
from handoff_queue.shared.types.usage import Usage
from tests.doubles.agent_runs import Clock, Run, answer_reply


class ReportingModel:
    """A model that sends the given reports, one in each second, and then an answer."""

    def __init__(self, clock: Clock, *reports: CallProgress) -> None:
        self._clock = clock
        self._reports = reports

    def reply(self, call: ModelCall, on_progress: Callable[[CallProgress], None]) -> ModelReply:
        for progress in self._reports:
            self._clock.now_s += 1
            on_progress(progress)
        return ModelReply(
            content=answer_reply().blocks,
            stop_reason="end_turn",
            usage=Usage(input_tokens=1, output_tokens=1),
            model=call.model,
        )


def writing(words: int) -> CallProgress:
    return CallProgress(text="word " * words, limits=NO_RATE_LIMITS)


def activities(*reports: CallProgress) -> list[str]:
    clock = Clock()
    run = Run(lambda _call: answer_reply(), clock=clock, model=ReportingModel(clock, *reports))
    run.go()
    return [doing for doing, _ in run.checkpoints.heartbeats]


def test_the_activity_names_the_state_of_the_call() -> None:
    reports = (CallProgress(), CallProgress(limits=NO_RATE_LIMITS), writing(1), writing(1_240))
    assert activities(*reports) == [
        "calling the model",
        "calling the model",
        "thinking",
        "writing, 1 word",
        "writing, 1 word",
    ]


def test_the_words_are_counted_every_two_seconds() -> None:
    assert activities(*(writing(number) for number in (620, 900, 1_240)))[1:] == [
        "writing, 620 words",
        "writing, 620 words",
        "writing, 1,240 words",
    ]
