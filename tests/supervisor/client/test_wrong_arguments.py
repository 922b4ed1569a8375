"""Each wrong argument of a public function or method is refused in words, or has no effect."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import handoff_queue
from handoff_queue import read_facts, read_items, read_workflow
from handoff_queue.shared.types.errors import HandoffError, UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.review import Rubric
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.forks import ForkOptions
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.client.schedules import ScheduleOptions
from tests.supervisor.client.test_client import end_job

WRONG: dict[str, Any] = {
    "an object": object(),
    "no value": None,
    "a flag": True,
    "a negative number": -1,
    "zero": 0,
    "a large number": 10**30,
    "a fraction": 0.5,
    "not a number": float("nan"),
    "an empty text": "",
    "an unknown text": "nonsense",
    "half a character": "\ud800",
    "a text with a null": "a\0b",
    "bytes": b"a",
    "a list": [1],
    "a mapping": {"a": 1},
}
METHODS = sorted(
    name
    for name, value in inspect.getmembers(Client, inspect.isfunction)
    if not name.startswith("_") and inspect.signature(value).parameters.keys() != {"self"}
)
FUNCTIONS = sorted(name for name in handoff_queue.__all__ if name.startswith("read_"))
LIMITS: Any = JobLimits
RUBRIC: Any = Rubric
WORKFLOW: Any = read_workflow
"""Functions that type checkers do not check."""
OPTIONAL = ("expires_s", "idempotency_key", "texts", "wait_s")
"""Parameters of the methods with a tenant that a call may leave out."""
INTERNAL = ("Redis refused", "__init__", "positional argument", "JobLimits", "has no attribute")
"""Words of errors that a user cannot understand."""


def parameters(function: Callable[..., Any]) -> list[str]:
    names = list(inspect.signature(function).parameters)
    return [name for name in names if name != "self"]


def parameters_of(method: str) -> list[str]:
    return parameters(getattr(Client, method))


def assert_words(function: Callable[..., Any], arguments: dict[str, Any], call: str) -> None:
    """Assert that a call succeeds, or raises an error in words."""
    message = ""
    try:
        result = function(**arguments)
        if isinstance(result, Iterator):
            list(result)
    except HandoffError as error:
        message = str(error)
    except Exception as error:
        raise AssertionError(f"{call} raises {type(error).__name__}") from error
    assert not any(word in message for word in INTERNAL), f"{call}: {message}"


@pytest.mark.parametrize("name", METHODS)
def test_a_method_refuses_a_wrong_argument_in_words(name: str, jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare."))
    end_job(jobs, job_id)
    method = getattr(jobs, name)
    valid: dict[str, Any] = {
        "actor": handoff_queue.Actor(name="ann", via="api"),
        "count": 1,
        "from_step": "a",
        "handoff_ids": [],
        "job_id": job_id,
        "name": "news",
        "options": ScheduleOptions("@daily"),
        "path": "a/b",
        "request": Request("Compare."),
        "requests": [],
        "agent": "writer",
        "text": "x",
        "token_id": "0123abcd",
        "wait_s": 0.0,
        "tenant": "acme",
    }
    if name == "events":
        valid["follow"] = False
    if name == "fork":
        valid["options"] = ForkOptions()
    if name == "create_token":
        valid["access"] = handoff_queue.AccessLevel.READ
    needed = {key: valid[key] for key in parameters(method) if key in valid}

    for key in parameters(method):
        for label, value in WRONG.items():
            assert_words(method, {**needed, key: value}, f"{name}({key}={label})")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_refuses_a_wrong_argument_in_words(name: str, tmp_path: Path) -> None:
    function = getattr(handoff_queue, name)
    first = parameters(function)[0]

    for key in parameters(function):
        valid = {first: "brief" if key == "dirs" else tmp_path / "missing.csv"}
        for label, value in WRONG.items():
            assert_words(function, {**valid, key: value}, f"{name}({key}={label})")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda jobs, _: jobs.retry("j-000000000000", limits=JobLimits()), "NewLimits, not Limits"),
        (lambda jobs, job_id: list(jobs.events(job_id, after=-1)), "740,992, not -1"),
        (lambda jobs, _: jobs.audit(count=0), "count must be a whole number of at least 1, not 0"),
        (lambda jobs, job_id: jobs.audit(job_id, 0), "at least 1, not 0"),
        (lambda jobs, _: jobs.pause("writer", 5), "reason must be of type str, not int"),
        (lambda *_: RUBRIC(()), "Rubric: write the name of each field: Rubric(criteria=...)"),
        (lambda *_: LIMITS(3), "Limits: write the name of each field: Limits(max_turns=...)"),
        (lambda *_: read_items("no.csv"), "no.csv"),
        (lambda *_: read_facts("no.csv"), "no.csv"),
        (lambda *_: WORKFLOW(5), "the file must be a pathlib.Path or a text, not int"),
    ],
)
def test_a_refusal_names_the_argument_and_the_public_types(
    call: Callable[[Client, JobId], object], words: str, jobs: Client
) -> None:
    job_id = jobs.submit(Request("Compare."))

    with pytest.raises(UserError) as refused:
        call(jobs, job_id)

    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_may_be_named_by_a_text(tmp_path: Path) -> None:
    items, facts = tmp_path / "items.txt", tmp_path / "facts.csv"
    items.write_text("a\n")
    facts.write_text("subject,attribute,value\nQdrant,licence,Apache\n")

    assert read_items(str(items)).lines == ("a",)
    assert read_facts(str(facts)).facts[0].subject == "Qdrant"


@pytest.mark.parametrize("tenant", ["", " ", "two\nlines", "b" * 101])
@pytest.mark.parametrize("name", [name for name in METHODS if "tenant" in parameters_of(name)])
def test_a_method_refuses_a_name_that_no_tenant_can_have(
    name: str, tenant: str, jobs: Client
) -> None:
    """A program may pass an empty name by mistake. It must not act on the jobs of all tenants."""
    job_id = jobs.submit(Request("Compare."))
    end_job(jobs, job_id)
    values = {"access": handoff_queue.AccessLevel.READ, "tenant": tenant}
    needed = {key: values.get(key, "a/b") for key in parameters_of(name) if key not in OPTIONAL}

    with pytest.raises(UserError, match="tenant"):
        getattr(jobs, name)(**needed)

    assert jobs.info(job_id).job_id == job_id
