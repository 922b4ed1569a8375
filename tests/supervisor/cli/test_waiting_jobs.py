"""Every command that shows a job shows the question of a waiting job and the start of its wait."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.cli.commands import load_command
from handoff_queue.supervisor.cli.display.job_status import format_headline
from handoff_queue.supervisor.cli.display.job_view import JobView, with_events, with_fresh_info
from handoff_queue.supervisor.cli.doctor import examine
from handoff_queue.supervisor.cli.doctor_processes import CheckLevel
from handoff_queue.supervisor.cli.errors import NOT_ENDED, OK
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request

SINCE_MS = 1_770_000_000_000
SINCE = "2026-02-02 02:40:00 UTC"
RunCommand = Callable[..., str]


@pytest.fixture
def waiting_job(broker: Client) -> JobId:
    """Return a job whose plan waits for approval."""
    job_id = broker.submit(Request("Compare Qdrant and Milvus."))
    fields = {"asked_last": 4, "approval:4": "plan", "asked_at": SINCE_MS}
    broker.store.connection.redis.hset(keys.job(job_id), "status", "running")
    broker.store.connection.redis.hset(keys.progress(job_id), mapping=fields)
    return job_id


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """Return a function that runs a command and returns its output as one line."""

    def run(name: str, *arguments: str, code: int = OK) -> str:
        assert load_command(name).main(arguments, standalone_mode=False) == code
        streams = capsys.readouterr()
        return " ".join((streams.out + streams.err).split())

    return run


def test_result_shows_the_reason_and_the_start_of_a_wait(
    waiting_job: JobId, run_command: RunCommand
) -> None:
    text = run_command("result", waiting_job, code=NOT_ENDED)

    assert (
        f"{waiting_job} is waiting: the job waits for an approval of its plan by a person" in text
    )
    assert f"since {SINCE}: `handoff approve {waiting_job}`" in text


@pytest.mark.parametrize("command", ["list", "show JOB", "show JOB --full"])
def test_list_and_show_name_the_wait(
    waiting_job: JobId, run_command: RunCommand, command: str
) -> None:
    text = run_command(*command.replace("JOB", waiting_job).split())

    assert f"{waiting_job} waiting" in text
    assert f"an approval of its plan by a person since {SINCE}" in text


@pytest.mark.parametrize(
    ("command", "is_listed"),
    [("waiting", True), ("running", False), ("running,waiting", True), ("ok", False)],
)
def test_list_filters_by_waiting_status(
    waiting_job: JobId, run_command: RunCommand, command: str, is_listed: bool
) -> None:
    assert (waiting_job in run_command("list", "--status", command)) is is_listed


def test_json_output_has_the_waiting_status_and_its_start(
    waiting_job: JobId, run_command: RunCommand
) -> None:
    (listed,) = json.loads(run_command("list", "--json"))
    result: dict[str, Any] = json.loads(
        run_command("result", waiting_job, "--json", code=NOT_ENDED)
    )

    assert (listed["status"], listed["approval"]) == ("waiting", "plan")
    assert listed["asked_at"] == SINCE_MS / 1_000
    assert (result["status"], result["waiting_since"]) == ("waiting", SINCE_MS / 1_000)


def test_stats_counts_waiting_jobs(
    broker: Client, waiting_job: JobId, run_command: RunCommand
) -> None:
    broker.store.connection.redis.zadd(keys.DUE, {waiting_job: SINCE_MS})
    broker.submit(Request("Another one."))

    assert "2 open jobs (1 waiting for a person)" in run_command("stats")
    assert json.loads(run_command("stats", "--json"))["waiting_jobs"] == 1


def test_doctor_counts_waiting_jobs_and_names_the_command(
    waiting_job: JobId, redis_url: str
) -> None:
    settings = Settings(redis_url=SecretStr(redis_url), offline=True)

    (finding,) = (
        finding for finding in examine(settings) if finding.about == "waiting for a person"
    )
    assert finding.level is CheckLevel.OK
    assert finding.report.startswith("1 job, the first since 2026-02-0")
    assert "handoff list --status waiting" in finding.fix


@pytest.mark.slow
def test_doctor_is_silent_where_no_job_waits(broker: Client, redis_url: str) -> None:
    broker.submit(Request("Compare Qdrant and Milvus."))

    findings = examine(Settings(redis_url=SecretStr(redis_url), offline=True))
    assert "waiting for a person" not in [finding.about for finding in findings]


def test_the_headline_of_watch_has_the_status(broker: Client, waiting_job: JobId) -> None:
    events = list(broker.events(waiting_job, follow=False))

    view = with_fresh_info(broker, with_events(broker, JobView(waiting_job), events))
    assert format_headline(view).split("  ")[1] == "waiting"


def test_all_waiting_jobs_can_be_cancelled(
    broker: Client, waiting_job: JobId, run_command: RunCommand
) -> None:
    other = broker.submit(Request("Another one."))

    assert "1 job is being cancelled" in run_command(
        "cancel", "--all", "--status", "waiting", "--yes"
    )
    assert broker.info(waiting_job).cancelled
    assert not broker.info(other).cancelled
