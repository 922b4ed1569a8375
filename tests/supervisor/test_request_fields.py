"""What a request cannot be is said in one line, whoever writes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared.config import Settings
from shared.wire.errors import UnknownJob, UserError
from shared.wire.limits import JobLimits
from shared.wire.mode import Mode
from shared.wire.names import RESERVED
from supervisor.client import Client, Request
from supervisor.request import check_request
from tests.supervisor.workflows.writing import workflow

SETTINGS = Settings(offline=True)


def refusal(**fields: Any) -> str:
    with pytest.raises(UserError) as refused:
        check_request(Request(**{"text": "x", **fields}), SETTINGS)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("name", RESERVED)
def test_a_name_of_the_systems_own_is_no_specialists(name: str) -> None:
    assert f"{name} is the system's own name" in refusal(specialists=(name,))


def test_nor_is_it_in_a_workflow_that_was_made_in_python(tmp_path: Path) -> None:
    made = workflow(tmp_path, "id: a, specialist: writer, task: Write")
    changed = replace(made, steps=(replace(made.steps[0], specialist="planner"),))

    assert refusal(workflow=changed).startswith("step a: planner is the system's own name")


@pytest.mark.parametrize("name", ["", "Writer", "a b", "x" * 49, "../x", "w\n"])
def test_what_is_no_name_is_no_specialists(name: str) -> None:
    assert "no specialist can be called" in refusal(specialists=(name,))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"text": None}, "the request must be of type str, not NoneType"),
        ({"tenant": None}, "the tenant must be of type str, not NoneType"),
        ({"mode": "team"}, "the mode must be of type Mode, not str"),
        ({"limits": {"max_turns": 3}}, "the limits must be of type JobLimits, not dict"),
        ({"specialists": "writer"}, "specialists must be a tuple of names"),
        ({"specialists": (None,)}, "specialists must be a tuple of names"),
        ({"idempotency_key": 7}, "the idempotency key must be of type str, not int"),
    ],
)
def test_a_field_of_another_type_is_named(fields: dict[str, Any], said: str) -> None:
    assert refusal(**fields).startswith(said)


@pytest.mark.parametrize("text", ["", "  ", "a\nb", "\x1b[31m"])
def test_a_key_or_a_model_that_says_nothing_is_none(text: str) -> None:
    assert refusal(idempotency_key=text).startswith("the idempotency key is empty")
    assert refusal(model=text).startswith("the model's name is empty")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://",
        "http:///path",
        "http://a b/",
        "http://[::1",
        "http://x:99999/",
        "http://x:0/",
        "http://h/\n",
        "ftp://h/",
        "h/path",
    ],
)
def test_a_webhook_that_nothing_could_be_sent_to_is_refused(url: str) -> None:
    assert "the webhook must be" in refusal(webhook_url=url)


@pytest.mark.parametrize(
    "url",
    ["http://h", "HTTPS://h:8443/x?y=z", "http://user:word@[::1]:80/", "https://bücher.example/"],
)
def test_any_url_of_a_server_can_be_a_webhook(url: str) -> None:
    check_request(Request("x", webhook_url=url), SETTINGS)


def test_a_request_with_everything_in_order_is_taken() -> None:
    check_request(
        Request(
            "x",
            limits=JobLimits(),
            mode=Mode.TEAM,
            specialists=("writer",),
            idempotency_key="k",
            model="m",
        ),
        SETTINGS,
    )


@pytest.mark.parametrize("job_id", [None, 7, b"j-000000000000"])
def test_what_is_no_text_is_no_jobs_id(jobs: Client, job_id: Any) -> None:
    with pytest.raises(UnknownJob):
        jobs.result(job_id)
