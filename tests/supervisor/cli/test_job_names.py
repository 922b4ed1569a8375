"""Every command with a JOB argument takes the unique beginning of an id."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import UnknownJob, UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.cli import interrupted_runs
from handoff_queue.supervisor.cli.commands import load_command
from handoff_queue.supervisor.cli.errors import BAD_INPUT
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.job_lookup import MAX_CANDIDATES, find_job
from handoff_queue.supervisor.client.request import Request
from tests.e2e.commands import job_commands

DIGITS = 32  # an id is written in base32


def submit_jobs(jobs: Client, count: int) -> list[JobId]:
    return list(jobs.submit_each([Request(f"Job {n}.") for n in range(count)]))


def shared_beginning(job_ids: list[JobId]) -> tuple[str, list[JobId]]:
    """Return the most frequent prefix of three characters, and the ids with that prefix."""
    ((prefix, _),) = Counter(job_id[:3] for job_id in job_ids).most_common(1)
    return prefix, [job_id for job_id in job_ids if job_id.startswith(prefix)]


COMMANDS = job_commands()


def test_all_commands_that_take_a_job_are_tested() -> None:
    assert [
        *("watch", "result", "show", "trace", "export"),
        *("compare", "fork", "golden"),
        *("approve", "reject", "say", "retry", "cancel", "delete", "audit"),
    ] == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_a_prefix_of_several_ids_is_refused(
    broker: Client, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    prefix, same = shared_beginning(submit_jobs(broker, DIGITS + 1))

    others = {
        "say": [prefix, "Shorter."],
        "compare": ["j-0123456789ab", prefix],
        "fork": [prefix, "--from", "write"],
        "golden": ["add", prefix],
    }
    try:
        code = load_command(name).main(others.get(name, [prefix]), standalone_mode=False)
        line = capsys.readouterr().err
        assert code == BAD_INPUT
    except UserError as error:
        line = str(error)

    assert line.startswith(("handoff: ", "")[name != "cancel"] + prefix)
    assert sum(job_id in line for job_id in same) == min(len(same), MAX_CANDIDATES)
    assert "type more of the id" in line


@pytest.mark.parametrize("name", ["show", "export", "cancel", "result"])
def test_a_command_takes_the_unique_prefix_of_an_id(
    broker: Client, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (job_id,) = submit_jobs(broker, 1)

    load_command(name).main([job_id[:5]], standalone_mode=False)

    output = capsys.readouterr()
    assert job_id in output.out + output.err


def test_a_job_follows_the_job_with_a_unique_id_prefix(broker: Client) -> None:
    (job_id,) = submit_jobs(broker, 1)

    with pytest.raises(UserError, match=f"{job_id} has not ended"):
        load_command("submit").main(["More.", "--after", job_id[:6]], standalone_mode=False)


def test_a_whole_id_is_not_looked_up(broker: Client) -> None:
    assert find_job(broker.store, "j-0123456789ab") == "j-0123456789ab"


@pytest.mark.parametrize("text", ["", "j-", "j", "0123", "j-xy1", "j-0123456789abc", "J-01", "j-*"])
def test_a_text_that_cannot_begin_an_id_is_refused_with_an_example(
    broker: Client, text: str
) -> None:
    submit_jobs(broker, 1)

    with pytest.raises(UnknownJob, match="is not a job id, such as j-k5tq2wbz7x3mhd4n"):
        find_job(broker.store, text)


def test_an_unknown_prefix_is_refused(broker: Client) -> None:
    submit_jobs(broker, 1)

    with pytest.raises(UnknownJob, match="no job has an id that begins with j-0"):
        find_job(broker.store, "j-0")


def test_of_many_candidates_some_are_named(broker: Client) -> None:
    prefix, same = shared_beginning(submit_jobs(broker, DIGITS * MAX_CANDIDATES + 1))

    with pytest.raises(UserError, match="and others") as caught:
        find_job(broker.store, prefix)

    assert sum(job_id in str(caught.value) for job_id in same) == MAX_CANDIDATES


def test_an_interrupted_run_is_named_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    settings = Settings(cache_dir=tmp_path / "cache")
    for job_id in ("j-0a0000000000", "j-0b0000000000"):
        (tmp_path / job_id).mkdir()
        assert interrupted_runs.keep_run(settings, job_id, tmp_path / job_id, {})

    assert interrupted_runs.find_kept_job(settings, "j-0a") == "j-0a0000000000"
    with pytest.raises(UserError, match="j-0a0000000000, j-0b0000000000"):
        interrupted_runs.find_kept_job(settings, "j-0")
    with pytest.raises(UnknownJob, match="this machine has no interrupted run j-1"):
        interrupted_runs.find_kept_job(settings, "j-1")
    with pytest.raises(UserError, match=r"'\.\./j-0a' is not a job id: copy an id such as j-"):
        interrupted_runs.find_kept_job(settings, "../j-0a")
