"""The loop returns a result at every limit: turns, tokens, time, money, errors and
interruptions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.agent.loop import LAST_TURN
from handoff_queue.shared.agent.prices import Prices
from handoff_queue.shared.agent.tool import Tool, ToolContext
from handoff_queue.shared.types.budget_measures import AMOUNTS, INPUT, MONEY, Amount
from handoff_queue.shared.types.checkpoints import Checkpoint, ToolObserved
from handoff_queue.shared.types.errors import (
    Cancelled,
    Draining,
    ModelBusy,
    ModelError,
    ModelRejected,
    ModelUnreachable,
    NeverSent,
    ServerFailed,
    Unsendable,
)
from handoff_queue.shared.types.handoff import ResultStatus, StopReason
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.model import CallProgress, ModelCall, ModelReply
from handoff_queue.shared.types.usage import Usage
from handoff_queue.testing import Reply, text_reply, tool_call_reply
from tests.doubles.agent_runs import Run, answer_reply, run_with_replies
from tests.doubles.handoffs import a_handoff, a_tool
from tests.doubles.memory_checkpoints import MemoryCheckpoints
from tests.doubles.scripted_model import replies_in_order
from tests.waiting import wait_until

LOOK = a_tool("look", lambda arguments: f"found {arguments['q']}")


def limited(**limits: Any) -> Any:
    return a_handoff(limits=HandoffLimits(**limits))


def last_message(run: Run) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = run.calls[-1].messages[-1]["content"]
    return content


def test_on_the_last_turn_tools_are_disabled_and_the_model_knows() -> None:
    run = run_with_replies(
        tool_call_reply(("look", {"q": "a"})),
        answer_reply(),
        tools=(LOOK,),
        handoff=limited(max_turns=2),
    )
    assert run.go().status is ResultStatus.OK
    assert [call.may_call_tools for call in run.calls] == [True, False]
    assert last_message(run)[-1]["text"] == LAST_TURN


def test_a_server_may_be_silent_until_the_time_is_over() -> None:
    """The agent knows the first call before the claim, and the end of its time from the claim."""
    run = run_with_replies(answer_reply())
    agent = run.agent()
    agent.estimate_first_call()
    agent.run(run.checkpoints, run.clock.now_s + 30)

    assert run.calls[0].timeout_s == 30


def test_a_single_turn_is_offered_no_tools() -> None:
    run = run_with_replies(answer_reply(), tools=(LOOK,), handoff=limited(max_turns=1))
    run.go()
    assert run.calls[0].tools == ()


def test_max_turns_leaves_the_newest_text() -> None:
    run = run_with_replies(
        tool_call_reply(("look", {"q": "a"}), text="So far: Rust."),
        tools=(LOOK,),
        handoff=limited(max_turns=3),
    )
    result = run.go()
    assert (result.status, result.stop_reason, result.turns) == (
        ResultStatus.PARTIAL,
        StopReason.MAX_TURNS,
        3,
    )
    assert result.output == "So far: Rust."


def test_max_turns_without_any_text_is_a_failure_that_names_the_limit() -> None:
    result = run_with_replies(
        tool_call_reply(("look", {"q": "a"})), tools=(LOOK,), handoff=limited(max_turns=2)
    ).go()
    assert (result.status, result.stop_reason, result.output) == (
        ResultStatus.FAILED,
        StopReason.MAX_TURNS,
        None,
    )
    assert "2 turns" in str(result.error)


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"status": "ok", "outp',
        '{"status": "ok", "output": null}',
        '{"output": "[c7]", "claims": []}',
    ],
)
def test_a_limit_that_leaves_no_usable_text_is_a_failure(text: str) -> None:
    run = run_with_replies(
        tool_call_reply(("look", {"q": "a"}), text=text),
        tools=(LOOK,),
        checkpoints=MemoryCheckpoints(most_turns=1),
    )
    result = run.go()
    assert (result.status, result.stop_reason, result.output) == (
        ResultStatus.FAILED,
        StopReason.JOB_BUDGET,
        None,
    )
    assert result.error == "max_turns: the job's budget does not allow another model call"


def test_an_unproven_quote_on_the_last_turn_is_dropped_with_a_note() -> None:
    wrong = [
        {
            "id": "c1",
            "text": "It is.",
            "sources": [{"source": "qdrant.md", "quote": "written in Go"}],
        }
    ]
    result = run_with_replies(answer_reply(claims=wrong), handoff=limited(max_turns=1)).go()
    assert result.status is ResultStatus.PARTIAL, "it was all that stood behind the answer"
    assert result.claims[0].sources == ()
    assert "this quote is not in" in result.notes[0]


def test_near_the_token_limit_the_next_turn_is_the_last() -> None:
    thirsty = tool_call_reply(
        ("look", {"q": "a"}), usage={"input_tokens": 4_000, "output_tokens": 100}
    )
    final = Reply(blocks=answer_reply().blocks, usage={"input_tokens": 4_100, "output_tokens": 50})
    run = run_with_replies(
        thirsty, final, tools=(LOOK,), handoff=limited(max_tokens=12_000, max_output_tokens=2_000)
    )
    assert run.go().status is ResultStatus.OK
    assert run.calls[1].may_call_tools is False


def test_the_token_limit_keeps_the_work_so_far() -> None:
    thirsty = tool_call_reply(
        ("look", {"q": "a"}),
        text="So far: Rust.",
        usage={"input_tokens": 9_000, "output_tokens": 100},
    )
    result = run_with_replies(thirsty, tools=(LOOK,), handoff=limited(max_tokens=10_000)).go()
    assert (result.status, result.stop_reason, result.turns) == (
        ResultStatus.PARTIAL,
        StopReason.MAX_TOKENS,
        1,
    )
    assert result.output == "So far: Rust."


def test_the_deadline_cuts_the_call_and_keeps_its_text() -> None:
    run = run_with_replies(answer_reply(), handoff=limited(deadline=1_010.0))
    heartbeats = 0

    def late(_doing: str) -> None:
        nonlocal heartbeats
        heartbeats += 1
        if heartbeats == 5:
            run.clock.now_s = 1_011.0

    run.checkpoints.on_heartbeat = late
    result = run.go()
    assert (result.status, result.stop_reason) == (ResultStatus.PARTIAL, StopReason.DEADLINE)
    assert result.output is not None
    worst = run.checkpoints.reserved[0]
    assert result.usage.input_tokens == 100, "known from the beginning"
    assert result.usage.output_tokens == worst.output_tokens, (
        "a call that was cut was paid, and nobody has told how much"
    )
    assert 0 < (result.usage.cost_microusd or 0) <= (worst.microusd or 0)
    assert (result.usage.cut_calls, result.usage.cut_tokens) == (
        1,
        result.usage.total_tokens,
    ), "and it is said to be an upper bound"
    assert result.usage.cut_microusd == result.usage.cost_microusd


def test_the_deadline_leaves_a_tool_that_hangs() -> None:
    never = threading.Event()
    run = run_with_replies(
        tool_call_reply(("hang", {"q": "a"}), text="So far."),
        handoff=limited(deadline=1_010.0),
        tools=(a_tool("hang", lambda _: str(never.wait(30))),),
    )

    def late(doing: str) -> None:
        if doing == "hang":
            run.clock.now_s += 6

    run.checkpoints.on_heartbeat = late
    result = run.go()
    never.set()
    assert (result.status, result.stop_reason, result.output) == (
        ResultStatus.PARTIAL,
        StopReason.DEADLINE,
        "So far.",
    )


def test_the_jobs_budget_keeps_the_work_so_far() -> None:
    run = run_with_replies(
        tool_call_reply(("look", {"q": "a"}), text="So far."),
        tools=(LOOK,),
        checkpoints=MemoryCheckpoints(most_turns=1),
    )
    result = run.go()
    assert (result.status, result.stop_reason, result.output) == (
        ResultStatus.PARTIAL,
        StopReason.JOB_BUDGET,
        "So far.",
    )
    assert result.error == "max_turns: the job's budget does not allow another model call"


def test_a_budget_that_is_too_small_for_searches_of_the_provider_allows_the_call_without_them() -> (
    None
):
    search = Tool("web_search", "", {}, None, server_param={"name": "web_search", "max_uses": 5})
    checkpoints = MemoryCheckpoints(most_tokens=50_000)
    run = run_with_replies(answer_reply(), tools=(search,), checkpoints=checkpoints)
    assert run.go().status is ResultStatus.OK
    assert run.calls[0].tools == ()
    assert checkpoints.reserved[0].input_tokens < 50_000


def test_a_budget_that_suffices_keeps_the_searches_of_the_provider() -> None:
    search = Tool("web_search", "", {}, None, server_param={"name": "web_search", "max_uses": 5})
    run = run_with_replies(answer_reply(), tools=(search,))
    assert run.go().status is ResultStatus.OK
    assert [tool["name"] for tool in run.calls[0].tools] == ["web_search"]


def test_the_reservation_covers_the_request_and_the_reply() -> None:
    run = run_with_replies(answer_reply())
    run.go()
    worst = run.checkpoints.reserved[0]
    assert worst.input_tokens >= len(run.calls[0].system.text)
    assert worst.output_tokens == 8_192
    assert worst.microusd is not None
    assert worst.microusd > 0


def test_the_result_carries_usage_and_money_of_every_turn() -> None:
    result = run_with_replies(
        tool_call_reply(("look", {"q": "a"})), answer_reply(), tools=(LOOK,)
    ).go()
    assert (result.usage.input_tokens, result.usage.output_tokens) == (200, 40)
    assert result.usage.cost_microusd == 40


@pytest.mark.parametrize(
    "usage",
    [
        {},
        {"input_tokens": 10**30, "output_tokens": -1},
        {"input_tokens": "9", "output_tokens": True},
    ],
)
def test_a_reply_without_usage_is_booked_at_the_maximum(
    usage: dict[str, Any],
) -> None:
    checkpoints = MemoryCheckpoints()
    result = run_with_replies(replace(answer_reply(), usage=usage), checkpoints=checkpoints).go()

    (worst,) = checkpoints.reserved
    assert (result.usage.cut_calls, result.usage.cut_tokens) == (
        1,
        worst.input_tokens + worst.output_tokens,
    )


def test_a_reply_without_output_usage_is_charged_for_the_longest_answer() -> None:
    checkpoints = MemoryCheckpoints()
    result = run_with_replies(
        replace(answer_reply(), usage={"input_tokens": 9, "output_tokens": 0}),
        checkpoints=checkpoints,
    ).go()

    assert (result.usage.cut_calls, result.usage.total_tokens) == (
        1,
        9 + checkpoints.reserved[0].output_tokens,
    )


def test_an_unknown_price_stays_unknown() -> None:
    run = run_with_replies(answer_reply(), prices=Prices(provider="nobody"))
    assert run.go().usage.cost_microusd is None
    assert run.checkpoints.reserved[0].microusd is None


def test_a_wait_for_a_busy_model_costs_only_a_turn() -> None:
    run = run_with_replies(ModelBusy("later", status=429, retry_after_s=4), answer_reply())
    result = run.go()
    assert (result.status, result.turns, result.usage.total_tokens) == (ResultStatus.OK, 2, 120)
    assert result.usage.cut_calls == 0, "who was turned away has used nothing"
    assert sum(run.clock.waited) == pytest.approx(4, abs=0.3)
    assert ("waiting 4 s: rate limit (claude-haiku-5-5)", None) in run.checkpoints.heartbeats


def test_a_cut_stream_is_settled_at_the_worst_case_if_nothing_was_reported() -> None:
    run = run_with_replies(ModelUnreachable("cut"), answer_reply())
    result = run.go()
    worst = run.checkpoints.reserved[0]
    assert result.usage.input_tokens == worst.input_tokens + 100
    assert result.usage.output_tokens == worst.output_tokens + 20
    assert (result.usage.cut_calls, result.usage.cut_tokens) == (
        1,
        worst.input_tokens + worst.output_tokens,
    )


@pytest.mark.parametrize(
    ("error", "is_paid"),
    [
        *(
            (ModelUnreachable("failed", status=status), True)
            for status in (408, 409, 425, 500, 502, 503, 504)
        ),
        *((ModelBusy("later", status=status), False) for status in (429, 529)),
        *((ModelRejected("no", status=status), False) for status in (400, 401, 404, 413, 422)),
        (ServerFailed("failed", status=500), False),
        (NeverSent("no connection"), False),
        (Unsendable("the certificate was refused"), False),
    ],
)
def test_a_failed_call_that_may_have_generated_output_is_settled_at_the_worst_case(
    error: ModelError, is_paid: bool
) -> None:
    run = run_with_replies(error, handoff=limited(max_turns=1))
    used, worst = run.go().usage, run.checkpoints.reserved[0]
    expected = (1, worst.input_tokens + worst.output_tokens) if is_paid else (0, 0)
    assert (used.cut_calls, used.total_tokens) == expected


@pytest.mark.parametrize("amount", AMOUNTS)
def test_a_cut_call_is_charged_the_worst_case_of_each_amount(amount: Amount) -> None:
    silent = run_with_replies(ModelUnreachable("cut"), handoff=limited(max_turns=1))
    assert amount.used(silent.go()) == amount.worst(silent.checkpoints.reserved[0])

    model = CutModel(CallProgress("text", Usage(input_tokens=100, output_tokens=1)))
    begun = run_with_replies(answer_reply(), model=model, handoff=limited(max_turns=1))
    used = amount.used(begun.go())
    if amount not in (INPUT, MONEY):  # the stream has reported its input
        assert used == amount.worst(begun.checkpoints.reserved[0])


@dataclass(slots=True)
class CutModel:
    """Model whose stream always breaks after one report."""

    progress: CallProgress

    def reply(self, call: ModelCall, on_progress: Callable[[CallProgress], None]) -> ModelReply:
        on_progress(self.progress)
        raise ModelUnreachable("cut")


@given(st.integers(0, 100), st.booleans())
def test_a_cut_stream_is_settled_at_its_last_reported_usage(output: int, is_final: bool) -> None:
    progress = CallProgress(
        "text", Usage(input_tokens=100, output_tokens=output), is_usage_final=is_final
    )
    run = run_with_replies(answer_reply(), model=CutModel(progress), handoff=limited(max_turns=1))
    result = run.go()
    expected = output if is_final else run.checkpoints.reserved[0].output_tokens
    assert (result.usage.input_tokens, result.usage.output_tokens) == (100, expected)
    assert result.usage.cut_calls == (0 if is_final else 1)


def test_a_cut_call_with_a_search_is_settled_at_the_worst_case_of_its_input() -> None:
    param = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}
    search = Tool("web_search", "Searches.", {}, None, server_param=param)
    progress = CallProgress("text", Usage(input_tokens=100, output_tokens=1))
    run = run_with_replies(
        answer_reply(), model=CutModel(progress), tools=(search,), handoff=limited(max_turns=2)
    )
    result = run.go()
    assert result.usage.input_tokens >= run.checkpoints.reserved[0].input_tokens > 60_000


def test_a_model_that_stays_unavailable_ends_the_handoff() -> None:
    result = run_with_replies(
        ModelBusy("overloaded", status=529), handoff=limited(max_turns=50)
    ).go()
    assert (result.status, result.stop_reason, result.turns) == (
        ResultStatus.FAILED,
        StopReason.MODEL_ERROR,
        5,
    )


def test_a_rejected_call_is_not_tried_again() -> None:
    result = run_with_replies(ModelRejected("the key was refused (401)", status=401)).go()
    assert (result.status, result.stop_reason, result.turns) == (
        ResultStatus.FAILED,
        StopReason.MODEL_ERROR,
        1,
    )
    assert "401" in str(result.error)


def test_an_interruption_passes_through_a_wait() -> None:
    run = run_with_replies(ModelBusy("later", status=429))

    def cancel(doing: str) -> None:
        if doing.startswith("waiting"):
            raise Cancelled("by the user")

    run.checkpoints.on_heartbeat = cancel
    with pytest.raises(Cancelled):
        run.go()


def test_an_interruption_passes_through_a_running_tool() -> None:
    never = threading.Event()
    run = run_with_replies(
        tool_call_reply(("hang", {"q": "a"})),
        tools=(a_tool("hang", lambda _: str(never.wait(30))),),
    )

    def drain(doing: str) -> None:
        if doing == "hang":
            raise Draining("stop")

    run.checkpoints.on_heartbeat = drain
    with pytest.raises(Draining):
        run.go()
    never.set()


def test_running_calls_are_abandoned_before_the_error_of_a_checkpoint_passes_on() -> None:
    began = threading.Event()
    states: list[Callable[[], bool]] = []

    def wait(_arguments: dict[str, Any], context: ToolContext) -> str:
        states.append(context.is_abandoned)
        began.set()
        wait_until(context.is_abandoned)
        return ""

    def return_at_once(_: dict[str, Any]) -> str:
        began.wait()
        return "done"

    waits = replace(a_tool("waits", lambda _: ""), run=wait)
    run = run_with_replies(
        tool_call_reply(("waits", {"q": "a"}), ("returns", {"q": "a"})),
        tools=(waits, a_tool("returns", return_at_once)),
    )

    def drain(checkpoint: Checkpoint) -> None:
        if isinstance(checkpoint, ToolObserved):
            raise Draining("stop")

    run.checkpoints.on_checkpoint = drain
    try:
        run.go()
    except Draining:
        assert [is_abandoned() for is_abandoned in states] == [True]
    else:
        pytest.fail("the error of the checkpoint did not pass on")


def test_an_endless_script_never_exceeds_its_turns() -> None:
    run = Run(replies_in_order(text_reply("")), handoff=limited(max_turns=6))
    assert run.go().turns <= 6
