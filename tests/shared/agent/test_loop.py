"""The agent loop makes turns, runs tool calls, requests repairs and returns a result."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, replace
from typing import Any

import pytest

from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer
from handoff_queue.shared.agent.loop import (
    EMPTY,
    LAST_TURN,
    TOO_LONG,
    build_too_long_prompt,
)
from handoff_queue.shared.agent.next_turn import MAX_CUT_CALLS
from handoff_queue.shared.agent.opening_message import LoadedPayloads
from handoff_queue.shared.agent.tool import Tool, ToolFailed
from handoff_queue.shared.agent.tool_calls import CUT_CALL, MAX_RESULT_CHARS
from handoff_queue.shared.runtime.models import Models
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import LimitReached
from handoff_queue.shared.types.handoff import ResultStatus, StopReason
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.testing import Reply, json_reply, text_reply, tool_call_reply
from tests.doubles.agent_runs import TEXTS, Run, answer_reply, envelope, run_with_replies
from tests.doubles.handoffs import a_handoff, a_manifest, a_tool
from tests.doubles.memory_checkpoints import MemoryCheckpoints

TWO_TURNS = a_handoff(limits=HandoffLimits(max_turns=2))

LOOK = a_tool("look", lambda arguments: f"found {arguments['q']}")


def last_message(run: Run) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = run.calls[-1].messages[-1]["content"]
    return content


def test_an_acceptable_answer_ends_the_run() -> None:
    result = run_with_replies(answer_reply()).go()
    assert result.status is ResultStatus.OK
    assert result.output == "It is written in Rust [find.c1]."
    assert result.claims[0].sources[0].quote == "It is written in Rust."
    assert (result.turns, result.stop_reason) == (1, StopReason.FINISHED)


UNPROVEN: dict[str, Any] = {"claims": []}


def test_a_short_last_reply_may_wait_for_its_result() -> None:
    run = run_with_replies(answer_reply("Written in Rust.", **UNPROVEN))
    run.go()
    assert run.checkpoints.waiting == ["replied"]


@pytest.mark.parametrize(
    ("reply", "tools"),
    [
        (tool_call_reply(("look", {"q": "rust"})), (LOOK,)),
        (answer_reply(), ()),
        (answer_reply("Rust. " * 4_000, **UNPROVEN), ()),
    ],
    ids=["it calls a tool", "it quotes, and quotes are looked up", "it is long"],
)
def test_no_other_reply_waits_for_slow_work(reply: Reply, tools: tuple[Tool, ...]) -> None:
    run = run_with_replies(reply, answer_reply(), tools=tools)
    run.go()
    assert run.checkpoints.waiting == []


def test_tool_results_are_sent_to_the_model() -> None:
    run = run_with_replies(tool_call_reply(("look", {"q": "rust"})), answer_reply(), tools=(LOOK,))
    result = run.go()
    assert last_message(run)[0]["content"] == "found rust"
    assert result.turns == 2


def test_several_calls_of_one_reply_run_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=10)

    def meet(arguments: dict[str, Any]) -> str:
        both.wait()
        return "met " + str(arguments["q"])

    run = run_with_replies(
        tool_call_reply(("meet", {"q": "a"}), ("meet", {"q": "b"})),
        answer_reply(),
        tools=(a_tool("meet", meet),),
    )
    run.go()
    assert [block["content"] for block in last_message(run)] == ["met a", "met b"]


def test_results_keep_the_order_of_their_calls_at_any_speed() -> None:
    second_is_done = threading.Event()

    def slow_first(arguments: dict[str, Any]) -> str:
        if arguments["q"] == "first":
            second_is_done.wait(10)
        return str(arguments["q"])

    checkpoints = MemoryCheckpoints(
        on_checkpoint=lambda checkpoint: (
            second_is_done.set() if checkpoint.kind == "observed" else None
        )
    )
    run = run_with_replies(
        tool_call_reply(("slow", {"q": "first"}), ("slow", {"q": "second"})),
        answer_reply(),
        tools=(a_tool("slow", slow_first),),
        checkpoints=checkpoints,
    )
    run.go()
    assert [block["content"] for block in last_message(run)] == ["first", "second"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("look", {"q": 1}), "bad arguments"),
        (("look", {}), "'q' is a required property"),
        (("nothing", {"q": "x"}), "there is no tool 'nothing'"),
        (("hidden", {"q": "x"}), "there is no tool 'hidden'"),
        (("breaks", {"q": "x"}), "breaks failed with ValueError"),
        (("fails", {"q": "x"}), "no such page; try another"),
    ],
)
def test_an_invalid_call_is_an_observation_of_one_line(
    call: tuple[str, dict[str, Any]], message: str
) -> None:
    def breaks(_arguments: dict[str, Any]) -> str:
        raise ValueError("a secret\nin two lines")

    def fails(_arguments: dict[str, Any]) -> str:
        raise ToolFailed("no such page;\ntry another")

    tools = (
        LOOK,
        a_tool("hidden", lambda _: "never"),
        a_tool("breaks", breaks),
        a_tool("fails", fails),
    )
    run = run_with_replies(
        tool_call_reply(call), answer_reply(), tools=tools, offered=("look", "breaks", "fails")
    )
    assert run.go().status is ResultStatus.OK
    block = last_message(run)[0]
    assert block["is_error"] is True
    assert message in block["content"]
    assert "secret" not in block["content"]
    assert "\n" not in block["content"]


def test_only_the_tools_of_the_spec_are_offered() -> None:
    run = run_with_replies(
        answer_reply(), tools=(LOOK, a_tool("hidden", lambda _: "never")), offered=("look",)
    )
    run.go()
    assert [tool["name"] for tool in run.calls[0].tools] == ["look"]


def test_a_large_tool_result_is_cut_with_a_note() -> None:
    run = run_with_replies(
        tool_call_reply(("big", {"q": "x"})),
        answer_reply(),
        tools=(a_tool("big", lambda _: "x" * 1_000_000),),
    )
    run.go()
    content = last_message(run)[0]["content"]
    assert len(content) < MAX_RESULT_CHARS + 200
    assert "of 1000000 characters" in content


def test_an_unacceptable_answer_is_repaired_in_a_turn() -> None:
    run = run_with_replies(text_reply("Done."), answer_reply())
    result = run.go()
    assert result.status is ResultStatus.OK
    assert result.turns == 2
    assert "give the work itself" in last_message(run)[0]["text"]


FORM = {"type": ["string", "object"]}
"""A schema of the output, so that the answer is an envelope."""
TEXT = {"type": "string"}
"""The format of an output without a schema, so that the answer is Markdown."""


def test_prose_in_place_of_an_envelope_is_repaired_in_a_turn() -> None:
    run = run_with_replies(
        text_reply("no json here"), answer_reply(), handoff=a_handoff(expected_output_format=FORM)
    )
    assert run.go().turns == 2
    assert "plain text (12 characters) came where one JSON object" in last_message(run)[0]["text"]


def test_prose_that_is_never_repaired_is_kept_as_a_partial_result() -> None:
    result = run_with_replies(
        text_reply("Qdrant is written in Rust."),
        text_reply("It is written in Rust."),
        handoff=a_handoff(expected_output_format=FORM),
    ).go()
    assert result.status is ResultStatus.PARTIAL
    assert result.stop_reason is StopReason.INVALID_OUTPUT
    assert result.output == "It is written in Rust."
    assert result.turns == 2


def test_an_answer_without_content_fails_after_one_repair() -> None:
    result = run_with_replies(answer_reply("I completed the task.")).go()
    assert (result.status, result.stop_reason, result.turns) == (
        ResultStatus.FAILED,
        StopReason.INVALID_OUTPUT,
        2,
    )


def test_an_output_of_the_wrong_shape_gets_the_place_of_its_error() -> None:
    wants = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    run = run_with_replies(
        answer_reply({"n": "one"}),
        answer_reply({"n": 1}),
        handoff=a_handoff(expected_output_format=wants),
    )
    assert run.go().output == {"n": 1}
    assert "$.n" in last_message(run)[0]["text"]


def test_an_empty_reply_is_repaired() -> None:
    run = run_with_replies(Reply(), answer_reply())
    assert run.go().status is ResultStatus.OK
    assert [message["role"] for message in run.calls[1].messages] == ["user"]


def test_a_reply_that_was_cut_is_asked_for_again_and_shorter() -> None:
    run = run_with_replies(
        text_reply('{"status": "ok", "output": "It is', stop_reason="max_tokens"), answer_reply()
    )
    assert run.go().status is ResultStatus.OK
    assert last_message(run)[-1]["text"].startswith(TOO_LONG)


def test_a_shorter_answer_has_at_most_half_of_the_words() -> None:
    assert "in at most 1,200 words." in build_too_long_prompt(4_000)
    assert "much shorter." in build_too_long_prompt(0), "the server did not report the tokens"


@dataclass(frozen=True)
class _Numbers:
    """An answer format that accepts only whole JSON, and knows how to shorten it."""

    schema = None
    shortening_advice = "Leave out the small numbers."

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:
        raise InvalidAnswer("no JSON")


def test_an_answer_that_is_cut_off_twice_is_not_paid_for_a_third_time() -> None:
    run = run_with_replies(*[text_reply('{"n": [1', stop_reason="max_tokens")] * 5)
    run.answer_format = _Numbers()

    result = run.go()

    assert (result.status, result.stop_reason) == (ResultStatus.FAILED, StopReason.MAX_TOKENS)
    assert "cut off at its limit of " in (result.error or "")
    assert len(run.calls) == 2
    assert last_message(run)[-1]["text"].endswith("Leave out the small numbers.")


def test_an_answer_that_was_cut_off_after_a_repair_is_still_asked_for_again() -> None:
    cut = text_reply('{"status": "ok", "output": "It is', stop_reason="max_tokens")
    run = run_with_replies(Reply(), cut, answer_reply())
    assert run.go().status is ResultStatus.OK


def test_an_answer_that_was_cut_off_is_not_repeated_to_the_model() -> None:
    cut = text_reply('{"status": "ok", "output": "x x x x', stop_reason="max_tokens")
    run = run_with_replies(cut, answer_reply())
    assert run.go().status is ResultStatus.OK
    (opening,) = run.calls[1].messages
    (prompt,) = [block["text"] for block in opening["content"][1:]]
    assert prompt.startswith(TOO_LONG)


def test_an_answer_that_stays_too_long_is_salvaged() -> None:
    text = json.dumps(envelope("Rust [c1]. " * 20))[:60]
    result = run_with_replies(text_reply(text, stop_reason="max_tokens")).go()
    assert (result.status, result.stop_reason) == (ResultStatus.PARTIAL, StopReason.MAX_TOKENS)
    assert isinstance(result.output, str)
    assert result.output.startswith("Rust")


@pytest.mark.parametrize("stop_reason", ["max_tokens", "model_context_window_exceeded"])
def test_a_call_that_was_cut_is_not_run(stop_reason: str) -> None:
    ran: list[str] = []

    def note(arguments: dict[str, Any]) -> str:
        ran.append(arguments["q"])
        return "found"

    cut = Reply(
        blocks=({"type": "tool_use", "id": "t", "name": "look", "input": {"q": "half"}},),
        stop_reason=stop_reason,
    )
    run = run_with_replies(cut, answer_reply(), tools=(a_tool("look", note),))
    run.go()
    assert ran == []
    assert "cut off" in last_message(run)[0]["content"]


def test_calls_that_are_cut_off_again_and_again_end_in_the_last_turn() -> None:
    replies: list[Reply] = []
    for number in range(MAX_CUT_CALLS):
        block = {"type": "tool_use", "id": f"t{number}", "name": "look", "input": {"q": "half"}}
        replies.append(Reply(blocks=(block,), stop_reason="max_tokens"))
    run = run_with_replies(*replies, answer_reply(), tools=(LOOK,))

    assert run.go().status is ResultStatus.OK
    assert [call.may_call_tools for call in run.calls] == [True] * MAX_CUT_CALLS + [False]


@pytest.mark.parametrize(
    "output", ["NaN", "1e999", '{"a": [-1e999]}', "1" * 5_000, "[" * 150 + "]" * 150]
)
@pytest.mark.parametrize("cut", [0, 2], ids=["whole", "cut off"])
def test_an_output_that_cannot_be_stored_is_the_models_mistake(output: str, cut: int) -> None:
    text = f'{{"status": "ok", "output": {output}, "claims": []}}'
    reply = text_reply(text[: len(text) - cut], stop_reason="max_tokens" if cut else "end_turn")

    result = run_with_replies(reply, reply, reply).go()

    assert result.stop_reason in (StopReason.INVALID_OUTPUT, StopReason.MAX_TOKENS)
    assert result.status is ResultStatus.FAILED


def test_no_call_of_a_refused_reply_is_run() -> None:
    ran: list[str] = []

    def look(arguments: dict[str, Any]) -> str:
        ran.append(str(arguments["q"]))
        return "found"

    refused = replace(tool_call_reply(("look", {"q": "rust"})), stop_reason="refusal")
    result = run_with_replies(refused, tools=(a_tool("look", look),)).go()

    assert (result.stop_reason, ran) == (StopReason.REFUSED, [])


def test_a_pause_without_a_search_does_not_end_the_conversation_with_the_model() -> None:
    run = run_with_replies(text_reply("I look further.", stop_reason="pause_turn"), answer_reply())
    result = run.go()
    assert result.status is ResultStatus.OK
    assert run.calls[-1].messages[-1]["role"] == "user"


def test_a_refusal_of_the_model_is_a_failure_with_that_reason() -> None:
    result = run_with_replies(text_reply("I can't help with that.", stop_reason="refusal")).go()
    assert (result.status, result.stop_reason) == (ResultStatus.FAILED, StopReason.REFUSED)
    assert result.error is not None
    assert "declined to answer: change the task, or use another model" in result.error
    assert result.error.endswith("the model wrote: I can't help with that.")


def test_a_pause_of_a_server_tool_is_continued() -> None:
    pause = Reply(
        blocks=({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},),
        stop_reason="pause_turn",
    )
    run = run_with_replies(pause, answer_reply())
    assert run.go().status is ResultStatus.OK
    assert run.calls[1].messages[-1] == {"role": "assistant", "content": [*pause.blocks]}


def test_a_limit_raised_by_a_tool_is_only_an_observation() -> None:
    def limit(_arguments: dict[str, Any]) -> str:
        raise LimitReached("something")

    run = run_with_replies(
        tool_call_reply(("limit", {"q": "a"})), answer_reply(), tools=(a_tool("limit", limit),)
    )
    assert run.go().status is ResultStatus.OK


def test_a_defect_is_a_failed_result_without_its_text() -> None:
    def broken(_call: Any) -> Reply:
        raise KeyError("a secret")

    result = Run(broken).go()
    assert (result.status, result.stop_reason) == (ResultStatus.FAILED, StopReason.INTERNAL_ERROR)
    assert "secret" not in str(result.error)


@pytest.mark.parametrize(
    ("reply", "output_format"),
    [
        (answer_reply("A long answer " * 20), FORM),
        (text_reply("A long answer " * 20 + "\n\n<notes>\nconfidence: 0.9\n</notes>"), TEXT),
    ],
    ids=["an envelope", "Markdown"],
)
def test_the_draft_is_the_output_so_far(reply: Reply, output_format: dict[str, Any]) -> None:
    handoff = a_handoff(expected_output_format=output_format)
    run = run_with_replies(reply, handoff=handoff, streams_draft=True)
    run.checkpoints.on_heartbeat = lambda _doing: run.clock.wait(1)
    run.go()
    drafts = [draft for _, draft in run.checkpoints.heartbeats if draft]
    assert drafts
    assert all(("A long answer " * 20).startswith(draft) for draft in drafts)


def test_a_need_for_input_is_a_result() -> None:
    result = run_with_replies(
        json_reply({"status": "needs_input", "output": None, "needs": "the year"})
    ).go()
    assert (result.status, result.needs) == (ResultStatus.NEEDS_INPUT, "the year")


def refuses(_arguments: dict[str, Any]) -> str:
    raise ToolFailed("stock database db-7 refused\nthe connection")


def breaks(_arguments: dict[str, Any]) -> str:
    raise ValueError("a secret")


FAILED = json_reply(envelope(None, status="failed", problem="no figures", claims=[]))


@pytest.mark.parametrize(
    ("replies", "reason"),
    [
        (
            (tool_call_reply(("stock", {"q": "x"})), FAILED),
            "no figures; the last error of the tool stock: stock database db-7 refused the"
            " connection",
        ),
        (
            (
                tool_call_reply(("stock", {"q": "x"})),
                tool_call_reply(("breaks", {"q": "x"})),
                FAILED,
            ),
            "no figures; the last error of the tool breaks: breaks failed with ValueError",
        ),
        (
            (tool_call_reply(("stock", {})), FAILED),
            "no figures; the last error of the tool stock: stock: bad arguments at $: 'q' is a"
            " required property",
        ),
        ((tool_call_reply(("look", {"q": "x"})), FAILED), "no figures"),
    ],
)
def test_the_reason_of_a_failure_has_the_last_error_of_a_tool(
    replies: tuple[Reply, ...], reason: str
) -> None:
    tools = (LOOK, a_tool("stock", refuses), a_tool("breaks", breaks))
    result = run_with_replies(*replies, tools=tools).go()

    assert (result.status, result.error) == (ResultStatus.FAILED, reason)


def test_a_need_for_input_has_the_last_error_of_a_tool() -> None:
    reply = json_reply({"status": "needs_input", "output": None, "needs": "the order's number"})
    call = tool_call_reply(("stock", {"q": "x"}))

    result = run_with_replies(call, reply, tools=(a_tool("stock", refuses),)).go()

    assert result.needs == (
        "the order's number; the last error of the tool stock: stock database db-7 refused the"
        " connection"
    )


def test_a_tool_that_has_succeeded_since_its_error_is_not_a_reason() -> None:
    attempts: list[str] = []

    def fails_once(arguments: dict[str, Any]) -> str:
        attempts.append(arguments["q"])
        return "found" if len(attempts) > 1 else refuses(arguments)

    call = tool_call_reply(("stock", {"q": "x"}))
    result = run_with_replies(call, call, FAILED, tools=(a_tool("stock", fails_once),)).go()

    assert result.error == "no figures"


def test_a_reason_that_has_the_error_of_the_tool_is_unchanged() -> None:
    reply = json_reply(
        envelope(
            None,
            status="failed",
            problem="The stock database db-7 refused the connection twice.",
            claims=[],
        )
    )
    run = run_with_replies(
        tool_call_reply(("stock", {"q": "x"})), reply, tools=(a_tool("stock", refuses),)
    )

    assert run.go().error == "The stock database db-7 refused the connection twice."


def test_a_long_reason_leaves_room_for_the_error_of_the_tool() -> None:
    long = json_reply(envelope(None, status="failed", problem="no " * 400, claims=[]))
    run = run_with_replies(
        tool_call_reply(("stock", {"q": "x"})), long, tools=(a_tool("stock", refuses),)
    )

    assert (run.go().error or "").endswith("db-7 refused the connection")


def test_a_failure_of_the_offline_model_has_the_last_error_of_a_tool() -> None:
    schema = {"type": "object", "properties": {"query": {}, "limit": {}}}
    search = replace(a_tool("search_documents", refuses), input_schema=schema)
    handoff = a_handoff(expected_output_format={"type": "number"})
    model = Models(Settings(offline=True)).get_model("offline")
    loaded = LoadedPayloads(manifest=a_manifest(**TEXTS)[0])
    run = Run(lambda _call: answer_reply(), handoff, (search,), loaded=loaded, model=model)
    result = run.go()

    assert result.status is ResultStatus.FAILED
    assert "no value was found for the answer itself" in (result.error or "")
    assert "the tool search_documents: stock database db-7 refused the connection" in (
        result.error or ""
    )


@pytest.mark.parametrize(
    "copied",
    [
        LAST_TURN,
        f"\n\n{build_too_long_prompt(0)}\n",
        f"{LAST_TURN}\n{build_too_long_prompt(0)}",
        LAST_TURN.replace("call", "answer"),
        f"{CUT_CALL}er",
    ],
)
def test_an_answer_that_copies_the_messages_of_the_agent_is_not_an_answer(copied: str) -> None:
    marks_alone = text_reply("\n\n#" * 9, stop_reason="max_tokens")
    replies = (marks_alone, text_reply(copied))
    result = run_with_replies(*replies, tools=(LOOK,), handoff=TWO_TURNS).go()
    assert (result.status, result.output) == (ResultStatus.FAILED, None)
    assert result.error == "the answer only repeats its instructions"


def test_an_answer_may_keep_the_words_that_a_message_of_the_agent_quotes() -> None:
    statement = "Qdrant has been written in Go since 2021."
    wrong = f'{statement} [c1]\n\n<notes>\n[c1] qdrant.md: "{statement}"\n</notes>'
    replies = (text_reply(wrong), text_reply(statement))
    markdown = a_handoff(expected_output_format={"type": "string"})
    run = run_with_replies(*replies, tools=(LOOK,), handoff=markdown)
    result = run.go()
    assert statement in last_message(run)[-1]["text"]
    assert (result.status, result.output) == (ResultStatus.OK, statement)


def test_a_model_without_tools_is_not_told_about_its_last_turn() -> None:
    run = run_with_replies(Reply(), answer_reply(), handoff=TWO_TURNS)
    assert run.go().status is ResultStatus.OK
    assert [block["text"] for block in last_message(run)[1:]] == [EMPTY]
