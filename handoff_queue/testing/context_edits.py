"""Context editing and compaction of a `MessagesServer`, as in two betas of the Messages API.

`context-management-2025-06-27` clears old results of tools from a request before the script sees
it. `compact-2026-09-04` puts the script's text into a signed summary, which a later request sends
back as its first block. Sources: the beta types of the installed `anthropic` package, its errors
about compaction, and the published pages about both betas.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from handoff_queue.testing.replies import Json, Reply
from handoff_queue.testing.request_rules import get_blocks

PLACEHOLDER = "[old result of a tool: cleared]"
"""Text in place of a result that the server has cleared."""
CHARS_PER_TOKEN = 4
"""Characters of a request's JSON for each token that the server counts."""
CLEAR_TOOL_USES = "clear_tool_uses_20250919"
MAX_INSTRUCTIONS_CHARS = 16_384
EDIT_FIELDS = frozenset("type trigger keep clear_at_least clear_tool_inputs exclude_tools".split())
"""Fields of the edit: those of `BetaClearToolUses20250919EditParam`."""
COMPACTION_FIELDS = frozenset({"type", "instructions"})
"""Fields of `compaction`: those of `BetaCompactionConfigParam`."""
_AMOUNTS = {
    "trigger": ("input_tokens", "tool_uses"),
    "keep": ("tool_uses",),
    "clear_at_least": ("input_tokens",),
}
"""Fields of an edit with an amount, and the types of the amount."""
_DEFAULTS = {"trigger": 100_000, "keep": 3, "clear_at_least": 0}


def count_tokens(request: Json) -> int:
    """Return the input tokens of a request, by the length of its JSON."""
    parts = [request.get("system", ""), request.get("tools", []), request["messages"]]
    return len(json.dumps(parts, ensure_ascii=False)) // CHARS_PER_TOKEN


def find_edit_violations(request: Json) -> Iterator[str]:
    """Yield broken rules of `context_management`."""
    if "context_management" not in request:
        return
    where = "context_management"
    config = request[where]
    edits = config.get("edits", []) if isinstance(config, dict) else None
    if not isinstance(config, dict) or config.keys() - {"edits"} or not isinstance(edits, list):
        yield f"{where}: Input should be an object with `edits`"
        return
    for place, edit in enumerate(edits):
        yield from _check_edit(f"{where}.edits.{place}", edit)


def _check_edit(where: str, edit: Any) -> Iterator[str]:
    if not isinstance(edit, dict) or edit.get("type") != CLEAR_TOOL_USES:
        yield f"{where}: this server has no other edit than {CLEAR_TOOL_USES!r}"
        return
    for name in sorted(edit.keys() - EDIT_FIELDS):
        yield f"{where}.{name}: Extra inputs are not permitted"
    for name, kinds in _AMOUNTS.items():
        amount = edit.get(name)
        if amount is None and (name == "clear_at_least" or name not in edit):
            continue
        if not isinstance(amount, dict) or amount.keys() != {"type", "value"}:
            yield f"{where}.{name}: Input should be an object with `type` and `value`"
        elif amount["type"] not in kinds:
            yield f"{where}.{name}.type: Input should be {' or '.join(kinds)}"
        elif type(amount["value"]) is not int or amount["value"] < 0:
            yield f"{where}.{name}.value: Input should be a valid integer"
    names = edit.get("exclude_tools") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        yield f"{where}.exclude_tools: Input should be a valid list"
    if edit.get("clear_tool_inputs"):
        yield f"{where}.clear_tool_inputs: this server clears results only"


def with_edits(request: Json) -> tuple[Json, Json | None]:
    """Return the request as the model reads it, and the report about its edits. The report is None
    if the request asks for none.
    """
    config = request.get("context_management")
    if config is None:
        return request, None
    applied_edits: list[Json] = []
    for edit in config.get("edits", []):
        if edit["type"] != CLEAR_TOOL_USES:  # other programs ask for edits of thinking
            continue
        messages, calls = _clear_old_results(request, edit)
        shorter = {**request, "messages": messages}
        freed_tokens = count_tokens(request) - count_tokens(shorter)
        if _is_due(request, edit) and calls and freed_tokens >= _get_amount(edit, "clear_at_least"):
            request = shorter
            report = {"cleared_tool_uses": calls, "cleared_input_tokens": freed_tokens}
            applied_edits.append({"type": CLEAR_TOOL_USES, **report})
    return request, {"applied_edits": applied_edits}


def _is_due(request: Json, edit: Json) -> bool:
    """Return whether a request has reached the trigger of an edit."""
    trigger = edit.get("trigger") or {"type": "input_tokens"}
    if trigger["type"] == "tool_uses":
        return len(_find_clearable_calls(request, edit)) > _get_amount(edit, "trigger")
    return count_tokens(request) > _get_amount(edit, "trigger")


