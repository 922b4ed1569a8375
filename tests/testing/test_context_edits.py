"""The test server edits and summarizes requests as two betas of the Messages API do."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import anthropic
import pytest
from anthropic.types import beta

from handoff_queue.testing import MessagesServer, Reply, text_reply
from handoff_queue.testing.context_edits import (
    CLEAR_TOOL_USES,
    COMPACTION_FIELDS,
    EDIT_FIELDS,
    PLACEHOLDER,
    Compactions,
    count_tokens,
    find_compaction_violations,
    find_edit_violations,
    with_edits,
)
from handoff_queue.testing.request_rules import BETA_FIELDS, find_violations, parse_betas

Json = dict[str, Any]
TOOLS = [
    {"name": name, "description": name, "input_schema": {"type": "object", "properties": {}}}
    for name in ("look", "keep")
]
LONG = "x" * 4_000


def request(*names: str, **more: Any) -> Json:
    """Return a request with a call of each of these tools, and a result of 1,000 tokens each."""
    messages: list[Json] = [{"role": "user", "content": "Go."}]
    for number, name in enumerate(names):
        id_ = f"toolu_{number}"
        call = {"type": "tool_use", "id": id_, "name": name, "input": {}}
        result = {"type": "tool_result", "tool_use_id": id_, "content": LONG}
        messages.append({"role": "assistant", "content": [call]})
        messages.append({"role": "user", "content": [result]})
    return {"model": "m", "max_tokens": 99, "tools": TOOLS, "messages": messages, **more}


def clearing(at: int, keep: int = 1, at_least: int | None = None, **more: Any) -> Json:
    edit: Json = {
        "type": CLEAR_TOOL_USES,
        "trigger": {"type": "input_tokens", "value": at},
        "keep": {"type": "tool_uses", "value": keep},
        **more,
    }
    if at_least is not None:
        edit["clear_at_least"] = {"type": "input_tokens", "value": at_least}
    return {"edits": [edit]}


def results_in(shown: Json) -> list[str]:
    texts: list[str] = []
    for message in shown["messages"]:
        if isinstance(message["content"], list):
            texts += [part["content"] for part in message["content"] if "content" in part]
    return texts


def test_edits_of_other_programs_clear_nothing() -> None:
    edit = {"type": "clear_thinking_20251015", "keep": "all"}
    sent = request("look", "look", context_management={"edits": [edit]})
    assert with_edits(sent) == (sent, {"applied_edits": []})


def test_the_oldest_results_are_cleared_from_the_trigger_on() -> None:
    sent = request("look", "look", "look", context_management=clearing(2_000))
    before = deepcopy(sent)
    shown, report = with_edits(sent)
    assert results_in(shown) == [PLACEHOLDER, PLACEHOLDER, LONG]
    assert report is not None
    (applied,) = report["applied_edits"]
    freed = count_tokens(sent) - count_tokens(shown)
    assert applied == {
        "type": CLEAR_TOOL_USES,
        "cleared_tool_uses": 2,
        "cleared_input_tokens": freed,
    }
    assert sent == before, "the request of the client stays"


@pytest.mark.parametrize(
    "config",
    [
        clearing(9_000),
        clearing(2_000, keep=3),
        clearing(2_000, at_least=2_500),
        clearing(2_000, exclude_tools=["look"]),
        {"edits": []},
    ],
)
def test_nothing_is_cleared_below_a_limit(config: Json) -> None:
    sent = request("look", "look", "look", context_management=config)
    assert with_edits(sent) == (sent, {"applied_edits": []})


def test_excluded_tools_are_not_cleared_and_not_counted() -> None:
    config = clearing(2_000, exclude_tools=["keep"])
    shown, report = with_edits(request("keep", "look", "keep", "look", context_management=config))
    assert results_in(shown) == [LONG, PLACEHOLDER, LONG, LONG]
    assert report is not None
    assert report["applied_edits"][0]["cleared_tool_uses"] == 1


def test_a_number_of_calls_can_be_the_trigger() -> None:
    config = clearing(0)
    config["edits"][0]["trigger"] = {"type": "tool_uses", "value": 2}
    _, due = with_edits(request("look", "look", "look", context_management=config))
    _, not_due = with_edits(request("look", "look", context_management=config))
    assert due != not_due == {"applied_edits": []}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([], "Input should be an object"),
        ({"edit": []}, "Input should be an object"),
        ({"edits": [{"type": "compact_20260112"}]}, "this server has no other edit"),
        (clearing(1, keeps=1), "keeps: Extra inputs are not permitted"),
        (clearing(1, keep=-1), "keep.value: Input should be a valid integer"),
        (clearing(1, trigger={"type": "tokens", "value": 1}), "trigger.type: Input should be"),
        (clearing(1, exclude_tools="look"), "exclude_tools: Input should be a valid list"),
        (clearing(1, clear_tool_inputs=True), "clears results only"),
    ],
)
def test_a_wrong_edit_is_refused(config: Any, message: str) -> None:
    lines = list(find_edit_violations(request(context_management=config)))
    assert any(message in line for line in lines), lines


def test_a_good_edit_is_accepted() -> None:
    config = clearing(1, at_least=1, exclude_tools=["keep"], clear_tool_inputs=False)
    assert list(find_edit_violations(request(context_management=config))) == []


SUMMARIZE = {"type": "summarize", "instructions": "Be brief."}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"compaction": {"type": "compact"}}, "compaction.type"),
        ({"compaction": {**SUMMARIZE, "trigger": 1}}, "compaction.trigger: Extra inputs"),
        ({"compaction": {**SUMMARIZE, "instructions": "x" * 20_000}}, "at most 16384"),
        ({"context_management": clearing(1)}, "cannot be combined with context_management"),
        ({"stop_sequences": ["x"]}, "cannot be combined with stop_sequences"),
        ({"output_config": {"format": {}}}, "cannot be combined with output_config.format"),
        ({"tool_choice": {"type": "any"}}, "cannot be combined with a forced tool_choice"),
    ],
)
def test_a_wrong_request_for_a_summary_is_refused(more: Json, message: str) -> None:
    lines = list(find_compaction_violations(request(**{"compaction": SUMMARIZE, **more})))
    assert any(message in line for line in lines), lines


def test_a_summary_is_one_signed_block_whose_tokens_are_an_iteration() -> None:
    compactions = Compactions()
    usage = {"input_tokens": 900, "output_tokens": 30}
    reply = compactions.as_summary(text_reply("So far.", usage=usage))
    (block,) = reply.blocks
    assert (block["type"], block["content"]) == ("compaction", "So far.")
    assert reply.stop_reason == "compaction"
    assert reply.usage == {
        "input_tokens": 0,
        "output_tokens": 0,
        "iterations": [{"type": "compaction", **usage}],
    }
    assert not compactions.as_summary(Reply(stop_reason="refusal")).blocks


def test_a_summary_that_was_changed_moved_or_repeated_is_refused() -> None:
    compactions = Compactions()
    (block,) = compactions.as_summary(text_reply("So far.")).blocks
    task = {"type": "text", "text": "Go."}

    def faults(*content: Json) -> list[str]:
        asked = {"messages": [{"role": "user", "content": list(content)}]}
        return list(compactions.find_violations(asked))

    assert faults(block, task) == []
    assert "does not match its signature" in faults({**block, "content": "Obey."}, task)[0]
    assert "must be the first" in faults(task, block)[0]
    assert "more than one" in faults(block, block)[0]
    assert list(Compactions().find_violations({"messages": [{"role": "user", "content": [block]}]}))


@pytest.mark.parametrize("name", BETA_FIELDS)
def test_a_field_of_a_beta_needs_its_header(name: str) -> None:
    config = {"context_management": clearing(1), "compaction": SUMMARIZE}[name]
    asked = request(**{name: config})
    assert f"{name}: Extra inputs are not permitted" in list(find_violations(asked))
    header = {"anthropic-beta": f"other-2026-01-01, {BETA_FIELDS[name]}"}
    assert list(find_violations(asked, parse_betas(header))) == []


def test_the_known_fields_match_the_installed_sdk() -> None:
    edit = beta.BetaClearToolUses20250919EditParam.__annotations__
    assert edit.keys() == EDIT_FIELDS
    assert beta.BetaCompactionConfigParam.__annotations__.keys() == COMPACTION_FIELDS
    fields = beta.message_create_params.MessageCreateParamsBase.__annotations__
    assert BETA_FIELDS.keys() <= fields.keys()


def test_the_sdk_reads_the_edits_the_summary_and_the_capabilities_of_the_server() -> None:
    with MessagesServer(lambda _: text_reply("So far.")) as server:
        client: Any = anthropic.Anthropic(api_key="sk", base_url=server.url, max_retries=0)
        sent = request("look", "look")
        edited = client.beta.messages.create(
            **sent,
            context_management=clearing(1_000),
            betas=["context-management-2025-06-27"],
        )
        summary = client.beta.messages.create(
            **sent, compaction=SUMMARIZE, betas=["compact-2026-09-04"]
        )
        facts = client.beta.models.retrieve("any")
    (applied,) = edited.context_management.applied_edits
    assert applied.type == CLEAR_TOOL_USES
    assert summary.stop_reason == "compaction"
    assert summary.content[0].type == "compaction"
    assert summary.usage.iterations[0].type == "compaction"
    assert facts.capabilities.compaction.summarize.supported
