"""`handoff list --specialist` lists the jobs in which a specialist got a handoff."""

from __future__ import annotations

import json

import pytest

from handoff_queue.supervisor.cli.commands import load_command
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.client.client import Client
from tests.doubles.jobs import a_job, issue


def run_list(*arguments: str) -> None:
    assert load_command("list").main(arguments, standalone_mode=False) == OK


def test_only_jobs_of_the_specialist_are_listed(
    broker: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assigned, other = a_job(broker.store), a_job(broker.store)
    issue(broker.store, assigned, "a.1", role="writer")
    issue(broker.store, other, "a.1", role="reviewer")

    run_list("--specialist", "writer", "--json")
    listed = json.loads(capsys.readouterr().out)
    run_list("--specialist", "nobody")

    assert [job["job_id"] for job in listed] == [assigned]
    assert "no job matches" in capsys.readouterr().err
