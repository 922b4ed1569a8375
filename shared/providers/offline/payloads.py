"""Reading JSON out of texts that were written for a language model: wrapped in tags, followed
by prose, or cut in the middle.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any


def text_of(content: Any) -> str:
    """The plain text of a message's content: a string, or text blocks."""
    if isinstance(content, str):
        return content
    return "\n".join(
        str(block.get("text", ""))
        for block in content
        if isinstance(block, dict) and block.get("type") == "text"
    )


def claims_and_output(data: str) -> tuple[Any, list[dict[str, Any]]]:
    """A result's data: one JSON object with `output` and `claims`, perhaps cut; anything else
    is an output without claims.
    """
    data = data.strip()
    whole = _parsed(data)
    if isinstance(whole, dict) and ("output" in whole or "claims" in whole):
        return whole.get("output"), _claims(whole.get("claims"))
    if whole is None and data.startswith('{"output"'):
        return _cut_output(data), _claims(list(_objects_from(data, r'\{\s*"id"')))
    return (data if whole is None else whole), []


def json_in(text: str) -> Any:
    """The first JSON object in a text, or None."""
    try:
        return json.JSONDecoder().raw_decode(text, text.index("{"))[0]
    except ValueError:
        return None


def hits_in(text: str) -> tuple[list[dict[str, Any]], int | None]:
    """The hits of a search_documents result, and how many documents were searched; what can be
    saved of a result that was cut.
    """
    whole = json_in(text)
    if isinstance(whole, dict) and isinstance(whole.get("hits"), list):
        hits, searched = (
            [hit for hit in whole["hits"] if isinstance(hit, dict)],
            whole.get("searched"),
        )
        return [hit for hit in hits if _is_hit(hit)], searched if isinstance(
            searched, int
        ) else None
    return [hit for hit in _objects_from(text, r'\{\s*"source"') if _is_hit(hit)], None


def page_in(text: str) -> tuple[str, int, int, str] | None:
    """(source, offset, total_chars, text) of a read_document result; of one that was cut, the
    text up to the cut.
    """
    whole = json_in(text)
    if (
        isinstance(whole, dict)
        and isinstance(whole.get("text"), str)
        and isinstance(whole.get("source"), str)
    ):
        offset, total = whole.get("offset") or 0, whole.get("total_chars")
        return (
            whole["source"],
            int(offset),
            int(total if total is not None else len(whole["text"])),
            whole["text"],
        )
    source = re.search(r'"source":\s*("(?:[^"\\]|\\.)*")', text)
    offset_found = re.search(r'"offset":\s*(\d+)', text)
    started = re.search(r'"text":\s*"((?:[^"\\]|\\.)*)', text)
    if not (source and started):
        return None
    page = _unescaped(started.group(1))
    offset = int(offset_found.group(1)) if offset_found else 0
    return json.loads(source.group(1)), offset, offset + len(page) + 1, page


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _cut_output(data: str) -> str:
    """The output, if it is a string, of a result that was cut somewhere."""
    started = re.match(r'\{"output":\s*"((?:[^"\\]|\\.)*)', data)
    return _unescaped(started.group(1)) if started else ""


def _unescaped(inner: str) -> str:
    """What stands between the quotes of a JSON string that may end in the middle of an escape."""
    return str(json.loads('"' + re.sub(r"\\u[0-9a-fA-F]{0,3}$", "", inner) + '"', strict=False))


def _claims(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    return [
        c
        for c in value
        if isinstance(c, dict) and isinstance(c.get("id"), str) and isinstance(c.get("text"), str)
    ]


def _is_hit(hit: dict[str, Any]) -> bool:
    return isinstance(hit.get("source"), str) and isinstance(hit.get("snippet"), str)


def _objects_from(text: str, pattern: str) -> Iterator[dict[str, Any]]:
    for found in re.finditer(pattern, text):
        try:
            value = json.JSONDecoder().raw_decode(text, found.start())[0]
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value
