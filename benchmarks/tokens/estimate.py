"""An estimate of the tokens of a text, and of the parts of a request."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

Json = dict[str, Any]

_PIECE = re.compile(r" ?[^\W\d_]{1,9}|\d{1,3}| ?[^\w\s]{1,3}|_|\s+")
"""A token of the estimate: at most nine letters or three signs with the space before them, three
digits, or a gap.
"""
SPECIALIST_RULES = "# Rules"
"""Heading of this project's common rules, which end the instructions in a system prompt."""
SPECIALIST_FORM = "# How you answer"
"""Heading of this project's rules for the form of an answer."""


class PartOf(StrEnum):
    """A part of a request."""

    INSTRUCTIONS = "instructions"
    RULES = "common rules"
    SCHEMA = "form and schema"
    TOOLS = "tools"
    HANDOFF = "handoff"
    TOOL_RESULTS = "tool results"
    REPETITION = "repetition"
    """Everything that the previous request of the same conversation contained, and its reply."""


def estimate_tokens(value: Any) -> int:
    """Return the estimated tokens of a text, or of the JSON text of another value."""
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False)
    return len(_PIECE.findall(value))


def estimate_parts(request: Json) -> Counter[PartOf]:
    """Return the tokens of a request by part."""
    counts: Counter[PartOf] = Counter()
    for part, tokens in _estimate_head(request):
        counts[part] += tokens
    messages = request["messages"]
    replies = []
    for n, message in enumerate(messages):
        if message["role"] == "assistant":
            replies.append(n)
    if not replies:
        for message in messages:
            counts[PartOf.HANDOFF] += _estimate_content(message["content"])
        return counts
    counts = Counter({PartOf.REPETITION: counts.total()})
    for number, message in enumerate(messages):
        tokens = _estimate_content(message["content"])
        is_new = number > replies[-1]
        counts[PartOf.TOOL_RESULTS if is_new else PartOf.REPETITION] += tokens
    return counts


def list_system_texts(request: Json) -> list[str]:
    system = request.get("system") or []
    if isinstance(system, str):
        return [system]
    return [str(block.get("text", "")) for block in system]


def _estimate_head(request: Json) -> Iterator[tuple[PartOf, int]]:
    system = "\n\n".join(list_system_texts(request))
    system, form_heading, form = system.partition(SPECIALIST_FORM)
    system, rules_heading, rules = system.partition(SPECIALIST_RULES)
    yield PartOf.INSTRUCTIONS, estimate_tokens(system)
    yield PartOf.RULES, estimate_tokens(rules_heading + rules)
    yield PartOf.SCHEMA, estimate_tokens(form_heading + form)
    answer_format = request.get("output_config", {}).get("format")
    if answer_format:
        yield PartOf.SCHEMA, estimate_tokens(answer_format["schema"])
    for tool in request.get("tools") or ():
        yield PartOf.TOOLS, estimate_tokens(without_marks(tool))


def without_marks(block: Json) -> Json:
    """Return a block without its cache mark, which costs no tokens."""
    return {key: value for key, value in block.items() if key != "cache_control"}


def get_blocks(content: Any) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content)


def estimate_block(block: Json) -> int:
    """Return the tokens of a content block: its texts and arguments, and no field names of the
    protocol.
    """
    match block.get("type"):
        case "text":
            return estimate_tokens(block["text"])
        case "tool_use":
            return estimate_tokens(block["name"]) + estimate_tokens(block["input"])
        case "tool_result":
            return _estimate_content(block.get("content") or "")
        case _:
            return estimate_tokens(without_marks(block))


def _estimate_content(content: Any) -> int:
    return sum(map(estimate_block, get_blocks(content)))