def _get_amount(edit: Json, name: str) -> int:
    amount = edit.get(name) or {}
    return int(amount.get("value", _DEFAULTS[name]))


def _find_clearable_calls(request: Json, edit: Json) -> list[str]:
    """Return the ids of the calls that an edit may clear, oldest first."""
    excluded_tools = edit.get("exclude_tools") or ()
    ids: list[str] = []
    for message in request["messages"]:
        for block in get_blocks(message):
            if block["type"] == "tool_use" and block["name"] not in excluded_tools:
                ids.append(str(block["id"]))
    return ids


def _clear_old_results(request: Json, edit: Json) -> tuple[list[Json], int]:
    """Return the messages without all results but the newest, and the number of their calls."""
    ids = _find_clearable_calls(request, edit)
    old = set(ids[: max(0, len(ids) - _get_amount(edit, "keep"))])
    messages: list[Json] = []
    for message in request["messages"]:
        blocks: list[Json] = []
        for block in get_blocks(message):
            is_old = block["type"] == "tool_result" and block["tool_use_id"] in old
            blocks.append({**block, "content": PLACEHOLDER} if is_old else block)
        messages.append({**message, "content": blocks})
    return messages, len(old)


def find_compaction_violations(request: Json) -> Iterator[str]:
    """Yield broken rules of `compaction`."""
    if "compaction" not in request:
        return
    config = request["compaction"]
    if not isinstance(config, dict) or config.get("type") != "summarize":
        yield "compaction.type: Input should be 'summarize'"
        return
    for name in sorted(config.keys() - COMPACTION_FIELDS):
        yield f"compaction.{name}: Extra inputs are not permitted"
    instructions = config.get("instructions") or ""
    if not isinstance(instructions, str) or len(instructions) > MAX_INSTRUCTIONS_CHARS:
        yield f"compaction.instructions: at most {MAX_INSTRUCTIONS_CHARS} characters"
    for name in ("context_management", "stop_sequences"):
        if name in request:
            yield f"compaction: cannot be combined with {name}"
    if "format" in request.get("output_config", {}):
        yield "compaction: cannot be combined with output_config.format"
    if request.get("tool_choice", {}).get("type") in ("any", "tool"):
        yield "compaction: cannot be combined with a forced tool_choice"
    if request["messages"][-1]["role"] == "assistant":
        yield "compaction: the conversation ends on a turn that is not finished"


class Compactions:
    """The signed summaries of one server. Safe to use from many threads."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def as_summary(self, reply: Reply) -> Reply:
        """Return the reply to a request with `compaction`: the text of a reply of the script as
        one signed block. Its tokens are in `usage.iterations` alone. An error, and a reply without
        text, stay without a block.
        """
        if reply.body is not None:
            return reply
        text = "".join(str(block.get("text", "")) for block in reply.blocks)
        usage = {
            "input_tokens": 0,
            "output_tokens": 0,
            "iterations": [{"type": "compaction", **reply.usage}],
        }
        if not text.strip():
            return replace(reply, blocks=(), usage=usage)
        block = {"type": "compaction", "content": text, "signature": self._sign_text(text)}
        return replace(reply, blocks=(block,), stop_reason="compaction", usage=usage)

    def find_violations(self, request: Json) -> Iterator[str]:
        """Yield faults of the summaries in a request: their place, number and signature."""
        places: list[tuple[int, int, Json]] = []
        for place, message in enumerate(request["messages"]):
            for index, block in enumerate(get_blocks(message)):
                if block["type"] == "compaction":
                    places.append((place, index, block))
        if len(places) > 1:
            yield "messages: more than one `compaction` block; send the last one"
        for place, index, block in places:
            if (place, index) != (0, 0):
                yield f"messages.{place}.content.{index}: a `compaction` block must be the first"
            signature = str(block.get("signature", ""))
            expected = self._sign_text(str(block.get("content")))
            if not hmac.compare_digest(signature.encode(), expected.encode()):
                yield "messages: compaction block content does not match its signature"

    def _sign_text(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()[:32]


def get_capabilities(model: str, *, has_edits: bool) -> Mapping[str, Any]:
    """Return the facts about a model, as `BetaModelInfo` of the SDK has them, as far as they are
    about edits of requests.
    """
    support = {"supported": has_edits}
    return {
        "id": model,
        "type": "model",
        "capabilities": {
            "compaction": {**support, "summarize": support},
            "context_management": {**support, CLEAR_TOOL_USES: support},
        },
    }
