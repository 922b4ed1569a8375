"""AnthropicModel finds out which edits of requests a server offers, asks for them, and reads what
the server reports about them.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

import anthropic
from handoff_queue.shared.providers import model_facts
from handoff_queue.shared.providers.anthropic import model as anthropic_model
from handoff_queue.shared.providers.anthropic.model import AnthropicModel
from handoff_queue.shared.runtime.models import Models
from handoff_queue.shared.settings.settings import OFFLINE_MODEL, Settings
from handoff_queue.shared.types.context_edits import CLEARING_BETA, COMPACTION_BETA, ContextEdit
from handoff_queue.shared.types.errors import ContextEditRejected
from handoff_queue.shared.types.model import ModelCall, ProviderClearing
from handoff_queue.testing import Reply, error_reply, in_turn, text_reply
from handoff_queue.testing.context_edits import CLEAR_TOOL_USES
from tests.doubles.served_model import model_at
from tests.shared.agent.scripted_server import CALL, Serve, ignore
from tests.workers.tools.servers import Page, serving

MODEL = CALL.model
PATH = f"/v1/models/{MODEL}"
BOTH = frozenset(ContextEdit)
CLEARED = replace(CALL, clearing=ProviderClearing(at_tokens=9_000, keep=4, at_least=1_000))
SUMMARIZED = replace(CALL, compaction="Be brief.", output_schema=None)


def test_the_capabilities_of_a_model_are_asked_for_once(serve: Serve) -> None:
    model, server = serve(in_turn(text_reply("Hello.")))
    assert model.get_context_edits(MODEL) == BOTH
    server.has_edits = False
    assert model.get_context_edits(MODEL) == BOTH
    assert model.get_context_edits("other") == frozenset()


@pytest.mark.parametrize(
    ("page", "questions"),
    [
        (Page(status=404), 1),
        (Page(b"<html>", "text/html"), 1),
        (Page(b"<html>", "application/json"), 1),
        (Page(b'{"capabilities": []}', "application/json"), 1),
        (Page(b'{"capabilities": {"compaction": {"summarize": 1}}}', "application/json"), 1),
        (Page(status=401), 2),
        (Page(status=529), 2),
        (Page(b"{}" * 1_000, "application/json", hangs=True), 2),
    ],
)
def test_a_server_that_names_no_edits_has_none(
    page: Page, questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most gateways have no Models API. After a passing error, the server is asked again."""
    monkeypatch.setattr(anthropic_model, "AGAIN_AFTER_S", 0.0)
    monkeypatch.setattr(model_facts, "WITHIN_S", 0.5 if page.hangs else 5.0)
    with serving({PATH: page}) as server, model_at(f"http://127.0.0.1:{server.port}") as model:
        assert model.get_context_edits(MODEL) == frozenset()
        assert model.get_context_edits(MODEL) == frozenset()
    assert len(server.requests) == questions


def test_a_server_that_cannot_be_reached_has_no_edits() -> None:
    with model_at("http://127.0.0.1:9") as model:
        assert model.get_context_edits(MODEL) == frozenset()


def test_a_question_about_edits_has_the_headers_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = "X-Team: red\nanthropic-beta: context-1m-2025-08-07"
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", own)
    with serving({}) as server, model_at(f"http://127.0.0.1:{server.port}") as model:
        model.get_context_edits(MODEL)
    (headers,) = server.request_headers
    assert (headers["X-Team"], headers["X-Api-Key"]) == ("red", "sk-canary-0123456789")
    assert headers["Anthropic-Beta"] == f"context-1m-2025-08-07,{COMPACTION_BETA}"


def test_a_question_about_edits_follows_no_redirect() -> None:
    with serving({}) as other:
        page = Page(status=302, headers={"Location": f"http://127.0.0.1:{other.port}/"})
        with serving({PATH: page}) as server, model_at(f"http://127.0.0.1:{server.port}") as model:
            assert model.get_context_edits(MODEL) == frozenset()
    assert other.requests == []


def test_turns_do_not_wait_again_for_a_server_that_does_not_answer() -> None:
    page = Page(status=529)
    with serving({PATH: page}) as server, model_at(f"http://127.0.0.1:{server.port}") as model:
        for _ in range(3):
            assert model.get_context_edits(MODEL) == frozenset()
    assert len(server.requests) == 1


def test_threads_that_begin_together_ask_a_server_that_hangs_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_facts, "WITHIN_S", 0.5)
    page = Page(b"{}" * 1_000, "application/json", hangs=True)
    with serving({PATH: page}) as server, model_at(f"http://127.0.0.1:{server.port}") as model:
        with ThreadPoolExecutor(8) as threads:
            edits = list(threads.map(model.get_context_edits, [MODEL] * 8))
        assert edits == [frozenset()] * 8
    assert len(server.requests) == 1


