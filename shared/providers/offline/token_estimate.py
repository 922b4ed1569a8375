"""Token counts: a plain estimate, four characters a token, since there is no tokenizer here
and nothing is paid for.
"""

from __future__ import annotations

import json
from typing import Any

_CHARS_PER_TOKEN = 4


def estimate(content: list[dict[str, Any]]) -> int:
    """Output tokens of content blocks; never zero, like the API's own figure."""
    chars = sum(
        len(block["text"]) if block["type"] == "text" else len(json.dumps(block))
        for block in content
    )
    return max(1, -(-chars // _CHARS_PER_TOKEN))


def estimate_input(asked: dict[str, Any]) -> int:
    """Input tokens of a request: all that a model would read of it."""
    read = {
        key: asked.get(key)
        for key in ("system", "messages", "tools", "output_config")
        if asked.get(key)
    }
    return max(1, -(-len(json.dumps(read, ensure_ascii=False)) // _CHARS_PER_TOKEN))


def cut_to(content: list[dict[str, Any]], max_tokens: int) -> list[dict[str, Any]]:
    """What fits into max_tokens: the real API too stops in the middle of a word, and sends no
    half tool call that could be run.
    """
    left, kept = max_tokens * _CHARS_PER_TOKEN, []
    for block in content:
        if block["type"] != "text" or left <= 0:
            break
        kept.append({**block, "text": block["text"][:left]})
        left -= len(block["text"])
    return kept
