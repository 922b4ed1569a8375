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

from shared.ledger.connection import MAX_CONNECTIONS
from shared.wire import errors
from shared.wire.events import Event, JobStatus
from shared.wire.limits import JobLimits
from supervisor import webhook
from supervisor.client import Client, Request
from supervisor.journal_following import FOLLOW_S
from supervisor.lifecycle.ending import WEBHOOK_BACKOFF_S
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


def test_a_backend_submits_follows_asks_and_stops(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HANDOFF_REDIS_URL", redis_url)
    (tmp_path / "a.md").write_text("Order A-1042 was shipped.")
    backend = defined_by("From a web backend")

    job_id = backend["ask"]("u1", "Where is order A-1042?", tmp_path, "form-7")
    again = backend["ask"]("u1", "Where is order A-1042?", tmp_path, "form-7")
    first = next(backend["progress"](job_id))

    assert again == job_id
    assert first.startswith("id: 1\nevent: job_submitted\ndata: {")
    assert backend["answer"](job_id) is None
    assert backend["stop"](job_id)
    assert [one.event.type for one in backend["jobs"].events(job_id, after=1, follow=False)] == [
        "cancel_requested"
    ]
    assert backend["jobs"].result(job_id).status is JobStatus.QUEUED


def signed(body: bytes, at: float) -> Mapping[str, str]:
    timestamp = str(int(at))
    return {
        webhook.TIMESTAMP_HEADER: timestamp,
        webhook.SIGNATURE_HEADER: webhook.signature(SECRET, timestamp, body),
    }


def test_a_genuine_webhook_is_told_from_a_forged_and_from_an_old_one() -> None:
    is_genuine = defined_by("The webhook")["is_genuine"]
    body = b'{"job_id": "j-0123456789ab", "status": "ok"}'
    now = time.time()

    assert is_genuine(SECRET, signed(body, now), body)
    assert not is_genuine(SECRET, signed(body, now), body.replace(b"ok", b"no"))
    assert not is_genuine("another", signed(body, now), body)
    assert not is_genuine(SECRET, signed(body, now - 3_600), body)


def test_the_page_names_the_pauses_between_webhooks() -> None:
    first, *later = WEBHOOK_BACKOFF_S

    assert (first, later) == (0.0, [5.0, 30.0, 120.0, 600.0, 3_600.0])
    assert "5 seconds, 30 seconds, 2 minutes, 10 minutes and an hour" in " ".join(
        SECTIONS["The webhook"].split()
    )
    assert (webhook.TIMEOUT_S, FOLLOW_S, MAX_CONNECTIONS) == (10.0, 5.0, 64)


def test_every_public_method_of_the_client_is_listed() -> None:
    methods = [
        name
        for name, _ in inspect.getmembers(Client, inspect.isfunction)
        if not name.startswith("_")
    ]

    assert sorted(listed("From a web backend")) == sorted(methods)


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
    }

    assert (
        {"UserError", "BudgetSpent", "LedgerUnavailable"}
        <= said
        <= set(listed("What can go wrong"))
    )


def test_the_errors_are_errors_of_the_project() -> None:
    assert all(
        issubclass(getattr(errors, name), errors.HandoffError)
        for name in listed("What can go wrong")
    )
