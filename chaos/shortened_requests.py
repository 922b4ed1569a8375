"""Jobs of a run whose requests the provider shortens: it clears old results of tools, and writes a
summary of the earlier turns. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.planned_jobs import CallKey, PlannedJob
from handoff_queue.shared.agent.summary_messages import SUMMARIZE
from handoff_queue.shared.types.usage import Usage
from handoff_queue.testing import Json, Reply, json_reply, text_reply, tool_call_reply
from handoff_queue.testing.context_edits import CHARS_PER_TOKEN, count_tokens

if TYPE_CHECKING:  # that module imports this one
    from handoff_queue.chaos.model_server import Call

SKIMMER_TURNS = 8
"""Turns of a handoff whose requests are shortened. A summary counts as a turn."""
READ_CHARS = 12_000
"""Characters of the document that a turn reads."""
_REMARK = "This part is known now. " * 250
"""Text of a reply. No clearing removes it, so a summary is needed."""
SUMMARY = "{} turns are in this summary."
"""Text of a summary, with the number of turns that it replaces."""
_SUMMARIZED = re.compile(SUMMARY.format(r"(\d+)"))


def build_document(job: PlannedJob) -> dict[str, bytes]:
    """Return the document that the job reads in parts. All its lines are different."""
    lines = [f"Line {number} of {job.name}." for number in range(9_000)]
    return {_get_path(job): "\n".join(lines).encode()}


def _get_path(job: PlannedJob) -> str:
    return f"list-{job.name}.md"


def count_summarized_turns(request: Json) -> int:
    """Return the number of turns that a summary in a request replaces."""
    match = _SUMMARIZED.search(json.dumps(request["messages"][0]))
    return int(match[1]) if match else 0


def asks_for_summary(request: Json) -> bool:
    """Return whether the provider, or the agent loop in its place, asks for a summary."""
    return "compaction" in request or SUMMARIZE in json.dumps(request["messages"][-1])


def build_reply_of_skimmer(job: PlannedJob, key: CallKey, turns: int, request: Json) -> Reply:
    """Return a summary if the request asks for one. Else read the next part of the document, or
    answer in the last turn.
    """
    if asks_for_summary(request):
        return text_reply(SUMMARY.format(key.turn))
    if key.turn >= turns:
        return json_reply({"status": "ok", "output": "So it is.", "confidence": 0.9})
    place = {"source": _get_path(job), "offset": (key.turn - 1) * READ_CHARS}
    return tool_call_reply(("read_document", place), text=_REMARK)


def compute_usage(job: PlannedJob, request: Json, reply: Reply) -> Usage:
    """Return the usage that the server reports for a reply. This server and the worker decide by
    the length of a request when to shorten it, so the usage of these jobs follows their texts.

    Args:
        request: the request without the results that the server has cleared.
    """
    if job.shape is not Shape.SHORTENED:
        return job.usage
    output_tokens = len(json.dumps(reply.blocks)) // CHARS_PER_TOKEN
    return Usage(input_tokens=count_tokens(request), output_tokens=output_tokens)


@dataclass(frozen=True, slots=True)
class ShortenedRecords:
    """The calls of a run. The promises about repeated calls hold for these calls, too."""

    calls: Sequence[Call]

    def find_breaches(self) -> dict[str, list[str]]:
        """Return an empty dict: the promises about all calls hold for these calls, too."""
        return {}

    def collect_figures(self) -> dict[str, int]:
        """Return the amounts that a reader needs to judge the run: name -> number."""
        return {
            "requests that the provider shortened": sum(call.is_shortened for call in self.calls),
            "summaries by the provider": sum(call.is_summary for call in self.calls),
        }
