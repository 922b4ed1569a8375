"""A signature of a host's Celery app is kept as a name, a queue and JSON, or refused in one
line.
"""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery, chain, group

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.job_options import EndTask
from handoff_queue.supervisor.client.celery_signatures import MAX_ARGUMENT_CHARS, parse_end_task
from handoff_queue.supervisor.client.request import Request, check_request
from handoff_queue.supervisor.client.submission import build_submission
from tests.refusals import refusal_of

HOST = Celery("host", set_as_current=False)
HOST.conf.task_routes = {"host.routed": {"queue": "billing"}}


@HOST.task(name="host.notify", shared=False)  # type: ignore[untyped-decorator]
def notify(*_: Any, **__: Any) -> None:
    """Do nothing."""


@HOST.task(name="host.routed", shared=False)  # type: ignore[untyped-decorator]
def routed(*_: Any) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("signature", "kept"),
    [
        (notify.s(7, order="A"), EndTask(task="host.notify", args=(7,), kwargs={"order": "A"})),
        (notify.si(7), EndTask(task="host.notify", args=(7,), is_told=False)),
        (notify.s().set(queue="urgent"), EndTask(task="host.notify", queue="urgent")),
        (routed.s(), EndTask(task="host.routed", queue="billing")),
        (HOST.signature("host.elsewhere"), EndTask(task="host.elsewhere")),
        ({"task": "host.notify"}, EndTask(task="host.notify")),
        (dict(notify.s([{"a": None}])), EndTask(task="host.notify", args=([{"a": None}],))),
    ],
)
def test_a_signature_is_kept_with_its_queue_and_arguments(signature: Any, kept: EndTask) -> None:
    assert parse_end_task(signature) == kept
    assert EndTask.from_json(kept.to_json()) == kept


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        ({}, "the task must be a name in one line"),
        ({"task": " "}, "the task must be a name in one line, not ' '"),
        ({"task": "a\nb"}, "the task must be a name in one line"),
        ({"task": "x" * 256}, "more than 255 bytes: use another name"),
        ({"task": "a", "queue": "b"}, "has a field 'queue'; a signature has task, args"),
        ({"task": "a", "options": {"queue": 5}}, "the queue must be a name in one line"),
        ({"task": "a", "options": []}, None),
        ({"task": "a", "options": ["b"]}, "options must be a dict"),
        ({"task": "a", "args": "bc"}, "args must be a list or a tuple"),
        ({"task": "a", "kwargs": [1]}, "kwargs a dict"),
        ({"task": "a", "args": [object()]}, "args and kwargs must be JSON (TypeError)"),
        ({"task": "a", "args": [float("nan")]}, "args and kwargs must be JSON (ValueError)"),
        ({"task": "a", "args": ["\ud800"]}, "args and kwargs must be JSON (UnicodeEncodeError)"),
        ({"task": "a", "args": ["x" * MAX_ARGUMENT_CHARS]}, "give the task an id to load them by"),
        (notify.s().set(countdown=5), "has the option 'countdown'; only queue can be set here"),
        (notify.s().on_error(notify.s()), "has the option 'link_error'"),
        (chain(notify.s(), notify.s()), "give the signature of one task"),
        (group([notify.s()]), "give the signature of one task"),
    ],
)
def test_anything_but_a_single_task_is_refused_in_one_line(signature: Any, why: str | None) -> None:
    if why is None:
        assert parse_end_task(signature).queue == "celery"
        return
    with pytest.raises(UserError) as refused:
        parse_end_task(signature)

    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("on_end", ["host.notify", ["host.notify"], 5])
def test_a_request_with_another_value_is_refused(on_end: Any) -> None:
    with pytest.raises(UserError, match="on_end must be of type Mapping"):
        check_request(Request("x", on_end=on_end), Settings(offline=True))


def test_a_client_with_the_fleets_patterns_refuses_another_task_at_submit() -> None:
    settings = Settings(offline=True, on_end_tasks=("shop.*", "host.notify"))

    check_request(Request("x", on_end=notify.s()), settings)
    with pytest.raises(UserError, match=r"HANDOFF_ON_END_TASKS does not allow .*'host\.routed'"):
        check_request(Request("x", on_end=routed.s()), settings)


def test_a_client_without_the_patterns_leaves_the_check_to_the_supervisors() -> None:
    request = Request("x", on_end=routed.s())

    assert refusal_of(check_request, request, Settings(offline=True)) is None


def test_a_job_keeps_the_task_as_a_payload_and_not_in_its_events() -> None:
    submission = build_submission(Request("x", on_end=notify.s("secret-7")), Settings(offline=True))

    assert "secret-7" not in submission.event.to_json()
    assert any("secret-7" in text for text in submission.payloads)