def test_bedrock_has_no_edits() -> None:
    client = anthropic.AsyncAnthropicBedrock(
        aws_region="eu-west-1", aws_access_key="a", aws_secret_key="s"
    )
    assert AnthropicModel(client).get_context_edits(MODEL) == frozenset()


def test_the_offline_model_has_no_edits() -> None:
    assert not Models(Settings(offline=True)).get_context_edits(OFFLINE_MODEL)


def test_a_clearing_is_one_edit_that_leaves_the_providers_own_tools_alone(serve: Serve) -> None:
    model, server = serve(in_turn(text_reply("Hello.")))
    search: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search"}
    model.reply(replace(CLEARED, tools=(*CALL.tools, search)), ignore)
    assert server.requests[0]["context_management"] == {
        "edits": [
            {
                "type": CLEAR_TOOL_USES,
                "trigger": {"type": "input_tokens", "value": 9_000},
                "keep": {"type": "tool_uses", "value": 4},
                "clear_at_least": {"type": "input_tokens", "value": 1_000},
                "exclude_tools": ["web_search"],
            }
        ]
    }
    assert server.headers[0]["anthropic-beta"] == CLEARING_BETA


def test_betas_of_the_user_stay_in_the_header(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "anthropic-beta: context-1m-2025-08-07")
    model, server = serve(in_turn(text_reply("Hello.")))
    model.reply(SUMMARIZED, ignore)
    assert server.headers[0]["anthropic-beta"] == f"context-1m-2025-08-07,{COMPACTION_BETA}"


@pytest.mark.parametrize("as_json", [False, True])
def test_the_report_about_cleared_results_is_read(serve: Serve, *, as_json: bool) -> None:
    model, server = serve(in_turn(text_reply("Hello.")))
    edits = [
        {"type": CLEAR_TOOL_USES, "cleared_tool_uses": 7, "cleared_input_tokens": 900},
        {"type": "clear_thinking_20251015", "cleared_input_tokens": 5},
        "garbage",
    ]
    report = {"applied_edits": edits}
    server.script = lambda _: text_reply("Hello.", context_management=report, as_json=as_json)
    reply = model.reply(CALL, ignore)
    assert (reply.cleared_calls, reply.cleared_tokens) == (7, 900)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_summary_comes_with_all_its_tokens(serve: Serve, *, as_json: bool) -> None:
    usage = {"input_tokens": 40, "cache_read_input_tokens": 900, "output_tokens": 30}
    model, _ = serve(in_turn(text_reply("So far.", usage=usage, as_json=as_json)))
    reply = model.reply(SUMMARIZED, ignore)
    (block,) = reply.content
    assert (block["type"], block["content"]) == ("compaction", "So far.")
    assert block["signature"]
    assert reply.stop_reason == "compaction"
    assert reply.usage.input_tokens == 940
    assert (reply.usage.cache_read_tokens, reply.usage.output_tokens) == (900, 30)


def test_a_summary_in_pieces_is_put_together(serve: Serve) -> None:
    """A stream may send the block empty, and its text as a delta."""
    delta = {"type": "compaction_delta", "content": "So far.", "encrypted_content": "e"}
    block = {"type": "compaction", "content": None, "signature": "s"}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "message_delta", "delta": {"stop_reason": "compaction"}},
        {"type": "message_stop"},
    ]
    lines = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    model, _ = serve(in_turn(Reply(raw_events=(lines,), cut_after_events=0)))
    reply = model.reply(CALL, ignore)
    assert reply.content == ({**block, "content": "So far.", "encrypted_content": "e"},)


@pytest.mark.parametrize(
    ("call", "refusal", "left"),
    [
        (CLEARED, "context_management: Extra inputs are not permitted", ContextEdit.COMPACTION),
        (CLEARED, "Unexpected value(s) `context-management-2025-06-27`", ContextEdit.COMPACTION),
        (SUMMARIZED, "compaction: Extra inputs are not permitted", ContextEdit.CLEARING),
        (SUMMARIZED, "Unexpected value(s) `compact-2026-09-04`", ContextEdit.CLEARING),
    ],
)
def test_an_edit_that_a_server_refuses_is_no_longer_offered(
    serve: Serve, call: ModelCall, refusal: str, left: ContextEdit
) -> None:
    model, _ = serve(in_turn(error_reply(400, refusal), text_reply("Hello.")))
    assert model.get_context_edits(MODEL) == BOTH
    with pytest.raises(ContextEditRejected):
        model.reply(call, ignore)
    assert model.get_context_edits(MODEL) == {left}


def test_two_calls_at_once_may_find_out_that_a_server_refuses_the_same_option(
    serve: Serve,
) -> None:
    """The loop makes both calls again. The second refusal is not an error of the handoff."""
    model, _ = serve(in_turn(error_reply(400, "compaction: Extra inputs are not permitted")))
    for _ in range(2):
        with pytest.raises(ContextEditRejected):
            model.reply(SUMMARIZED, ignore)
