"""Every invalid request gives a one-line error, in the client and in the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import UnknownJob, UserError
from handoff_queue.shared.types.job_options import Mode, Priority
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.names import RESERVED
from handoff_queue.shared.types.review import DEFAULT_RUBRIC
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request, check_request
from tests.refusals import refusal_of
from tests.supervisor.workflows.workflow_files import make_workflow

SETTINGS = Settings(offline=True)


def refusal(**fields: Any) -> str:
    with pytest.raises(UserError) as refused:
        check_request(Request(**{"text": "x", **fields}), SETTINGS)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("priority", [None, Priority.INTERACTIVE])
def test_a_deadline_needs_the_priority_batch(priority: Priority | None) -> None:
    assert "needs the priority batch" in refusal(deadline_s=60, priority=priority)


@pytest.mark.parametrize("seconds", [0, -1, 10**9])
def test_a_deadline_is_within_bounds(seconds: int) -> None:
    assert "deadline_s must be from 1" in refusal(deadline_s=seconds, priority=Priority.BATCH)


def test_a_rubric_and_a_step_after_the_review_need_a_review(tmp_path: Path) -> None:
    steps = """
        id: find, specialist: writer, task: Find
        id: send, specialist: writer, task: Send, after: review, depends_on: [find]
    """

    assert refusal(is_reviewed=False, rubric=DEFAULT_RUBRIC).startswith("a rubric needs")
    assert refusal(is_reviewed=False, workflow=make_workflow(tmp_path, steps)).startswith(
        "step send waits for the review"
    )


@pytest.mark.parametrize("name", RESERVED)
def test_a_reserved_name_is_not_a_specialist(name: str) -> None:
    assert f"{name!r} is reserved for the supervisor" in refusal(specialists=(name,))


def test_a_reserved_name_in_a_workflow_made_in_python_is_not_a_specialist(tmp_path: Path) -> None:
    definition = make_workflow(tmp_path, "id: a, specialist: writer, task: Write")
    changed = replace(definition, steps=(replace(definition.steps[0], specialist="planner"),))

    assert refusal(workflow=changed) == (
        "step a: 'planner' is reserved for the supervisor: use the name of a specialist"
    )


@pytest.mark.parametrize("name", ["", "Writer", "a b", "x" * 49, "../x", "w\n"])
def test_an_invalid_name_is_not_a_specialist(name: str) -> None:
    assert "is not a valid name: use the name of a specialist" in refusal(specialists=(name,))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": None}, "the request must be of type str, not NoneType"),
        ({"tenant": None}, "the tenant must be of type str, not NoneType"),
        (
            {"mode": "teem"},
            "the mode must be of type Mode, not 'teem': use one of Mode.AUTO, Mode.SINGLE,"
            " Mode.PIPELINE, Mode.TEAM, Mode.ADAPTIVE",
        ),
        ({"priority": 1}, "the priority must be of type Priority, not 1: use one of Priority."),
        (
            {"limits": {"max_turns": 3}},
            "the limits must be of type Limits, not dict: write Limits(...) with these fields",
        ),
        ({"specialists": "writer"}, "specialists must be a tuple of names"),
        ({"specialists": (None,)}, "specialists must be a tuple of names"),
        ({"specialists": ("writer",) * 1_001}, "the job names 1,001 specialists, at most 1,000"),
        ({"idempotency_key": 7}, "the idempotency key must be of type str, not int"),
        (
            {"approvals": "plan"},
            "the approvals must be of type Approvals, not str: write for example"
            " Approvals(what=(ApprovalOf.PLAN,))",
        ),
        (
            {"items": ["a"]},
            "the items must be of type Items, not list: write read_items('FILE')",
        ),
        (
            {"items": "rows.csv"},
            "the items must be of type Items, not str: write read_items('rows.csv')",
        ),
        (
            {"facts": Path("facts.csv")},
            "the facts must be of type FactTable, not PosixPath: write read_facts('facts.csv')",
        ),
        ({"gates": {"max_words": 3}}, "the gates must be of type Gates, not dict"),
        ({"rubric": "x"}, "the rubric must be of type Rubric, not str"),
        (
            {"workflow": "brief"},
            "the workflow must be of type Workflow, not str: write read_workflow('brief')",
        ),
        (
            {"workflow": Path("flow.yaml")},
            "the workflow must be of type Workflow, not PosixPath: write"
            " read_workflow('flow.yaml')",
        ),
        ({"answer_schema": "x"}, "the answer schema must be of type Mapping, not str"),
    ],
)
def test_a_field_of_another_type_is_named(fields: dict[str, Any], message: str) -> None:
    assert refusal(**fields).startswith(message)


@pytest.mark.parametrize("text", ["", "  ", "a\nb", "\x1b[31m"])
def test_an_empty_key_or_model_is_invalid(text: str) -> None:
    assert refusal(idempotency_key=text).startswith("the idempotency key is ")
    assert refusal(model=text).startswith("the model's name is ")


def test_the_name_of_a_model_has_at_most_200_characters() -> None:
    check_request(Request("x", model="m" * 200), SETTINGS)

    assert refusal(model="m" * 201).startswith("the model's name has 201 characters")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://",
        "http:///path",
        "http://a b/",
        "http://[::1",
        "http://[::1]x/",
        "http://x:99999/",
        "http://x:0/",
        "http://x:port/",
        "http://a..b/",
        f"http://{'a' * 64}.example/",
        "http://h/\n",
        "http://h/\xfc",
        "https://bücher.example/",
        "ftp://h/",
        "h/path",
        "http://h/" + "x" * 2_000,
    ],
)
def test_a_webhook_url_that_cannot_be_requested_is_refused(url: str) -> None:
    assert refusal(webhook_url=url).startswith("webhook_url ")


def test_a_refused_webhook_is_named_by_its_scheme_and_its_host() -> None:
    message = refusal(webhook_url="ftp://user:canary@h.example/canary?canary")

    assert message.startswith("webhook_url ftp://h.example must begin with http://")
    assert "canary" not in message
    assert refusal(webhook_url="my-hook").startswith("webhook_url 'my-hook' must begin with")


@pytest.mark.parametrize("user", ["user:canary-90f3", "user", ":canary-90f3"])
def test_a_webhook_with_a_password_is_refused_without_repeating_it(user: str) -> None:
    message = refusal(webhook_url=f"https://{user}@h.example/")

    assert "must not hold a user or a password" in message
    assert "canary" not in message
    assert refusal(webhook_url="my-hook").startswith("webhook_url 'my-hook' must begin with")


@pytest.mark.parametrize(
    "url",
    ["http://h", "HTTPS://h:8443/x?y=z", "http://[::1]:80/", "https://xn--bcher-kva.example/"],
)
def test_any_url_of_a_server_is_a_valid_webhook(url: str) -> None:
    assert refusal_of(check_request, Request("x", webhook_url=url), SETTINGS) is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_seconds": 9_300_000_000_000_000}, "the limits: max_seconds: must be at most"),
        ({"max_turns": -1}, "the limits: max_turns: must be at least 1"),
        ({"max_microusd": 2**63}, "the limits: max_microusd: must be at most"),
        ({"max_depth": float("nan")}, "the limits: max_depth: must be a whole number"),
    ],
)
def test_a_limit_that_was_set_without_validation_is_refused(
    fields: dict[str, Any], message: str
) -> None:
    assert refusal(limits=JobLimits().model_copy(update=fields)).startswith(message)


def test_approvals_may_be_none() -> None:
    assert refusal_of(check_request, Request("x", approvals=None), SETTINGS) is None


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../a.md", "a/../b.md", ".hidden", "a\nb", "a\\b.md", "a//b.md"]
)
def test_an_impossible_document_name_is_refused(name: str) -> None:
    assert "no document can be called" in refusal(documents={name: b"text"})


def test_documents_by_name_are_bytes() -> None:
    assert "mapping of str to bytes" in refusal(documents={"a.md": "text"})


def test_a_valid_request_is_accepted() -> None:
    request = Request(
        "x",
        limits=JobLimits(),
        mode=Mode.TEAM,
        specialists=("writer",),
        idempotency_key="k",
        model="m",
    )

    assert refusal_of(check_request, request, SETTINGS) is None


@pytest.mark.parametrize("job_id", [None, 7, b"j-000000000000"])
def test_a_value_that_is_not_text_is_not_a_job_id(jobs: Client, job_id: Any) -> None:
    with pytest.raises(UnknownJob):
        jobs.result(job_id)


def test_an_unknown_model_in_price_as_is_named() -> None:
    settings = Settings(offline=False, specialist_model="my-alias", price_as="no-such")
    with pytest.raises(UserError) as refused:
        check_request(Request("x", limits=JobLimits(max_microusd=1_000_000)), settings)
    assert str(refused.value) == (
        "the price of my-alias is not known, and the price of no-such (HANDOFF_PRICE_AS) is not"
        " known either, so max_microusd cannot be kept: set HANDOFF_PRICE_AS to a model"
        " with the same price"
    )
