"""What claims tell the scripts, in the form that these take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from handoff_queue.shared.types.checkpoints import WorstCase


def order_of(fields: Mapping[str, Any]) -> str:
    """As one JSON object: by pydantic's writer, which takes a third of the time of Python's."""
    return to_json(fields).decode()


def keep_of(keep_s: int, deadline: float | None) -> tuple[int, int]:
    """`keep_ms` and `deadline` of the scripts: a job that is at work stays until its time is
    over, and then for its retention.
    """
    return keep_s * 1000, int((deadline or 0) * 1000)


def worst_of(worst: WorstCase | None, pace: Mapping[str, Any]) -> str:
    """The worst case as the scripts take it. `pace`: `Pacing.order`."""
    if worst is None:
        return ""
    usd = -1 if worst.microusd is None else worst.microusd
    return order_of(
        {"input": worst.input_tokens, "output": worst.output_tokens, "usd": usd, **pace}
    )
