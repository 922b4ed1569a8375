"""The client refuses a request that the live workers cannot serve. No worker has ever served its
fact-checker, or its limit in money excludes all models of its specialist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.cli.request_options import RequestOptions, build_request
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.gates.gates_file import GateSet
from tests.doubles.handoffs import a_spec
from tests.supervisor.shell import Shell, running_shell
from tests.supervisor.workflows.workflow_files import make_workflow

REQUEST = Request("How high is it?", gates=Gates(fact_checker="legal"))


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    with running_shell(redis_url) as supervisor:
        yield supervisor


def test_a_fact_checker_that_was_never_served_is_refused(shell: Shell) -> None:
    shell.serve("researcher", "writer")

    with pytest.raises(
        UserError,
        match=(
            r"^fact_checker: no worker serves or has served 'legal': use one of researcher, writer$"
        ),
    ):
        shell.jobs.submit(REQUEST)


def test_an_unserved_fact_checker_is_refused_before_any_line_of_a_file_is_submitted(
    shell: Shell,
) -> None:
    shell.serve("researcher")

    expected = r"^gates: fact_checker: no worker serves or has served 'legal'"
    with pytest.raises(UserError, match=expected):
        build_request(
            RequestOptions("How high is it?", gates=GateSet(Gates(fact_checker="legal"))),
            shell.jobs,
        )


def test_a_fact_checker_that_was_served_once_is_accepted(shell: Shell) -> None:
    shell.serve("researcher")
    sample = '{"at": 1, "usd": 1, "ms": 1, "waited_ms": 0, "turns": 1, "bucket": null}'
    shell.store.connection.redis.lpush(keys.history("legal"), sample)
    shell.store.connection.redis.expire(keys.history("legal"), 60)

    assert shell.jobs.info(shell.jobs.submit(REQUEST)).status is JobStatus.QUEUED


def test_a_fact_checker_that_was_only_requested_is_refused(shell: Shell) -> None:
    shell.serve("researcher")
    shell.store.connection.redis.hset(keys.QUEUES, "legal", 0)

    with pytest.raises(UserError, match="no worker serves or has served 'legal'"):
        shell.jobs.submit(REQUEST)


def test_without_any_worker_every_fact_checker_is_accepted(shell: Shell) -> None:
    assert shell.jobs.info(shell.jobs.submit(REQUEST)).status is JobStatus.QUEUED


def test_a_model_that_no_worker_has_a_key_for_is_named_in_quotes(shell: Shell) -> None:
    shell.serve("writer")

    with pytest.raises(UserError, match="has a key for the model 'a b': set ANTHROPIC_API_KEY"):
        shell.jobs.submit(Request("Compare.", model="a b"))


ONE_USD = JobLimits(max_microusd=1_000_000)
HAIKU = "claude-haiku-4-5"


def client_with_key(shell: Shell) -> Client:
    return Client(shell.store, Settings(offline=False))


@pytest.mark.parametrize("names_it_in", ["the request", "the workflow"])
def test_a_limit_in_money_refuses_a_specialist_whose_models_have_no_known_price(
    shell: Shell, tmp_path: Path, names_it_in: str
) -> None:
    poet = a_spec(name="poet").model_copy(update={"models": ("my-alias", "other-alias")})
    shell.announce(poet, a_spec(name="writer"), model="anthropic")
    request = Request("Write a poem", limits=ONE_USD, specialists=("poet",))
    if names_it_in == "the workflow":
        workflow = make_workflow(tmp_path, "id: a, specialist: poet, task: Write.")
        request = Request("Write a poem", limits=ONE_USD, workflow=workflow)

    why = "the price of my-alias is not known, so max_microusd cannot be kept"
    with pytest.raises(UserError, match=f"^specialist poet: {re.escape(why)}"):
        client_with_key(shell).submit(request)


@pytest.mark.parametrize(
    ("models", "fields"),
    [
        (("my-alias", HAIKU), {"limits": ONE_USD}),
        (("my-alias",), {}),
        (("my-alias",), {"limits": ONE_USD, "model": HAIKU}),
        (("my-alias",), {"limits": ONE_USD, "specialists": ("poet", "writer")}),
    ],
    ids=["one has a price", "no limit", "the job names a model", "another specialist"],
)
def test_a_job_that_may_find_a_model_with_a_price_is_accepted(
    shell: Shell, models: tuple[str, ...], fields: dict[str, Any]
) -> None:
    poet = a_spec(name="poet").model_copy(update={"models": models})
    shell.announce(poet, a_spec(name="writer"), model="anthropic")

    client = client_with_key(shell)
    job_id = client.submit(Request("Write a poem", **{"specialists": ("poet",), **fields}))
    assert client.store.jobs.read([job_id])[0].status is JobStatus.QUEUED
