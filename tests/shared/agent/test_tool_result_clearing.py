"""A handoff whose tool results exceed the context window of its model goes on. Old results are
cleared from its requests, and can be read again.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from handoff_queue.shared.agent.prices import USUAL_WINDOW, Prices
from handoff_queue.shared.agent.tool_calls import SAME_CALL
from handoff_queue.shared.agent.tool_result_clearing import ClearingRules, build_clearing_rules
from handoff_queue.shared.types.checkpoints import Checkpoint, ContextCleared
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus, StopReason
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.specialist import ContextRules
from handoff_queue.supervisor.lifecycle.handoffs import MIN_TOKENS_PER_TURN, compute_tokens_per_turn
from handoff_queue.testing import MessagesServer, Reply, error_reply
from tests.doubles.agent_runs import Run, answer_reply
from tests.doubles.handoffs import a_handoff, a_spec, a_tool
from tests.doubles.memory_checkpoints import MemoryCheckpoints
from tests.doubles.served_model import model_at

WINDOW = 100_000
RESULTS = 200
AT_ONCE = 4
LIMITS = HandoffLimits(max_turns=100, max_tokens=10_000_000)
RULES = build_clearing_rules(None, WINDOW)


class ProcessKilled(BaseException):
    """Stand for the death of the process by SIGKILL."""


def record(arguments: dict[str, Any]) -> str:
    """Return a record of 20 KB, with one fact."""
    text = f"The code of record {arguments['q']} is K{int(arguments['q']) * 7}."
    return f"{text} {'Nothing else is known. ' * 1_000}"[:20_000]


RECORDS = replace(a_tool("records", record), is_source=True)


def call(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"t{number}", "name": name, "input": arguments}


def calls_in(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the calls in the messages of a request."""
    calls: list[dict[str, Any]] = []
    for message in request["messages"]:
        if message["role"] == "assistant":
            calls += [block for block in message["content"] if block["type"] == "tool_use"]
    return calls


def results_in(request: dict[str, Any]) -> list[str]:
    """Return the texts of the results in a request."""
    texts: list[str] = []
    for message in request["messages"]:
        for block in message["content"]:
            if block["type"] == "tool_result":
                texts.append(str(block["content"]))
    return texts


def tokens_of(request: dict[str, Any]) -> int:
    return len(json.dumps(request)) // 4


def reply_of_reader(request: dict[str, Any]) -> Reply:
    """Return the reply of a model that reads all records, and then cites three records."""
    tokens = tokens_of(request)
    if tokens > WINDOW:
        return error_reply(400, f"prompt is too long: {tokens} tokens > {WINDOW} maximum")
    usage = {"input_tokens": tokens, "output_tokens": 100}
    done = len(calls_in(request))
    if done < RESULTS:
        numbers = range(done + 1, done + 1 + AT_ONCE)
        calls = [call(number, "records", {"q": str(number)}) for number in numbers]
        return Reply(blocks=tuple(calls), stop_reason="tool_use", usage=usage)
    claims = [claim_about(number) for number in (1, 100, RESULTS)]
    output = " ".join(f"{claim['text']} [{claim['id']}]" for claim in claims)
    return replace(answer_reply(output, claims=claims), usage=usage)


def claim_about(number: int) -> dict[str, Any]:
    text = f"The code of record {number} is K{number * 7}."
    source = {"source": f"tool:find.1/records#{number}", "quote": text}
    return {"id": f"c{number}", "text": text, "sources": [source]}


def served_run(checkpoints: MemoryCheckpoints) -> tuple[Run, MessagesServer]:
    run = Run(
        lambda _: answer_reply(),
        handoff=a_handoff(limits=LIMITS),
        tools=(RECORDS,),
        checkpoints=checkpoints,
        clearing=RULES,
    )
    return run, MessagesServer(reply_of_reader)


def go(checkpoints: MemoryCheckpoints) -> tuple[HandoffResult, list[dict[str, Any]]]:
    """Run the handoff, and return its result and its requests."""
    run, messages_server = served_run(checkpoints)
    with messages_server as server, model_at(server.url) as run.model:
        return run.go(), list(server.requests)


