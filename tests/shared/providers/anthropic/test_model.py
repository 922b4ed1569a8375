"""AnthropicModel works over HTTP with a server that shows every known fault."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from handoff_queue.shared.agent.prices import CONTAINER_MICROUSD
from handoff_queue.shared.providers.anthropic.request import (
    MAX_CACHE_BREAKPOINTS,
    build_request,
)
from handoff_queue.shared.types.errors import (
    Draining,
    LimitReached,
    ModelBusy,
    ModelRejected,
    ModelUnreachable,
    NeverSent,
)
from handoff_queue.shared.types.model import CallProgress, Effort, ModelCall, SystemPrompt, Thinking
from handoff_queue.testing import (
    MessagesServer,
    Reply,
    error_reply,
    in_turn,
    text_reply,
    tool_call_reply,
)
from tests.doubles.served_model import model_at
from tests.shared.agent.scripted_server import CALL, TOOL, Serve, ignore, model_error_of


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
def test_a_call_that_would_fail_again_is_rejected(serve: Serve, status: int) -> None:
    error = model_error_of(
        serve, error_reply(status, "key sk-canary-0123456789 is bad", "authentication_error")
    )
    assert isinstance(error, ModelRejected)
    assert error.status == status


def test_a_bad_key_names_its_remedy(serve: Serve) -> None:
    assert "set ANTHROPIC_API_KEY" in str(model_error_of(serve, error_reply(401)))


@pytest.mark.parametrize("status", [403, 404])
def test_an_error_about_a_model_names_the_model_and_its_remedies(serve: Serve, status: int) -> None:
    error = str(model_error_of(serve, error_reply(status)))
    assert error.startswith(f"{CALL.model}: the ")
    assert "model" in error.partition(": the ")[2]
    assert "specialist's file" in error


def test_a_model_that_refuses_code_execution_names_its_remedy(serve: Serve) -> None:
    refusal = "tools.0: this model does not support code_execution_20260521"
    model, _ = serve(in_turn(error_reply(400, refusal)))
    tool = {"type": "code_execution_20260521", "name": "code_execution"}

    with pytest.raises(ModelRejected, match="needs a model with code execution: name another"):
        model.reply(replace(CALL, tools=(tool,)), ignore)


@pytest.mark.parametrize(
    ("refusal", "left"),
    [
        ("output_config.effort: this model does not support effort", {"thinking"}),
        ("thinking: adaptive thinking is not supported on this model", {"effort"}),
    ],
)
def test_a_call_with_an_option_that_the_model_lacks_is_made_again_at_once_without_it(
    serve: Serve, refusal: str, left: set[str]
) -> None:
    """The refused request costs the handoff no turn, which may be its only one."""
    model, server = serve(in_turn(error_reply(400, refusal), text_reply("Hello.")))
    call = replace(CALL, effort=Effort.LOW, thinking=Thinking.ADAPTIVE)

    with capture_logs() as lines:
        reply = model.reply(call, ignore)

    assert reply.content[0]["text"] == "Hello."

    (option,) = {"effort", "thinking"} - left
    assert [(line["event"], line["model"], line["option"]) for line in lines] == [
        ("an option that the model lacks was left out", CALL.model, option)
    ]
    first, second = server.requests
    assert first["output_config"]["effort"] == "low"
    assert first["thinking"] == {"type": "adaptive"}
    sent = {"effort"} & {*second.get("output_config", {})} | {"thinking"} & {*second}
    assert sent == left


def test_a_server_without_a_cache_for_an_hour_gets_the_usual_marks(serve: Serve) -> None:
    refusal = "system.0.cache_control.ephemeral.ttl: Extra inputs are not permitted"
    model, server = serve(in_turn(error_reply(400, refusal), text_reply("Hello.")))
    call = replace(CALL, caches_for_1h=True)

    model.reply(call, ignore)

    marks = [request["system"][0]["cache_control"] for request in server.requests]
    assert marks == [{"type": "ephemeral", "ttl": "1h"}, {"type": "ephemeral"}]


@pytest.mark.parametrize("status", [429, 529])
def test_a_busy_server_may_give_a_retry_after(serve: Serve, status: int) -> None:
    error = model_error_of(serve, error_reply(status, retry_after="7"))
    assert isinstance(error, ModelBusy)
    assert error.retry_after_s == 7


@pytest.mark.parametrize("header", ["nan", "inf", "-inf", "soon"])
def test_an_invalid_retry_after_means_no_wait(serve: Serve, header: str) -> None:
    assert model_error_of(serve, error_reply(429, retry_after=header)).retry_after_s is None


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
def test_a_failing_server_is_unreachable(serve: Serve, status: int) -> None:
    error = model_error_of(
        serve,
        Reply(
            status=status, body="<html>Bad gateway</html>", headers={"content-type": "text/html"}
        ),
    )
    assert isinstance(error, ModelUnreachable)
    assert error.status == status
    assert "html" not in str(error)


def test_an_error_body_without_its_outer_object_is_read(serve: Serve) -> None:
    assert "too many tokens" in str(
        model_error_of(serve, Reply(status=422, body='{"error": {"message": "too many tokens"}}'))
    )


@pytest.mark.parametrize("events", [0, 1, 3, 5])
def test_a_stream_cut_in_the_middle_is_unreachable(serve: Serve, events: int) -> None:
    assert isinstance(
        model_error_of(serve, text_reply("A text that never ends well", cut_after_events=events)),
        ModelUnreachable,
    )


def test_the_text_of_a_broken_stream_is_known_before_the_break(
    serve: Serve,
) -> None:
    model, _ = serve(in_turn(text_reply("A text that never ends well", cut_after_events=5)))
    reports: list[CallProgress] = []
    with pytest.raises(ModelUnreachable):
        model.reply(CALL, reports.append)

    assert reports[-1].text == "A text that never ends w"


@pytest.mark.parametrize(
    "garbage",
    [
        'event: message_start\ndata: {"type": "message_start", "mess\n\n',
        "event: content_block_delta\ndata: []\n\n",
        'event: content_block_delta\ndata: {"type": "content_block_delta", "delta": 7}\n\n',
        (
            'event: content_block_start\ndata: {"type": "content_block_start", "index": 0,'
            ' "content_block": null}\n\n'
        ),
    ],
)
def test_a_stream_of_garbage_is_unreachable(serve: Serve, garbage: str) -> None:
    assert isinstance(
        model_error_of(serve, text_reply("x", raw_events=(garbage,))), ModelUnreachable
    )


@pytest.mark.parametrize("body", ["", "not json", "[]", '{"content": null}', '{"type": "message"}'])
def test_garbage_instead_of_a_stream_is_unreachable(serve: Serve, body: str) -> None:
    assert isinstance(model_error_of(serve, Reply(body=body)), ModelUnreachable)


def test_an_error_event_in_a_stream_is_reported_by_its_type(serve: Serve) -> None:
    event = (
        'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message":'
        ' "later"}}\n\n'
    )
    assert isinstance(model_error_of(serve, text_reply("x", raw_events=(event,))), ModelBusy)


def test_silence_is_unreachable_after_the_time_out(serve: Serve) -> None:
    never = threading.Event()
    call = ModelCall(
        model="m",
        system=SystemPrompt("s"),
        messages=CALL.messages,
        max_output_tokens=1,
        timeout_s=0.2,
    )
    error = model_error_of(serve, text_reply("x", stall=never, stall_before_headers=True), call)
    never.set()
    assert isinstance(error, ModelUnreachable)


def test_no_server_at_all_was_certainly_not_paid() -> None:
    with MessagesServer(lambda _request: text_reply("x")) as server:
        url = server.url
    with model_at(url) as model, pytest.raises(NeverSent):
        model.reply(CALL, ignore)


@pytest.mark.parametrize("before_headers", [True, False])
def test_a_silent_server_can_be_left_at_any_moment(serve: Serve, before_headers: bool) -> None:
    never = threading.Event()
    model, _ = serve(
        in_turn(text_reply("Some text", stall=never, stall_before_headers=before_headers))
    )
    reports = 0

    def drain_at_the_third(_progress: CallProgress) -> None:
        nonlocal reports
        reports += 1
        if reports >= 3:
            raise Draining("stop")

    with pytest.raises(Draining):
        model.reply(CALL, drain_at_the_third)
    never.set()


def test_the_text_before_a_silence_is_known_during_it(serve: Serve) -> None:
    go_on = threading.Event()
    model, _ = serve(in_turn(text_reply("Some text that takes its time", stall=go_on)))

    def go_on_once_all_words_are_known(progress: CallProgress) -> None:
        if progress.text == "Some text that takes its time":
            go_on.set()

    model.reply(replace(CALL, progress_s=5.0), go_on_once_all_words_are_known)
    assert go_on.is_set()


def test_a_limit_that_a_report_raises_passes_through(serve: Serve) -> None:
    def too_late(_progress: CallProgress) -> None:
        raise LimitReached("deadline")

    never = threading.Event()
    model, _ = serve(
        in_turn(text_reply("Some text" * 100, stall=never))
    )  # otherwise the model would return the complete reply
    with pytest.raises(LimitReached):
        model.reply(CALL, too_late)
    never.set()


def test_a_server_that_ignores_streaming_is_understood(serve: Serve) -> None:
    model, _ = serve(in_turn(text_reply("whole", as_json=True)))
    assert model.reply(CALL, ignore).content == ({"type": "text", "text": "whole"},)


def test_arguments_that_were_cut_stay_text(serve: Serve) -> None:
    model, _ = serve(
        in_turn(
            Reply(
                blocks=({"type": "tool_use", "id": "t", "name": "look", "input": '{"a": "b'},),
                stop_reason="max_tokens",
            )
        )
    )
    assert model.reply(CALL, ignore).content[0]["input"] == '{"a": "b'


def test_blocks_of_unknown_types_are_kept_unchanged(serve: Serve) -> None:
    block = {"type": "something_new", "data": {"x": [1]}}
    model, _ = serve(in_turn(Reply(blocks=(block,))))
    assert model.reply(CALL, ignore).content == (block,)


def test_the_stable_prefix_is_cached(serve: Serve) -> None:
    model, server = serve(in_turn(text_reply("x")))
    model.reply(CALL, ignore)
    request = server.requests[0]
    assert request["system"] == [
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    ]
    assert request["stream"] is True


@pytest.mark.parametrize("caches_handoff_rules", [True, False])
def test_the_part_that_only_some_handoffs_have_is_cached_if_the_prompt_says_so(
    caches_handoff_rules: bool,
) -> None:
    system = SystemPrompt("Be brief.", "\nKeep marks.", caches_handoff_rules=caches_handoff_rules)
    common, handoff_rules = build_request(replace(CALL, system=system))["system"]

    assert (common["text"], handoff_rules["text"]) == ("Be brief.", "\nKeep marks.")
    assert common["cache_control"] == {"type": "ephemeral"}
    assert ("cache_control" in handoff_rules) is caches_handoff_rules


@pytest.mark.parametrize(
    ("options", "is_cached"),
    [
        ({"tools": (TOOL,)}, True),
        ({"tools": (TOOL,), "may_call_tools": False}, False),
        ({"tools": ()}, False),
        ({"tools": (TOOL,), "is_summary": True}, False),
    ],
)
def test_the_end_is_cached_only_for_an_agent_whose_next_turn_repeats_it(
    options: dict[str, Any], is_cached: bool
) -> None:
    call = replace(CALL, **options)
    last = build_request(call)["messages"][-1]["content"]
    assert ("cache_control" in last[-1]) is is_cached


@pytest.mark.parametrize("calls", [1, 30])
@pytest.mark.parametrize("ends_with", ["user", "assistant"])
def test_a_request_has_a_mark_where_the_last_request_ended(calls: int, ends_with: str) -> None:
    """The provider looks for a cached prefix in the 20 blocks before a mark only."""
    opening = [{"type": "text", "text": "The task."}, {"type": "text", "text": "A summary."}]
    messages: list[dict[str, Any]] = [{"role": "user", "content": opening}]
    for turn in range(3):
        ids = [f"toolu_{turn}_{number}" for number in range(calls)]
        reply = [{"type": "tool_use", "id": id_, "name": "look", "input": {}} for id_ in ids]
        results = [{"type": "tool_result", "tool_use_id": id_, "content": "x"} for id_ in ids]
        messages.append({"role": "assistant", "content": reply})
        messages.append({"role": "user", "content": results})
    if ends_with == "assistant":  # the provider has paused the turn
        messages.append({"role": "assistant", "content": [{"type": "text", "text": "I search."}]})
    system = SystemPrompt("Be brief.", "\nKeep marks.", caches_handoff_rules=True)

    request = build_request(replace(CALL, system=system, messages=tuple(messages), tools=(TOOL,)))

    end_of_last = -3 if ends_with == "user" else -2
    marked = [block for block in request["system"] if "cache_control" in block]
    for message in request["messages"]:
        marked += [block for block in message["content"] if "cache_control" in block]
    assert request["messages"][end_of_last]["content"][-1] in marked
    assert request["messages"][-1]["content"][-1] in marked
    assert len(marked) == MAX_CACHE_BREAKPOINTS


def test_the_first_of_several_opening_blocks_is_cached() -> None:
    blocks = [{"type": "text", "text": "All jobs."}, {"type": "text", "text": "This job."}]
    message = {"role": "user", "content": blocks}
    (opening,) = build_request(replace(CALL, messages=(message,), tools=()))["messages"]
    assert [block.get("cache_control") for block in opening["content"]] == [
        {"type": "ephemeral"},
        None,
    ]


def test_schemas_that_can_be_strict_are(serve: Serve) -> None:
    model, server = serve(in_turn(text_reply("x")))
    model.reply(CALL, ignore)
    assert server.requests[0]["tools"][0]["strict"] is True
    assert server.requests[0]["output_config"]["format"]["schema"]["additionalProperties"] is False


def test_a_free_form_schema_is_described_in_the_prompt(serve: Serve) -> None:
    model, server = serve(in_turn(text_reply("x")))
    free = {"type": "object", "properties": {"output": {"type": "object"}}}
    model.reply(
        ModelCall(
            model="m",
            system=SystemPrompt("s"),
            messages=CALL.messages,
            max_output_tokens=1,
            output_schema=free,
        ),
        ignore,
    )
    assert "output_config" not in server.requests[0]
    assert "JSON Schema" in server.requests[0]["system"][1]["text"]


def test_a_server_that_refuses_strictness_is_asked_plainly(serve: Serve) -> None:
    model, server = serve(
        in_turn(
            error_reply(400, "output_config: unknown field", "invalid_request_error"),
            text_reply("x"),
        )
    )
    model.reply(CALL, ignore)
    assert "output_config" not in server.requests[1]
    assert "strict" not in server.requests[1]["tools"][0]


def test_tools_that_may_not_be_called_stay_defined(serve: Serve) -> None:
    model, server = serve(in_turn(text_reply("x")))
    model.reply(
        ModelCall(
            model="m",
            system=SystemPrompt("s"),
            messages=CALL.messages,
            max_output_tokens=1,
            tools=(TOOL,),
            may_call_tools=False,
        ),
        ignore,
    )
    assert server.requests[0]["tool_choice"] == {"type": "none"}
    assert server.requests[0]["tools"]


@pytest.mark.parametrize(
    ("breakdown", "for_1h"), [({}, 700), ({"ephemeral_1h_input_tokens": 500}, 500)]
)
def test_cached_tokens_without_a_time_have_the_time_of_the_request(
    serve: Serve, breakdown: dict[str, int], for_1h: int
) -> None:
    usage: dict[str, Any] = {
        "input_tokens": 9,
        "output_tokens": 1,
        "cache_creation_input_tokens": 700,
    }
    if breakdown:
        usage["cache_creation"] = breakdown
    model, _ = serve(lambda _request: text_reply("x", usage=usage))

    for_an_hour = model.reply(replace(CALL, caches_prefix_for_1h=True), ignore)
    assert for_an_hour.usage.cache_write_1h_tokens == for_1h
    for_5_minutes = model.reply(CALL, ignore)
    assert for_5_minutes.usage.cache_write_1h_tokens == (for_1h if breakdown else 0)


def test_a_stream_without_usage_at_its_end_has_no_known_output(serve: Serve) -> None:
    """The figure at the beginning of a stream is not final."""
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}
    part = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    raw = "".join(f"data: {json.dumps(event)}\n\n" for event in (start, part, end))
    stop = 'data: {"type": "message_stop"}\n\n'
    model, _ = serve(in_turn(Reply(raw_events=(raw, stop), cut_after_events=0)))
    reports: list[CallProgress] = []

    reply = model.reply(CALL, reports.append)

    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (9, 0)
    assert not any(report.is_usage_final for report in reports)


def test_searches_by_the_server_have_a_price(serve: Serve) -> None:
    model, _ = serve(
        in_turn(
            text_reply(
                "x",
                usage={
                    "input_tokens": 1,
                    "output_tokens": 1,
                    "server_tool_use": {"web_search_requests": 2},
                },
            )
        )
    )
    assert model.reply(CALL, ignore).usage.cost_microusd == 20_000


@pytest.mark.parametrize("kind", ["", "bash_", "text_editor_"])
def test_code_that_the_provider_ran_costs_one_container(serve: Serve, kind: str) -> None:
    call = {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": f"{kind}code_execution",
        "input": {"code": "print(2)"},
    }
    result = {
        "type": f"{kind}code_execution_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": {"type": "code_execution_result", "stdout": "2", "return_code": 0},
    }
    usage = {"input_tokens": 1, "output_tokens": 1}
    blocks = (call, result, {**call, "id": "srvtoolu_2"}, {"type": "text", "text": "It is 2."})
    model, _ = serve(lambda _request: Reply(blocks=blocks, usage=usage))

    reply = model.reply(CALL, ignore)

    assert reply.usage.cost_microusd == CONTAINER_MICROUSD
    assert reply.content == blocks


def test_many_threads_share_one_client(serve: Serve) -> None:
    model, _ = serve(lambda request: tool_call_reply(("look", {"a": request["system"][0]["text"]})))
    outcomes: dict[str, str] = {}

    def ask(name: str) -> None:
        call = ModelCall(
            model="m", system=SystemPrompt(name), messages=CALL.messages, max_output_tokens=1
        )
        outcomes[name] = model.reply(call, ignore).content[0]["input"]["a"]

    threads = [threading.Thread(target=ask, args=(str(n),)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {str(n): str(n) for n in range(16)}
