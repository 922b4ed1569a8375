"""A field of a request is checked, and each way to submit a job has it or names the reason."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import JobSubmitted
from handoff_queue.supervisor.cli.request_options import RequestOptions, read_request
from handoff_queue.supervisor.cli.submit import OTHER_NAMES, SubmissionLine
from handoff_queue.supervisor.client.request import Request, check_request
from handoff_queue.supervisor.serve.request_body import JobBody, build_request

FIELDS = frozenset(field.name for field in fields(Request))
NOT_IN_A_LINE = {
    "is_quoted": "`handoff quote` asks for a quote",
    "on_end": "only a program has a Celery app of its own",
    "shares_runs": "only `handoff eval` and programs need a job whose runs are samples",
    "specialists": "only a program chooses the specialists of a job",
}
"""Fields that no line of `handoff submit --file` and no command has, with the reason."""
NOT_IN_A_FORK = {
    "after": "the fork has the given results of the job",
    "deadline_s": "the fork has the time limit of the job",
    "idempotency_key": "the caller of `fork` gives another key",
    "is_quoted": "the plan of the fork is known",
    "items": "the plan of the job has the steps of the items",
    "on_end": "the receiver knows only the job",
    "strict_documents": "the documents of the job have been read",
    "webhook_url": "the receiver knows only the job",
}
"""Fields that a fork does not take from its job, with the reason."""
IN_THE_EVENT = {"text": "request", "documents": "manifest"}
"""Fields of `JobSubmitted`, which a fork copies, that differ from those of `Request`."""


def find_given_fields(builder: Callable[..., object]) -> set[str]:
    """Return the fields that a function gives to `Request`."""
    given: set[str] = set()
    for node in ast.walk(ast.parse(inspect.getsource(builder))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Request":
            given.update(str(keyword.arg) for keyword in node.keywords)
    return given


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_a_field_of_a_wrong_type_is_refused(name: str) -> None:
    values: dict[str, Any] = {"text": "Compare.", name: object()}

    with pytest.raises(UserError):
        check_request(Request(**values), Settings(offline=True))


def test_the_body_of_the_http_api_has_each_field() -> None:
    assert set(JobBody.model_fields) == FIELDS
    assert find_given_fields(build_request) == FIELDS


def test_a_line_of_a_file_has_each_field() -> None:
    names = FIELDS - NOT_IN_A_LINE.keys()
    in_a_line = {OTHER_NAMES.get(name, name).split()[0] for name in names - {"limits"}}

    assert in_a_line <= SubmissionLine.model_fields.keys()
    assert find_given_fields(read_request) == names
    assert not NOT_IN_A_LINE.keys() & {field.name for field in fields(RequestOptions)}


def test_a_fork_has_each_field_of_its_job() -> None:
    copied = {IN_THE_EVENT.get(name, name) for name in FIELDS - NOT_IN_A_FORK.keys()}

    assert copied <= JobSubmitted.model_fields.keys()