def clearings_in(checkpoints: MemoryCheckpoints) -> list[ContextCleared]:
    stored = checkpoints.load_earlier_checkpoints()
    return [item for item in stored if isinstance(item, ContextCleared)]


@pytest.fixture(scope="module")
def whole() -> tuple[HandoffResult, list[dict[str, Any]], MemoryCheckpoints]:
    checkpoints = MemoryCheckpoints()
    return *go(checkpoints), checkpoints


Whole = tuple[HandoffResult, list[dict[str, Any]], MemoryCheckpoints]


@pytest.mark.slow
def test_200_results_of_20_kb_fit_into_a_window_of_100_000_tokens(whole: Whole) -> None:
    result, requests, _ = whole
    assert (result.status, result.stop_reason) == (ResultStatus.OK, StopReason.FINISHED)
    assert len(requests) == result.turns == RESULTS // AT_ONCE + 1, "no request was refused"
    assert max(map(tokens_of, requests)) < WINDOW


@pytest.mark.slow
def test_quotes_from_cleared_results_are_still_proved(whole: Whole) -> None:
    result, requests, _ = whole
    sources = [citation.source for claim in result.claims for citation in claim.sources]
    assert sources == [f"tool:find.1/records#{number}" for number in (1, 100, RESULTS)]
    assert "K7." not in json.dumps(requests[-1]), "the model no longer sees the first record"


def test_results_are_cleared_seldom_and_many_at_once(whole: Whole) -> None:
    _, requests, checkpoints = whole
    clearings = clearings_in(checkpoints)
    assert len(clearings) <= len(requests) // 3
    assert min(len(clearing.tool_use_ids) for clearing in clearings) >= 2 * AT_ONCE


