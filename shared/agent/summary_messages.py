"""The messages about a summary that replaces the earlier turns. They are the request to the model,
its reply, and the form in which later requests show the summary. Pure.

`compaction.py` makes the checkpoint of the summary.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from handoff_queue.shared.agent.json_repair import find_json_object, parse_partial_object
from handoff_queue.shared.agent.untrusted_text import as_data
from handoff_queue.shared.types.checkpoints import ContextCompacted
from handoff_queue.shared.types.model import COMPACTION, Block

SUMMARIZE = (
    "Your context is full. Your summary will now replace everything after the task. Call no tools"
    " in this turn, and do not answer the task yet. Write your findings, the finished work and the"
    " remaining work in at most 800 words. Quotes that are in your messages with the name of"
    ' their source are kept. Add each further quote that the answer needs as {"source": "...",'
    ' "quote": "..."}, and copy it letter by letter.'
)
AS_OUTPUT = " The summary is the `output`, with the status partial."
"""Ends the request if the reply must have the form of an answer."""


def has_text_output(schema: dict[str, Any] | None) -> bool:
    """Return whether an answer of this schema can hold a summary. Then the request for a summary
    keeps the schema, and so the beginning of the request that the provider has cached.
    """
    output = (schema or {}).get("properties", {}).get("output")
    return isinstance(output, dict) and output.get("type") == "string"


def find_provider_block(content: Iterable[Block]) -> Block | None:
    """Return the block with the summary that the provider has written, or None."""
    for block in content:
        if block.get("type") == COMPACTION and str(block.get("content") or "").strip():
            return block
    return None


def extract_summary(text: str) -> str:
    """Return the summary in a reply, which may have the form of an answer."""
    value = None
    if text.lstrip().startswith(("{", "```")):
        value = find_json_object(text) or parse_partial_object(text)
    if value is not None and isinstance(value.get("output"), str):
        return str(value["output"]).strip()
    return text.strip()


def build_summary_block(compaction: ContextCompacted, *, has_summary: bool = False) -> Block | None:
    """Return the part of a request that replaces the earlier turns. The summary is
    data: the model wrote it from data of others.

    Args:
        has_summary: True if the request has the summary in the provider's block. Then the part has
            the quotes and names, and is None without any.
    """
    data: dict[str, Any] = {}
    if not has_summary:
        data["summary"] = compaction.summary
    if compaction.quotes:
        data["quotes"] = [
            {"source": item.source, "quote": item.quote} for item in compaction.quotes
        ]
    if compaction.documents:
        data["opened"] = list(compaction.documents)
    if not data and not compaction.results:
        return None
    inside = as_data(json.dumps(data, ensure_ascii=False))
    note = "This is your summary of your earlier turns, which are left out."
    if has_summary:
        note = "This belongs to the summary of your earlier turns."
    if compaction.quotes:
        note += " Each of its quotes is in its source, letter by letter."
    if compaction.results:
        note += f" read_result shows these results again: {', '.join(compaction.results)}."
    text = f"<earlier_turns> {inside} {note} Go on with the task. </earlier_turns>"
    return {"type": "text", "text": text}
