"""The code of docs/python.md runs against a real Redis, and its tables are those of the client."""

from __future__ import annotations

import dataclasses
import inspect
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from handoff_queue.shared.store.redis.connection import MAX_CONNECTIONS
from handoff_queue.shared.types import errors
from handoff_queue.shared.types.events import Event
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.client.client import Client, Request
from handoff_queue.supervisor.client.journal_follower import FOLLOW_S
from handoff_queue.supervisor.engine import notifications
from handoff_queue.supervisor.lifecycle.job_end import WEBHOOK_BACKOFF_S
from tests.docs.pages import blocks, coded, rows, sections, text_of

SECTIONS = sections(text_of("python"))
SECRET = "a-secret-of-this-test"


def defined_by(heading: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "docs"}
    for block in blocks(SECTIONS[heading], "python"):
        exec(compile(block, f"docs/python.md: {heading}", "exec"), names)
    return names


def listed(heading: str, column: int = 0) -> list[str]:
    return [coded(row[column]) for row in rows(SECTIONS[heading])]


def test_a_script_submits_a_job_and_waits_for_its_answer(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HANDOFF_REDIS_URL", redis_url)
    (tmp_path / "a.md").write_text("Order A-1042 was shipped.")
    script = defined_by("From a script")
    monkeypatch.setattr(script["jobs"], "wait", lambda job_id, wait_s: None)  # nobody works here

    try:
        assert script["answer_to"]("Where is order A-1042?", tmp_path) is None
    finally:
        script["jobs"].store.connection.close()


PROGRAMS = [heading for heading, body in SECTIONS.items() if blocks(body, "python")]


@pytest.mark.parametrize("heading", PROGRAMS)
def test_every_program_of_the_page_runs(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, heading: str
) -> None:
    monkeypatch.setenv("HANDOFF_REDIS_URL", redis_url)

    assert defined_by(heading)


def signed(body: bytes, at: float) -> Mapping[str, str]:
    timestamp = str(int(at))
    return {
        notifications.TIMESTAMP_HEADER: timestamp,
        notifications.SIGNATURE_HEADER: notifications.signature(SECRET, timestamp, body),
    }


def test_a_genuine_webhook_is_told_from_a_forged_and_from_an_old_one() -> None:
    is_genuine = defined_by("The webhook")["is_genuine"]
    body = b'{"job_id": "j-0123456789ab", "status": "ok"}'
    now = time.time()

    assert is_genuine(SECRET, signed(body, now), body)
    assert not is_genuine(SECRET, signed(body, now), body.replace(b"ok", b"no"))
    assert not is_genuine("another", signed(body, now), body)
    assert not is_genuine(SECRET, signed(body, now - 3_600), body)
    assert not is_genuine(SECRET, {}, body)
    assert not is_genuine(
        SECRET, {**signed(body, now), notifications.SIGNATURE_HEADER: "größer"}, body
    )
    assert not is_genuine(
        SECRET, {**signed(body, now), notifications.TIMESTAMP_HEADER: "soon"}, body
    )


def test_the_page_names_the_pauses_between_webhooks() -> None:
    first, *later = WEBHOOK_BACKOFF_S

    assert (first, later) == (0.0, [5.0, 30.0, 120.0, 600.0, 3_600.0])
    assert "5 seconds, 30 seconds, 2 minutes, 10 minutes and an hour" in " ".join(
        SECTIONS["The webhook"].split()
    )
    assert (notifications.TIMEOUT_S, FOLLOW_S, MAX_CONNECTIONS) == (10.0, 5.0, 64)


def test_every_public_method_of_the_client_is_listed() -> None:
    methods = [
        name
        for name, _ in inspect.getmembers(Client, inspect.isfunction)
        if not name.startswith("_")
    ]

    assert sorted(listed("Methods")) == sorted(methods)


def test_every_field_of_a_request_and_every_limit_is_listed_with_its_default() -> None:
    found = {coded(row[0]): coded(row[1]) for row in rows(SECTIONS["What a request may say"])}
    limits = {
        name: "none" if field.default is None else str(field.default)
        for name, field in JobLimits.model_fields.items()
    }

    assert set(found) == {field.name for field in dataclasses.fields(Request)} | set(limits)
    assert {name: found[name] for name in limits} == limits


def test_every_kind_of_event_is_listed() -> None:
    kinds = [kind.model_fields["type"].default for kind in get_args(Event)]

    assert sorted(listed("Events")) == sorted(kinds)


def test_every_error_that_the_client_says_it_raises_is_listed() -> None:
    said = {
        name
        for _, method in inspect.getmembers(Client, inspect.isfunction)
        for name in re.findall(r"^ +([A-Z]\w+): ", method.__doc__ or "", re.M)
        if name != "Raises"
    }

    assert (
        {"UserError", "BudgetSpent", "StoreUnavailable"} <= said <= set(listed("What can go wrong"))
    )


def test_the_errors_are_errors_of_the_project() -> None:
    assert all(
        issubclass(getattr(errors, name), errors.HandoffError)
        for name in listed("What can go wrong")
    )
