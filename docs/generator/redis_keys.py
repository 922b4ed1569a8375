"""The page of all Redis keys, from the module that builds them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator

from docs.generator.markdown import attribute_docstrings, code, table
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


def page() -> str:
    """Return the text of the page."""
    rows = sorted([*constant_rows(), *function_rows()])
    return INTRODUCTION + table(["Key", "Type", "What it holds"], rows)


def constant_rows() -> Iterator[tuple[str, str, str]]:
    texts = attribute_docstrings(keys)
    for name, value in vars(keys).items():
        if name.isupper() and name != "PREFIX":
            yield row(value + SUFFIXES.get(name, ""), texts[name])


def function_rows() -> Iterator[tuple[str, str, str]]:
    for function in vars(keys).values():
        if inspect.isfunction(function) and function.__module__ == keys.__name__:
            key = called(function)
            if key.startswith(keys.PREFIX):
                yield row(key, function.__doc__ or "")


def called(function: Callable[..., str]) -> str:
    """Return the key that a function builds, with placeholders for its parameters."""
    names = inspect.signature(function).parameters
    key = function(*[PARAMETERS[name] for name in names])
    return key.replace("{{JOB}}", "{JOB}")


def row(key: str, docstring: str) -> tuple[str, str, str]:
    """Return a key, its Redis type and its meaning, from a docstring `TYPE: MEANING`."""
    text = re.sub(r"^\+ (?:queue|agent), ", "", " ".join(docstring.split()))
    kind, _, meaning = text.partition(": ")
    if kind not in KINDS:
        return code(key), "", text
    return code(key), kind, meaning
