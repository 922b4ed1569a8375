"""Arguments that several Lua scripts share, and names and ids as Redis returns them: bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.ids import HandoffId, JobId


def name_in(stored: bytes) -> str:
    """Return a name. A byte that is not UTF-8 becomes a replacement character."""
    return stored.decode(errors="replace")


def job_id_in(stored: bytes) -> JobId:
    """Return a job id."""
    return JobId(stored.decode())


def handoff_id_in(stored: bytes) -> HandoffId:
    """Return a handoff id."""
    return HandoffId(stored.decode())


def json_argument(fields: Mapping[str, Any]) -> str:
    """Return the fields as one JSON object. pydantic's writer takes a third of the time of
    Python's `json`.
    """
    return to_json(fields).decode()


def retention_arguments(keep_s: int, deadline: float | None) -> tuple[int, int]:
    """Return `keep_ms` and `deadline` (Unix ms; 0: none) of the scripts. A running job stays
    until its deadline, and then for its retention of `keep_s` seconds.
    """
    return keep_s * 1000, int((deadline or 0) * 1000)


def worst_case_argument(worst: WorstCase | None, call: Mapping[str, Any]) -> str:
    """Return the worst case of the next call as JSON, or '' if there is no call.

    Args:
        call: the arguments for the rate limits, from `RateLimiter.admission_arguments`.
    """
    if worst is None:
        return ""
    if worst.microusd is None:
        usd = -1
    else:
        usd = worst.microusd
    tokens = {"input": worst.input_tokens, "output": worst.output_tokens}
    return json_argument({**tokens, "usd": usd, "model": worst.model, **call})