def list_blocks(request: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Return the blocks of each message of a request, without cache marks."""
    messages: list[list[dict[str, Any]]] = []
    for message in request["messages"]:
        messages.append([{**block, "cache_control": None} for block in message["content"]])
    return messages


def test_between_two_clearings_each_request_begins_with_the_one_before(whole: Whole) -> None:
    _, requests, checkpoints = whole
    changes = 0
    for before, after in pairwise(requests):
        known = len(before["messages"]) - 1
        changes += list_blocks(after)[:known] != list_blocks(before)[:known]
    assert changes == len(clearings_in(checkpoints))
    assert len({json.dumps(request["system"]) for request in requests}) == 1
    assert len({json.dumps(request["tools"]) for request in requests}) == 2


@pytest.mark.slow
def test_a_handoff_that_is_killed_after_a_clearing_sends_the_same_requests(whole: Whole) -> None:
    expected, requests, _ = whole
    checkpoints = MemoryCheckpoints()

    def die(_checkpoint: Checkpoint) -> None:
        if len(clearings_in(checkpoints)) == 3:
            raise ProcessKilled

    checkpoints.on_checkpoint = die
    with pytest.raises(ProcessKilled):
        go(checkpoints)
    result, rest = go(checkpoints.reopened())
    assert rest == requests[-len(rest) :]
    assert result == expected


def small_run(*replies: Reply, **rest: Any) -> Run:
    """Return a run in which one record of 20 KB is too much for the context."""
    left = list(replies)
    fields: dict[str, Any] = {"tools": (RECORDS,), "clearing": ClearingRules(3_000, keep=0)}
    handoff = a_handoff(limits=LIMITS)
    return Run(lambda _: left.pop(0), handoff=handoff, **{**fields, **rest})


def first_turns() -> list[Reply]:
    """Return replies after which the first of two records is cleared."""
    return [
        calls_of_tools(call(1, "records", {"q": "1"}), tokens=1_000),
        calls_of_tools(call(2, "records", {"q": "2"})),
    ]


def calls_of_tools(*calls: dict[str, Any], tokens: int = 8_000) -> Reply:
    usage = {"input_tokens": tokens, "output_tokens": 100}
    return Reply(blocks=calls, stop_reason="tool_use", usage=usage)


def test_a_note_names_the_cleared_result_and_read_result_shows_it_again() -> None:
    run = small_run(
        *first_turns(),
        calls_of_tools(call(3, "read_result", {"result": "records#1", "offset": 15_000})),
        answer_reply(),
    )
    result = run.go()
    assert result.status is ResultStatus.OK
    note = "[source: tool:find.1/records#1]\n[cleared: 20000 characters; read_result shows"
    assert results_in({"messages": run.calls[2].messages})[0] == f"{note} records#1 again]"
    assert [tool["name"] for tool in run.calls[1].tools] == ["records"]
    assert [tool["name"] for tool in run.calls[2].tools] == ["records", "read_result"]
    shown = results_in({"messages": run.calls[3].messages})[2]
    assert shown == f"[source: tool:find.1/records#1]\n{record({'q': '1'})[15_000:]}\n[end]"


def test_read_result_shows_a_cleared_result_although_it_failed_before() -> None:
    """Before the first clearing there is no tool of this name."""
    read = {"result": "records#1", "offset": 15_000}
    first, second = first_turns()
    run = small_run(
        calls_of_tools(call(0, "read_result", read), tokens=1_000),
        first,
        second,
        calls_of_tools(call(3, "read_result", read)),
        answer_reply(),
    )
    run.go()
    assert results_in({"messages": run.calls[1].messages}) == [
        "there is no tool 'read_result' here; there are: records"
    ]
    shown = results_in({"messages": run.calls[4].messages})[3]
    assert shown.endswith(f"{record({'q': '1'})[15_000:]}\n[end]")


def test_tools_do_not_count_a_cleared_result_as_shown() -> None:
    run = small_run(*first_turns(), answer_reply())
    run.go()
    again = small_run(answer_reply(), checkpoints=run.checkpoints.reopened())
    again.go()
    assert run.hidden == again.hidden == [record({"q": "1"})]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"result": "records#3", "offset": 0}, "no result has the name 'records#3'"),
        ({"result": "records#1", "offset": 20_000}, "offset must be from 0 to 19999"),
        ({}, "no result has the name ''"),
    ],
)
def test_a_wrong_name_or_offset_is_told(arguments: dict[str, Any], problem: str) -> None:
    run = small_run(
        *first_turns(), calls_of_tools(call(3, "read_result", arguments)), answer_reply()
    )
    run.go()
    assert results_in({"messages": run.calls[3].messages})[2] == problem


def test_a_lookup_whose_result_was_cleared_is_answered_from_its_checkpoint() -> None:
    ran: list[str] = []

    def look(arguments: dict[str, Any]) -> str:
        ran.append(arguments["q"])
        return record(arguments)

    run = small_run(
        calls_of_tools(call(1, "look", {"q": "1"}), tokens=1_000),
        calls_of_tools(call(2, "look", {"q": "2"})),
        calls_of_tools(call(3, "look", {"q": "1"}), tokens=1_000),
        calls_of_tools(call(4, "look", {"q": "1"}), tokens=1_000),
        answer_reply(),
        tools=(replace(a_tool("look", look), is_lookup=True),),
    )
    run.go()
    assert ran == ["1", "2"]
    assert results_in({"messages": run.calls[3].messages})[2] == record({"q": "1"})
    assert results_in({"messages": run.calls[4].messages})[3] == SAME_CALL


def find_cleared(run: Run, reply_calls: int) -> tuple[int, list[bool]]:
    """Return the number of cleared results of the first reply, and for each later result whether it
    is cleared, in the last request. The calls of one reply run at the same time, and end in any
    order.

    Args:
        reply_calls: number of calls of the first reply.
    """
    texts = results_in({"messages": run.calls[-1].messages})
    are_cleared = ["cleared: " in text for text in texts]
    return sum(are_cleared[:reply_calls]), are_cleared[reply_calls:]


def test_the_newest_results_stay_and_results_that_the_model_has_not_seen_are_shown() -> None:
    first = [call(number, "records", {"q": str(number)}) for number in range(1, 4)]
    run = small_run(
        calls_of_tools(*first),
        calls_of_tools(call(4, "records", {"q": "4"}), tokens=22_000),
        answer_reply(),
        clearing=ClearingRules(25_000, keep=2),
    )
    run.go()
    assert find_cleared(run, reply_calls=3) == (2, [False])


def test_no_more_results_are_cleared_than_needed_if_fewer_are_there_than_may_stay() -> None:
    first = [call(number, "records", {"q": str(number)}) for number in range(1, 4)]
    run = small_run(
        calls_of_tools(*first),
        calls_of_tools(call(4, "records", {"q": "4"}), tokens=26_000),
        answer_reply(),
        clearing=ClearingRules(30_000, keep=5),
    )
    run.go()
    assert find_cleared(run, reply_calls=3) == (1, [False])


def test_a_server_that_refuses_a_long_request_gets_a_shorter_one() -> None:
    first = [call(number, "records", {"q": str(number)}) for number in range(1, 4)]

    def reply(request: dict[str, Any]) -> Reply:
        if tokens_of(request) > 12_000:
            return error_reply(400, "prompt is too long: 15000 tokens > 12000 maximum")
        if not calls_in(request):
            return calls_of_tools(*first)
        return answer_reply()

    run = Run(lambda _: answer_reply(), handoff=a_handoff(limits=LIMITS), tools=(RECORDS,))
    with MessagesServer(reply) as server, model_at(server.url) as run.model:
        result = run.go()
    assert result.status is ResultStatus.OK
    assert len(server.requests) == 3


def test_a_reply_that_fills_the_window_is_asked_again_with_a_shorter_context() -> None:
    first = [call(number, "records", {"q": str(number)}) for number in range(1, 4)]
    full = Reply(
        blocks=({"type": "text", "text": '{"status": "ok", "out'},),
        stop_reason="model_context_window_exceeded",
        usage={"input_tokens": 16_000, "output_tokens": 10},
    )
    run = small_run(
        calls_of_tools(*first), full, answer_reply(), clearing=ClearingRules(90_000, keep=3)
    )
    assert run.go().status is ResultStatus.OK
    assert len(clearings_in(run.checkpoints)) == 1


def test_a_reply_that_fills_the_window_without_results_to_clear_names_the_window() -> None:
    full = Reply(
        blocks=({"type": "text", "text": '{"status": "ok", "out'},),
        stop_reason="model_context_window_exceeded",
    )
    result = small_run(full).go()
    assert result.error == "the answer was cut off because the context window of the model was full"


def test_a_context_without_long_results_ends_as_before() -> None:
    run = small_run(calls_of_tools(call(1, "none", {})), answer_reply())
    assert run.go().status is ResultStatus.OK
    assert clearings_in(run.checkpoints) == []


@pytest.mark.parametrize(
    ("model", "longest"),
    [
        ("claude-haiku-5-5", 100_000),
        ("claude-haiku-4-5", 200_000),
        ("claude-opus-5-5", 1_000_000),
        ("a-local-model", USUAL_WINDOW),
    ],
)
def test_the_longest_prompt_is_the_window_or_ends_at_the_first_higher_price(
    model: str, longest: int
) -> None:
    assert Prices().get_longest_prompt(model) == longest


def test_a_file_can_set_the_limit_and_the_number_of_kept_results() -> None:
    assert build_clearing_rules(None, 50_000) == ClearingRules(40_000, keep=3)
    rules = build_clearing_rules(ContextRules(clear_tools_at=30_000, keep=1), 100_000)
    assert rules == ClearingRules(30_000, keep=1)


@pytest.mark.parametrize("window", [100_000, 1_000_000])
def test_results_are_cleared_before_the_tokens_of_the_turns_are_used_up(window: int) -> None:
    """A conversation grows to the limit, so each turn may read as many tokens."""
    assert build_clearing_rules(None, window).at_tokens < MIN_TOKENS_PER_TURN
    later = ContextRules(clear_tools_at=400_000)
    a_spec_with_rules = a_spec().model_copy(update={"context": later})
    assert build_clearing_rules(later, window).at_tokens < compute_tokens_per_turn(
        a_spec_with_rules
    )
