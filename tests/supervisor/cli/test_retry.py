"""`handoff retry` on a broker, and for an interrupted run of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.types.errors import UnknownJob, UserError
from handoff_queue.shared.types.events import JobEnded, JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.cli.commands import load_command
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request

INTERRUPTED = JobId("j-0123456789ab")


@pytest.fixture
def interrupted_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobId:
    """Return the job of an interrupted run in the cache folder."""
    (tmp_path / "interrupted" / INTERRUPTED).mkdir(parents=True)
    monkeypatch.setenv("HANDOFF_CACHE_DIR", str(tmp_path))
    return INTERRUPTED


def retry(*arguments: str) -> object:
    return load_command("retry").main(list(arguments), standalone_mode=False)


def failed_job(jobs: Client) -> JobId:
    job_id = jobs.submit(Request("Compare."))
    jobs.store.journal.append(job_id, JobEnded(status=JobStatus.FAILED), {"status": "failed"})
    return job_id


def test_an_ended_job_on_a_broker_continues_and_the_command_returns(
    broker: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    job_id = failed_job(broker)

    assert retry(job_id, "--max-usd", "2") == 0

    assert capsys.readouterr().out == f"{job_id} continues: `handoff watch {job_id}`\n"
    assert broker.info(job_id).status == JobStatus.QUEUED


@pytest.mark.parametrize("option", ["--json", "--allow-partial", "--output=rows.csv"])
def test_an_option_of_a_run_is_refused_on_a_broker(broker: Client, option: str) -> None:
    job_id = failed_job(broker)

    with pytest.raises(UserError, match=f"use them with `handoff result {job_id} --wait 1h`"):
        retry(job_id, option)
    assert broker.info(job_id).status == JobStatus.FAILED


@pytest.mark.usefixtures("broker")
def test_an_interrupted_run_is_named_where_the_broker_has_no_such_job(
    interrupted_run: JobId,
) -> None:
    with pytest.raises(
        UnknownJob, match=f"{interrupted_run} is an interrupted run on this machine"
    ):
        retry(interrupted_run)


@pytest.mark.parametrize("options", [("--from", "write"), ("--max-usd", "2")])
def test_an_interrupted_run_continues_with_its_own_limits(
    interrupted_run: JobId, monkeypatch: pytest.MonkeyPatch, options: tuple[str, str]
) -> None:
    monkeypatch.delenv("HANDOFF_REDIS_URL", raising=False)

    with pytest.raises(UserError, match="leave out --from and --max-"):
        retry(interrupted_run, *options)


def test_an_unknown_interrupted_run_is_refused_with_the_runs_of_this_machine(
    interrupted_run: JobId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HANDOFF_REDIS_URL", raising=False)

    with pytest.raises(UnknownJob, match=rf"no interrupted run j-ff \(it has: {interrupted_run}\)"):
        retry("j-ff")
