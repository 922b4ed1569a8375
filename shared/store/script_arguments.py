"""Arguments that several Lua scripts share, and names and ids as Redis returns them: bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic_core import to_json

from handoff_queue.shared.types.budget_measures import AMOUNTS, UNKNOWN, OneCall
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.message import LATEST_TIME_S
from handoff_queue.shared.types.usage import Usage

Entry = TypeVar("Entry")
MAX_EXACT_INTEGER = 2**53
"""Largest integer that Lua computes with. A float holds it exactly."""


MAX_TEXT_BYTES = 2**20
"""Bytes of the longest text that workers write into a field. `short` of `parts/redis_values.lua`
has this limit, too.
"""
MAX_LINE_BYTES = 1_000
"""Bytes of the longest name, reason and activity, as in `parts/redis_values.lua`."""


def parse_name(value: bytes) -> str:
    """Return a name, or a list of names. A byte that is not UTF-8 becomes a replacement character.
    A text longer than `MAX_TEXT_BYTES` is cut: a worker that was taken over has written it.
    """
    return value[:MAX_TEXT_BYTES].decode(errors="replace")


def parse_figure(value: bytes | None) -> int | None:
    """Return a stored number. None: it is missing, or is not a whole number up to
    `MAX_EXACT_INTEGER`. A worker that was taken over may have written it. `number_or` of
    `parts/redis_values.lua` has this rule, too.
    """
    try:
        number = int(value or b"")
    except ValueError:
        return None
    if abs(number) > MAX_EXACT_INTEGER:
        return None
    return number


def parse_time(value: bytes | None) -> float | None:
    """Return a stored time in Unix seconds, from Unix milliseconds. None: it is missing, negative,
    or after `LATEST_TIME_S`. A worker that was taken over may have written it.
    """
    ms = parse_figure(value)
    if ms is None:
        return None
    return convert_score(ms)


def convert_score(ms: float) -> float | None:
    """Return a time in Unix seconds, from the score of a member in Unix milliseconds. None: it is
    negative, or after `LATEST_TIME_S`. A worker that was taken over may have written infinity.
    """
    if 0 <= ms / 1000 <= LATEST_TIME_S:
        return ms / 1000
    return None


def parse_job_id(value: bytes) -> JobId:
    """Return a job id."""
    return JobId(value.decode())


def parse_handoff_id(value: bytes) -> HandoffId:
    """Return a handoff id. A worker may have written other bytes."""
    return HandoffId(value.decode(errors="replace"))


def iterate_rows(values: Sequence[Any], width: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a flat answer of a script or of a pipeline, each with `width` values."""
    for start in range(0, len(values), width):
        yield tuple(values[start : start + width])


def encode_json(fields: Mapping[str, Any]) -> str:
    """Return the fields as one JSON object. pydantic's writer takes a third of the time of
    Python's `json`.
    """
    return to_json(fields).decode()


def build_retention_arguments(keep_s: int, deadline: float | None) -> tuple[int, int]:
    """Return `keep_ms` and `deadline` (Unix ms; 0: none) of the scripts. A running job stays
    until its deadline, and then for its retention of `keep_s` seconds.
    """
    return keep_s * 1000, int((deadline or 0) * 1000)


def build_worst_case_argument(
    worst: WorstCase | None,
    call: Mapping[str, Any],
    *,
    takes_messages: bool = False,
    is_last: bool = False,
) -> str:
    """Return the worst case of the next call as JSON, or '' if there is no call.

    Args:
        call: the arguments for the rate limits, from `RateLimiter.build_admission_arguments`.
        takes_messages: True if the agent takes messages of users before the call.
        is_last: True if the agent takes no messages after the call.
    """
    if worst is None:
        return ""
    fields: dict[str, Any] = {"model": worst.model, **call}
    for amount in AMOUNTS:
        worst_amount = amount.worst(worst)
        fields[amount.name] = UNKNOWN if worst_amount is None else worst_amount
    if worst.own_microusd is not None:
        fields["own_usd"] = worst.own_microusd
    if worst.is_batched:
        fields["batch"] = True
    if takes_messages:
        fields["takes_messages"] = True
    if is_last:
        fields["last"] = True
    return encode_json(fields)


def build_settled_usage(usage: Usage) -> dict[str, Any]:
    """Return the usage of one call in the form of `settle` in `parts/budgets.lua`."""
    figures: dict[str, Any] = {}
    for amount in AMOUNTS:
        figure = amount.used(OneCall(usage))
        figures[amount.name] = UNKNOWN if figure is None else figure
    if usage.cut_calls:
        figures["cut"] = True
    if usage.cache_read_tokens:
        figures["cached"] = usage.cache_read_tokens
    if usage.cache_saved_microusd:
        figures["saved"] = usage.cache_saved_microusd
    if usage.cache_surcharge_microusd:
        figures["surcharge"] = usage.cache_surcharge_microusd
    if usage.batch_calls:
        figures["batched"] = usage.batch_calls
        figures["batch_saved"] = usage.batch_saved_microusd
    if usage.server_tools_microusd:
        figures["server_tools"] = usage.server_tools_microusd
    return figures


def build_read_list_arguments(
    first: int, last: int, max_bytes: int, max_sum: int, *, removes: bool = False
) -> list[int]:
    """Return the arguments of `read_list.lua`.

    Args:
        first: position of the first entry, from 0; negative: from the end.
        last: position of the last entry.
        max_bytes: a longer entry is read as ''.
        max_sum: most bytes of all entries. The entries after them are read as ''.
        removes: whether all entries from the first one are removed.
    """
    return [first, last, max_bytes, max_sum, int(removes)]


def read_entries(texts: Iterable[bytes], parse: Callable[[bytes], Entry], key: str) -> list[Entry]:
    """Return the entries of a Redis key that `parse` accepts. The other entries are skipped,
    and one log line has their number.

    `parse` refuses an entry with MalformedMessage, ValueError, KeyError, TypeError or
    RecursionError.

    Args:
        key: name of the Redis key, for the log.
    """
    entries: list[Entry] = []
    unreadable = 0
    for text in texts:
        try:
            entries.append(parse(text))
        except (MalformedMessage, ValueError, KeyError, TypeError, RecursionError):
            unreadable += 1
    if unreadable:
        # imported here, because commands that list jobs load no logging
        from handoff_queue.shared.observability.logs import get_log

        get_log(__name__).warning(
            "entries that cannot be read were skipped", key=key, entries=unreadable
        )
    return entries
