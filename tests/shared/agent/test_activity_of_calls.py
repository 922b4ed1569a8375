"""The progress of a model call says whether the model is called, thinks or writes."""

from __future__ import annotations

from collections.abc import Callable

from handoff_queue.shared.types.model import ModelCall, ModelReply, Pulse
from handoff_queue.shared.types.rate_limits import NO_RATE_LIMITS
from handoff_queue.shared.types.usage import Usage
from tests.doubles.agent_runs import Clock, Run, answer_reply


class PulsingModel:
    """A model that sends the given pulses, one in each second, and then an answer."""

    def __init__(self, clock: Clock, *pulses: Pulse) -> None:
        self._clock = clock
        self._pulses = pulses

    def reply(self, call: ModelCall, on_pulse: Callable[[Pulse], None]) -> ModelReply:
        for pulse in self._pulses:
            self._clock.now_s += 1
            on_pulse(pulse)
        return ModelReply(
            content=answer_reply().blocks,
            stop_reason="end_turn",
            usage=Usage(input_tokens=1, output_tokens=1),
            model=call.model,
        )


def writing(words: int) -> Pulse:
    return Pulse(text="word " * words, limits=NO_RATE_LIMITS)


def activities(*pulses: Pulse) -> list[str]:
    clock = Clock()
    run = Run(lambda _call: answer_reply(), clock=clock, model=PulsingModel(clock, *pulses))
    run.go()
    return [doing for doing, _ in run.checkpoints.heartbeats]


def test_the_activity_names_the_state_of_the_call() -> None:
    pulses = (Pulse(), Pulse(limits=NO_RATE_LIMITS), writing(1), writing(1_240))
    assert activities(*pulses) == [
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
