"""The page of all Redis keys, from the module that builds them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator

from docs.generator.markdown import build_table, format_code, read_attribute_docstrings
from handoff_queue.shared.store import keys

INTRODUCTION = """\
# Redis keys

All keys of the store begin with `handoff:`. Every key of a job holds the id of the job in braces, so all keys of a job have one hash slot.
Celery's own keys are not listed here. `?prefix=NAME` in the Redis URL puts `NAME` before every key.

[Operations](../operations.md#retention) says when each key is removed.

"""  # noqa: E501 - lines of a text
PARAMETERS = {
    "job_id": "{JOB}",
    "handoff_id": "HANDOFF",
    "digest": "DIGEST",
    "worker_id": "PROCESS",
    "bucket_name": "BUCKET",
    "number": "DAY",
    "tenant": "TENANT",
    "agent": "AGENT",
    "caller": "TOKEN",
    "user": "USER",
    "window": "MINUTE",
    "schedule_id": "SCHEDULE",
    "month": "MONTH",
    "run_name": "RUN",
    "name": "NAME",
}
"""Parameter of a function of `keys` -> how the page writes it."""
SUFFIXES = {"WAITING": "QUEUE", "OUT": "QUEUE", "FAIR": "QUEUE", "PAUSED_HANDOFFS": "AGENT"}
"""Constant that is the beginning of a key -> how the page writes the end of the key."""
KINDS = ("zset", "hash", "string", "list", "set", "stream")


def build_page() -> str:
    """Return the text of the page."""
    rows = sorted([*iterate_constants(), *iterate_functions()])
    return INTRODUCTION + build_table(["Key", "Type", "What it holds"], rows)


def iterate_constants() -> Iterator[tuple[str, str, str]]:
    texts = read_attribute_docstrings(keys)
    for name, value in vars(keys).items():
        if name.isupper() and name != "PREFIX":
            yield build_row(value + SUFFIXES.get(name, ""), texts[name])


def iterate_functions() -> Iterator[tuple[str, str, str]]:
    for function in vars(keys).values():
        if inspect.isfunction(function) and function.__module__ == keys.__name__:
            key = format_call(function)
            if key.startswith(keys.PREFIX):
                yield build_row(key, function.__doc__ or "")


def format_call(function: Callable[..., str]) -> str:
    """Return the key that a function builds, with placeholders for its parameters."""
    names = inspect.signature(function).parameters
    key = function(*[PARAMETERS[name] for name in names])
    return key.replace("{{JOB}}", "{JOB}")


def build_row(key: str, docstring: str) -> tuple[str, str, str]:
    """Return a key, its Redis type and its meaning, from a docstring `TYPE: MEANING`."""
    text = re.sub(r"^\+ (?:queue|agent), ", "", " ".join(docstring.split()))
    kind, _, meaning = text.partition(": ")
    if kind not in KINDS:
        return format_code(key), "", text
    return format_code(key), kind, meaning
