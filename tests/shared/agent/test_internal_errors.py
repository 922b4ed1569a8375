"""A handoff has a result after every defect in our code."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.observability.redaction import Redactor
from handoff_queue.shared.types.errors import (
    Draining,
    HandoffError,
    ModelError,
    ModelRefused,
    ModelRejected,
    StoreUnavailable,
)
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus, StopReason
from handoff_queue.testing import Reply, text_reply, tool_call_reply
from tests.doubles.agent_runs import run_with_replies
from tests.doubles.broken_format import BrokenFormat
from tests.doubles.handoffs import a_tool
from tests.doubles.memory_checkpoints import MemoryCheckpoints

SECRET = "a secret"
LOOK = a_tool("look", lambda _arguments: "found")
errors = st.sampled_from(
    [
        ValueError(SECRET),
        KeyError(SECRET),
        RecursionError(SECRET),
        AssertionError(SECRET),
        MemoryError(SECRET),
    ]
)
replies: st.SearchStrategy[list[Reply | ModelError]] = st.lists(
    st.sampled_from(
        [
            text_reply("Some text."),
            text_reply(""),
            text_reply("I will not.", stop_reason="refusal"),
            text_reply("Half a", stop_reason="max_tokens"),
            tool_call_reply(("look", {"q": "a"}), text="So far."),
            ModelRejected("no", status=400),
            ModelRefused("no"),
        ]
    ),
    min_size=1,
    max_size=4,
)


@given(errors, st.booleans(), st.booleans(), replies, st.integers(1, 5))
def test_a_reading_that_raises_never_costs_the_result(
    error: Exception,
    in_read: bool,
    in_salvage: bool,
    script: list[Reply | ModelError],
    most_turns: int,
) -> None:
    answer_format = BrokenFormat(error, in_read, in_salvage)
    result = run_with_replies(
        *script,
        tools=(LOOK,),
        answer_format=answer_format,
        checkpoints=MemoryCheckpoints(most_turns=most_turns),
    ).go()
    assert isinstance(result, HandoffResult)
    assert result.status in (ResultStatus.FAILED, ResultStatus.PARTIAL)
    assert result.output is not None or result.status is ResultStatus.FAILED
    assert SECRET not in result.to_json()


def test_a_defect_while_salvaging_after_a_limit_is_a_failed_result() -> None:
    answer_format = BrokenFormat(ValueError(SECRET), in_read=False, in_salvage=True)
    result = run_with_replies(
        tool_call_reply(("look", {"q": "a"}), text="So far."),
        tools=(LOOK,),
        answer_format=answer_format,
        checkpoints=MemoryCheckpoints(most_turns=1),
    ).go()
    assert (result.status, result.stop_reason) == (ResultStatus.FAILED, StopReason.INTERNAL_ERROR)


@given(st.binary(max_size=40))
def test_a_checkpoint_that_cannot_be_read_is_a_failed_result(saved: bytes) -> None:
    result = run_with_replies(
        text_reply("Some text."), checkpoints=MemoryCheckpoints(saved=[saved.decode("latin-1")])
    ).go()
    assert (result.status, result.stop_reason) == (ResultStatus.FAILED, StopReason.INTERNAL_ERROR)


@pytest.mark.parametrize("error", [Draining("stop"), StoreUnavailable("away")])
def test_an_interruption_and_an_unavailable_store_are_not_caught(error: HandoffError) -> None:
    def crash(_checkpoint: object) -> None:
        raise error

    with pytest.raises(type(error)):
        run_with_replies(
            text_reply("Some text."), checkpoints=MemoryCheckpoints(on_checkpoint=crash)
        ).go()


@pytest.mark.parametrize("error", [ModelRejected, ModelRefused])
def test_an_error_of_a_server_that_repeats_its_key_hides_the_key(error: type[ModelError]) -> None:
    hidden = Redactor(["tok/4711-odd"]).without_values
    refusal = error('unknown key "tok\\/4711-odd"', status=400)
    result = run_with_replies(refusal, without_secrets=hidden).go()

    assert result.status is ResultStatus.FAILED
    assert "unknown key" in str(result.error)
    assert "4711" not in result.to_json()
