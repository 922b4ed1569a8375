"""The signature of a task of the host's Celery app, such as `notify.s(order=7)`, as a job
stores it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from handoff_queue.shared.text.unicode_text import has_lone_surrogate
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.job_options import DEFAULT_QUEUE, MAX_NAME_CHARS, EndTask

MAX_ARGUMENT_CHARS = 10_000
"""Most characters of args and kwargs together, as JSON."""
_FIELDS = ("task", "args", "kwargs", "options", "immutable", "subtask_type", "chord_size")
"""Fields of a Celery signature."""
_OPTIONS = ("queue",)


def parse_end_task(signature: Mapping[str, Any]) -> EndTask:
    """Return the task that is sent at the end of a job.

    Args:
        signature: a `celery.Signature`, or a dict with `task`, `args`, `kwargs`, `immutable` and
            `options` (`{"queue": ...}`).

    Raises:
        UserError: the signature has several tasks, or another field or option; or its
            arguments are not JSON, or too long.
    """
    for name in signature:
        if name not in _FIELDS:
            raise UserError(
                f"on_end has a field {str(name)!r:.60}; a signature has {', '.join(_FIELDS[:5])}"
            )
    if signature.get("subtask_type"):
        raise UserError(
            f"on_end is a {signature['subtask_type']}: give the signature of one task,"
            " which can start others"
        )
    task, queue = _check_name("task", signature.get("task")), _find_queue(signature)
    args, kwargs = signature.get("args") or (), signature.get("kwargs") or {}
    if not isinstance(args, list | tuple) or not isinstance(kwargs, Mapping):
        raise UserError("on_end: args must be a list or a tuple, and kwargs a dict")
    text = _encode_json([list(args), dict(kwargs)])
    if len(text) > MAX_ARGUMENT_CHARS:
        raise UserError(
            f"on_end: args and kwargs have {len(text):,} characters as JSON, at most"
            f" {MAX_ARGUMENT_CHARS:,} are allowed: give the task an id to load them by"
        )
    json_args, json_kwargs = json.loads(text)
    is_told = not signature.get("immutable")
    return EndTask(
        task=task, queue=queue, args=tuple(json_args), kwargs=json_kwargs, is_told=is_told
    )


def check_allowed(task: str, patterns: Sequence[str]) -> None:
    """Refuse a task that the fleet must not start.

    Args:
        patterns: as in HANDOFF_ON_END_TASKS. An empty list allows no task.

    Raises:
        UserError: no pattern matches the name.
    """
    if not any(fnmatchcase(task, pattern) for pattern in patterns):
        raise UserError(
            f"HANDOFF_ON_END_TASKS does not allow the task {task!r}: add its name or a pattern,"
            " such as shop.*, to the setting of the supervisors"
        )


def _find_queue(signature: Mapping[str, Any]) -> str:
    """Return the queue of the signature, or the queue to which the host's app routes the task."""
    options = signature.get("options") or {}
    if not isinstance(options, Mapping):
        raise UserError("on_end: options must be a dict, such as {'queue': 'billing'}")
    for name, value in options.items():
        if value and name not in _OPTIONS:
            raise UserError(
                f"on_end has the option {str(name)!r:.60}; only queue can be set here,"
                " and the task itself can do the rest"
            )
    queue = options.get("queue") or _find_queue_by_route(signature)
    return _check_name("queue", getattr(queue, "name", queue))


def _find_queue_by_route(signature: Mapping[str, Any]) -> str:
    """Return the queue by the settings of the signature's app (`task_routes`,
    `task_default_queue`).
    """
    app = getattr(signature, "app", None)
    if app is None:
        return DEFAULT_QUEUE
    queue: Any = app.amqp.router.route({}, signature["task"]).get("queue")
    return str(getattr(queue, "name", queue) or DEFAULT_QUEUE)


def _check_name(kind: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise UserError(f"on_end: the {kind} must be a name in one line, not {value!r:.60}")
    if has_lone_surrogate(value) or len(value.encode()) > MAX_NAME_CHARS:
        raise UserError(
            f"on_end: the {kind} {value!r:.60} is not UTF-8 text, or has more than {MAX_NAME_CHARS}"
            " bytes: use another name"
        )
    return value


def _encode_json(value: Any) -> str:
    """Return a value as JSON.

    Raises:
        UserError: the value is not JSON, or holds a lone surrogate.
    """
    try:
        text = json.dumps(value, allow_nan=False)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(
            f"on_end: args and kwargs must be JSON ({type(error).__name__}):"
            " texts, numbers, lists, dicts, true, false, null"
        ) from error
    return text
