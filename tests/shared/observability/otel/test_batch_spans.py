"""A model call in a batch has a span with the attributes of a live call, also across a kill."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from handoff_queue.shared.types.checkpoints import BatchIntended, Checkpoint
from handoff_queue.shared.types.errors import Deferred
from handoff_queue.shared.types.model import ModelCall
from handoff_queue.testing import Reply
from tests.doubles.agent_runs import answer_reply
from tests.doubles.handoffs import a_handoff
from tests.shared.agent.test_batch_calls import Handoff, ProcessKilled, kill
from tests.shared.observability.otel.test_spans import (
    CONTENT,
    SECRET,
    RecordedTelemetry,
    telemetry_in_use,
)


def answer(_call: ModelCall) -> Reply:
    return answer_reply(f"It is {CONTENT}: {SECRET} [c1].")


def spans_of(handoff: Handoff, *, captures: bool = False) -> list[ReadableSpan]:
    """Run a handoff to its end, and return the spans of its model calls."""
    recorded = RecordedTelemetry(captures=captures)
    with (
        telemetry_in_use(recorded.telemetry),
        recorded.telemetry.handoff(a_handoff(), None, None),
    ):
        handoff.finish()
    return recorded.named("chat")


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_call_in_a_batch_has_the_attributes_of_a_live_call_and_the_id_of_its_batch() -> None:
    (live, *_), (batched, *_) = spans_of(Handoff(slack_s=0)), spans_of(Handoff())
    own = {"gen_ai.request.stream": False, "handoff.batch.id": "msgbatch_0"}
    assert attributes_of(batched) == {**attributes_of(live), **own}
    assert (batched.name, batched.kind) == (live.name, live.kind)


def test_each_call_has_one_span_from_its_intention_to_its_result_below_the_handoff() -> None:
    handoff = Handoff()
    first, second = spans_of(handoff)
    intentions = [int(item.at * 1e9) for item in handoff.stored(BatchIntended)]
    assert [first.start_time, second.start_time] == intentions
    assert first.end_time == second.start_time == 1_030_000_000_000, "the batch takes 30 s"
    assert first.parent is not None
    assert first.parent == second.parent


def test_texts_of_a_batch_are_exported_only_on_request_and_a_secret_never() -> None:
    handoff = Handoff()
    handoff.batches.script = answer
    (silent,) = spans_of(handoff)
    handoff = Handoff()
    handoff.batches.script = answer
    (full,) = spans_of(handoff, captures=True)
    assert CONTENT not in silent.to_json()
    attributes = attributes_of(full)
    assert CONTENT in attributes["gen_ai.output.messages"]
    assert "gen_ai.input.messages" in attributes
    assert SECRET not in full.to_json()


@pytest.mark.parametrize("point", ["before_create", "after_create"])
def test_a_call_across_a_kill_has_one_span(point: str) -> None:
    handoff = Handoff()
    setattr(handoff.batches, point, kill)
    with pytest.raises(ProcessKilled):
        handoff.run()
    setattr(handoff.batches, point, lambda: None)
    spans = spans_of(handoff)
    assert [attributes_of(span)["handoff.batch.id"] for span in spans] == [
        "msgbatch_0",
        "msgbatch_1",
    ]


def test_a_kill_before_the_result_is_stored_gives_no_second_span() -> None:
    handoff, recorded = Handoff(), RecordedTelemetry()

    def die(checkpoint: Checkpoint) -> None:
        if checkpoint.kind == "replied":
            raise ProcessKilled

    with telemetry_in_use(recorded.telemetry):
        with pytest.raises(Deferred):
            handoff.run()
        handoff.clock.now_s += 30
        handoff.on_checkpoint = die
        with pytest.raises(ProcessKilled):
            handoff.run()
    assert recorded.named("chat") == []


@pytest.mark.parametrize("kind", ["errored", "expired", "canceled"])
def test_a_batch_without_a_reply_is_a_failed_span_without_the_providers_words(kind: str) -> None:
    handoff = Handoff()
    handoff.batches.script = lambda _call: f"{kind}: {CONTENT}"
    failed, live, *_ = spans_of(handoff)
    assert attributes_of(failed)["error.type"] == kind
    assert "gen_ai.usage.input_tokens" not in attributes_of(failed)
    assert CONTENT not in failed.to_json()
    assert "handoff.batch.id" not in attributes_of(live)


def test_a_batch_that_is_given_up_is_a_failed_span() -> None:
    handoff = Handoff(slack_s=100, deadline_s=600)
    handoff.batches.duration_s, handoff.batches.cancel_s = 50_000, 50_000
    lost, *_ = spans_of(handoff)
    attributes = attributes_of(lost)
    assert (attributes["error.type"], attributes["handoff.batch.id"]) == ("BatchLost", "msgbatch_0")
