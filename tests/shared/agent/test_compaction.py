"""A handoff with long texts of the model goes on: a summary replaces its earlier turns before the
window is full, and every quote survives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from handoff_queue.shared.agent.compaction import compute_compaction_limit
from handoff_queue.shared.agent.model_fallback import ModelChoice
from handoff_queue.shared.agent.prices import Prices
from handoff_queue.shared.agent.summary_messages import SUMMARIZE
from handoff_queue.shared.agent.tool_result_clearing import build_clearing_rules
from handoff_queue.shared.types.checkpoints import Checkpoint, ContextCompacted, UserPrompted
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus, StopReason
from handoff_queue.shared.types.ids import create_word
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.specialist import ContextRules
from handoff_queue.supervisor.lifecycle.handoffs import MIN_TOKENS_PER_TURN
from handoff_queue.testing import Reply
from tests.doubles.agent_runs import Run, answer_reply
from tests.doubles.handoffs import a_handoff, a_tool
from tests.doubles.memory_checkpoints import MemoryCheckpoints

WINDOW = 100_000
RESULTS = 200
AT_ONCE = 4
SHORT = 14
SMALL_WINDOW = 20_000
LONG_TEXT = "This record belongs to the list that the task asks for. " * 150
LIMITS = HandoffLimits(max_turns=200, max_tokens=20_000_000)
WRITTEN = re.compile(r'says "([^"]+)" \((records#\d+)\)')
MODEL, OTHER_MODEL = "claude-haiku-5-5", "claude-sonnet-5-5"
"""The model of `Run`, and one of its fallbacks."""
PAIR = re.compile(r'"source": "(tool:[^"]+)", "quote": "([^"]+)"')


class ProcessKilled(BaseException):
    """Stand for the death of the process by SIGKILL."""


def sentence(number: int) -> str:
    return f"The code of record {number} is K{number * 7}."


def record(arguments: dict[str, Any]) -> str:
    """Return a record of 20 KB, with one fact."""
    return f"{sentence(int(arguments['q']))} {'Nothing else is known. ' * 1_000}"[:20_000]


def short_record(arguments: dict[str, Any]) -> str:
    return sentence(int(arguments["q"]))


RECORDS = replace(a_tool("records", record), is_source=True)


def calls_of_records(*numbers: int) -> tuple[dict[str, Any], ...]:
    calls: list[dict[str, Any]] = []
    for number in numbers:
        arguments = {"q": str(number)}
        calls.append(
            {"type": "tool_use", "id": f"t{number}", "name": "records", "input": arguments}
        )
    return tuple(calls)


def tokens_of(request: Any) -> int:
    return len(json.dumps([request.system.text, request.messages, request.tools])) // 4


def text_in(request: Any) -> str:
    return json.dumps(request.messages, ensure_ascii=False)


def is_request_for_summary(request: Any) -> bool:
    last = request.messages[-1]["content"][-1]
    is_text = last.get("type") == "text"
    return bool(is_text and last["text"].startswith(SUMMARIZE))


class Reader:
    """A model that reads records, writes a long text about each, and forgets every quote in its
    summaries. Its answer cites the quotes that its request shows.
    """

    def __init__(self, results: int, at_once: int = AT_ONCE) -> None:
        self._results = results
        self._at_once = at_once

    def __call__(self, request: Any) -> Reply:
        usage = {"input_tokens": tokens_of(request), "output_tokens": 2_000}
        shown = text_in(request)
        done = max([0, *map(int, re.findall(r"\[source: tool:find.1/records#(\d+)\]", shown))])
        done = max([done, *map(int, re.findall(r"I have read (\d+) records", shown))])
        if is_request_for_summary(request):
            return replace(answer_reply(f"I have read {done} records.", claims=[]), usage=usage)
        if done < self._results:
            numbers = range(done + 1, done + 1 + self._at_once)
            return Reply(
                blocks=(
                    {"type": "text", "text": self._notes(done)},
                    *calls_of_records(*numbers),
                ),
                stop_reason="tool_use",
                usage=usage,
            )
        return replace(self._answer(shown), usage=usage)

    def _notes(self, done: int) -> str:
        """Return a long text about the records of the turn before."""
        lines = [LONG_TEXT]
        for number in range(max(1, done - self._at_once + 1), done + 1):
            lines.append(f'Record {number} says "{sentence(number)}" (records#{number}).')
        return "\n".join(lines)

    def _answer(self, shown: str) -> Reply:
        """Return an answer with all quotes that the request shows. They are in the list of quotes,
        in the texts of the turns, and in the last results.
        """
        plain = shown.replace('\\"', '"')
        quotes = dict(PAIR.findall(plain))
        for quote, name in WRITTEN.findall(plain):
            quotes[f"tool:find.1/{name}"] = quote
        for number in range(self._results - self._at_once + 1, self._results + 1):
            quotes[f"tool:find.1/records#{number}"] = sentence(number)
        claims: list[dict[str, Any]] = []
        lines: list[str] = []
        for place, (source, quote) in enumerate(quotes.items(), start=1):
            claims.append({"id": f"c{place}", "sources": [{"source": source, "quote": quote}]})
            lines.append(f"{quote} [c{place}]")
        return answer_reply("\n".join(lines), claims=claims)


@pytest.mark.parametrize(
    ("rules", "window", "limit"),
    [
        ({}, 1_000_000, 200_000),
        ({}, 200_000, 180_000),
        ({"compact_at": 500_000}, 1_000_000, 500_000),
        ({"clear_tools_at": 300_000}, 1_000_000, 300_000),
    ],
)
def test_a_large_window_is_not_filled_before_a_summary(
    rules: dict[str, Any], window: int, limit: int
) -> None:
    assert compute_compaction_limit(ContextRules(**rules), window) == limit


def test_requests_that_grow_to_the_usual_limit_stay_within_the_tokens_of_a_handoff() -> None:
    assert compute_compaction_limit(None, 1_000_000) // 2 <= MIN_TOKENS_PER_TURN


def reader_run(script: Callable[[Any], Reply], window: int = WINDOW, **rest: Any) -> Run:
    """Return a run for a model with this window in tokens."""
    fields: dict[str, Any] = {
        "handoff": a_handoff(limits=LIMITS),
        "tools": (RECORDS,),
        "clearing": build_clearing_rules(None, window),
        "compact_at": compute_compaction_limit(None, window),
    }
    return Run(script, **{**fields, **rest})


def short_run(**rest: Any) -> Run:
    """Return a run of 14 records for a small window. Its requests are compacted twice."""
    return reader_run(Reader(SHORT, at_once=1), SMALL_WINDOW, **rest)


def compactions_in(checkpoints: MemoryCheckpoints) -> list[ContextCompacted]:
    stored = checkpoints.load_earlier_checkpoints()
    return [item for item in stored if isinstance(item, ContextCompacted)]


@pytest.fixture(scope="module")
def whole() -> tuple[HandoffResult, Run]:
    run = reader_run(Reader(RESULTS))
    return run.go(), run


Whole = tuple[HandoffResult, Run]


@pytest.mark.slow
def test_200_results_and_long_texts_stay_below_the_window_and_the_price_step(whole: Whole) -> None:
    result, run = whole
    assert (result.status, result.stop_reason) == (ResultStatus.OK, StopReason.FINISHED)
    assert Prices().get_longest_prompt("claude-haiku-5-5") == WINDOW
    assert max(map(tokens_of, run.calls)) < WINDOW
    assert len(compactions_in(run.checkpoints)) >= 2


@pytest.mark.slow
def test_every_quote_survives_a_summary_that_forgets_it(whole: Whole) -> None:
    result, run = whole
    cited = {citation.quote for claim in result.claims for citation in claim.sources}
    assert cited == {sentence(number) for number in range(1, RESULTS + 1)}
    last = text_in(run.calls[-1])
    assert "records#1 to records#" in last, "each result can be read again"


def run_with_short_records() -> Run:
    """Return a run that has ended. No result of its tool was long enough to be cleared."""
    short_records = replace(a_tool("records", short_record), is_source=True)
    run = reader_run(Reader(20, at_once=1), SMALL_WINDOW, tools=(short_records,))
    assert run.go().status is ResultStatus.OK
    return run


def test_a_summary_names_the_short_results_that_it_replaces() -> None:
    run = run_with_short_records()
    read = compactions_in(run.checkpoints)[-1].results
    assert read[0].startswith("records#1 to records#")
    assert f"read_result shows these results again: {read[0]}." in text_in(run.calls[-1])


def test_without_old_results_a_request_for_a_summary_begins_with_the_request_before() -> None:
    """The provider then reads the whole conversation from its cache. No request repeats its end."""
    run = run_with_short_records()
    pairs = [pair for pair in pairwise(run.calls) if is_request_for_summary(pair[1])]
    assert len(pairs) >= 2
    for before, asked in pairs:
        known = len(before.messages)
        assert asked.messages[:known] == before.messages
        assert (asked.system, asked.tools) == (before.system, before.tools)
        assert asked.output_schema == before.output_schema
        assert asked.may_call_tools
        assert asked.is_summary


def test_each_summary_is_one_turn_that_is_paid_once(whole: Whole) -> None:
    result, run = whole
    summaries = sum(map(is_request_for_summary, run.calls))
    assert summaries == len(compactions_in(run.checkpoints))
    assert result.turns == len(run.calls) == run.checkpoints.used_turns
    assert result.usage.input_tokens == sum(map(tokens_of, run.calls))


@pytest.mark.slow
def test_a_handoff_that_is_killed_at_any_checkpoint_sends_the_same_requests() -> None:
    expected = short_run()
    result = expected.go()
    assert len(compactions_in(expected.checkpoints)) >= 2
    for number in range(len(expected.checkpoints.saved)):
        killed = MemoryCheckpoints()

        def die(
            _checkpoint: Checkpoint, killed: MemoryCheckpoints = killed, at: int = number
        ) -> None:
            if len(killed.saved) == at:
                raise ProcessKilled

        killed.on_checkpoint = die
        first = short_run(checkpoints=killed)
        with pytest.raises(ProcessKilled):
            first.go()
        second = short_run(checkpoints=killed.reopened())
        assert second.go() == result
        sent = [*first.calls, *second.calls]
        assert len(sent) <= len(expected.calls) + 1, "only the call in flight is repeated"
        assert second.calls == expected.calls[-len(second.calls) :]


def test_a_message_of_the_user_stays_after_a_summary() -> None:
    checkpoints = MemoryCheckpoints()

    def record_with_message(arguments: dict[str, Any]) -> str:
        if arguments["q"] == "1":
            checkpoints.messages.append(UserPrompted(message_id=create_word(), text="Only codes."))
        return record(arguments)

    tool = replace(a_tool("records", record_with_message), is_source=True)
    run = short_run(checkpoints=checkpoints, tools=(tool,))
    assert run.go().status is ResultStatus.OK
    assert len(compactions_in(checkpoints)) >= 2
    assert text_in(run.calls[-1]).count("Only codes.") == 1


def test_a_summary_without_text_is_asked_for_once_more_and_then_the_quotes_go_on() -> None:
    reader = Reader(SHORT, at_once=1)

    def reply(request: Any) -> Reply:
        if is_request_for_summary(request):
            return Reply(blocks=({"type": "text", "text": " "},), usage={"input_tokens": 9_000})
        return reader(request)

    run = reader_run(reply, SMALL_WINDOW)
    run.go()
    first = compactions_in(run.checkpoints)[0]
    assert first.summary == ""
    assert {item.quote for item in first.quotes} >= {sentence(1), sentence(2)}
    asked = [is_request_for_summary(request) for request in run.calls]
    assert [True, True] in [list(pair) for pair in pairwise(asked)]
    assert [True, True, True] not in [asked[at : at + 3] for at in range(len(asked))]


def declining_run(models: Collection[str], fallbacks: tuple[ModelChoice, ...]) -> Run:
    """Return a run whose models decline to write a summary, as far as they are named."""
    reader = Reader(SHORT, at_once=1)

    def reply(request: Any) -> Reply:
        if is_request_for_summary(request) and request.model in models:
            words = {"type": "text", "text": "I cannot help with this."}
            return Reply(blocks=(words,), stop_reason="refusal", usage={"input_tokens": 9_000})
        return reader(request)

    return reader_run(reply, SMALL_WINDOW, fallbacks=fallbacks)


@pytest.mark.parametrize("fallbacks", [(), (ModelChoice(OTHER_MODEL, "other"),)])
def test_a_declined_summary_is_an_empty_one_and_the_model_keeps_its_later_turns(
    fallbacks: tuple[ModelChoice, ...],
) -> None:
    run = declining_run((MODEL, OTHER_MODEL), fallbacks)
    result = run.go()
    first = compactions_in(run.checkpoints)[0]
    assert first.summary == ""
    assert {item.quote for item in first.quotes} >= {sentence(1), sentence(2)}
    assert result.stop_reason is not StopReason.REFUSED
    turns = [call for call in run.calls if not is_request_for_summary(call)]
    assert {call.model for call in turns} == {MODEL}


def test_another_model_writes_the_summary_that_a_model_has_declined() -> None:
    run = declining_run((MODEL,), (ModelChoice(OTHER_MODEL, "other"),))
    assert run.go().status is ResultStatus.OK
    summaries = [item.summary for item in compactions_in(run.checkpoints)]
    assert summaries
    assert all(summary.startswith("I have read") for summary in summaries)
    asked = [call.model for call in run.calls if is_request_for_summary(call)]
    assert asked == [MODEL, OTHER_MODEL] * len(summaries)
    turns = [call for call in run.calls if not is_request_for_summary(call)]
    assert {call.model for call in turns} == {MODEL}
