"""`handoff cancel` stops several jobs by their ids, and all jobs that match a filter."""

from __future__ import annotations

import os
import pty
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.job_filter import EVERY_JOB
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import JobId, create_job_id
from handoff_queue.supervisor.cli.cancel import CancelOutcome, cancel, cancel_each
from handoff_queue.supervisor.cli.errors import BAD_INPUT, FAILED, OK
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch, typed: str) -> Iterator[None]:
    """Replace stdin and stderr by a terminal with this text as its input."""
    test_end, program_end = pty.openpty()
    os.write(test_end, typed.encode())
    with (
        open(program_end, closefd=False) as reader,
        open(program_end, "w", closefd=False) as writer,
        monkeypatch.context() as patch,
    ):
        patch.setattr(sys, "stdin", reader)
        patch.setattr(sys, "stderr", writer)
        yield
    os.close(program_end)
    os.close(test_end)


def submit_jobs(jobs: Client, count: int, tenant: str = "default") -> list[JobId]:
    return list(jobs.submit_each([Request(f"Job {n}.", tenant=tenant) for n in range(count)]))


def end_job(jobs: Client, job_id: JobId) -> None:
    jobs.store.connection.redis.hset(keys.job(job_id), "status", JobStatus.OK.value)


def cancelled_jobs(jobs: Client) -> set[JobId]:
    return {job.job_id for job in jobs.newest(1_000) if job.cancelled}


def test_several_jobs_are_cancelled_by_one_command(
    broker: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third = submit_jobs(broker, 3)

    assert cancel([first, second, first]) == OK
    assert capsys.readouterr().out.splitlines() == [
        f"{first} is being cancelled",
        f"{second} is being cancelled",
    ]
    assert cancelled_jobs(broker) == {first, second}
    assert third not in cancelled_jobs(broker)


def test_a_wrong_id_does_not_stop_the_other_cancels(
    broker: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, running = submit_jobs(broker, 2)
    end_job(broker, ended)
    unknown = create_job_id()

    assert cancel(["nonsense", unknown, ended, running, running[:13]]) == BAD_INPUT
    output = capsys.readouterr()
    assert output.out == f"{running} is being cancelled\n"
    assert [line.split(" ")[1] for line in output.err.splitlines()] == [
        "'nonsense'",
        "there",
        ended,
    ]
    assert cancelled_jobs(broker) == {running}


@pytest.mark.slow
def test_all_open_jobs_of_a_tenant_are_cancelled_and_counted(
    broker: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = submit_jobs(broker, 200, tenant="ann")
    right = submit_jobs(broker, 3, tenant="bob")
    end_job(broker, wrong[7])

    assert cancel(everything=True, tenant="ann", yes=True) == OK
    assert capsys.readouterr().out == "199 jobs are being cancelled\n"
    assert cancelled_jobs(broker) == set(wrong) - {wrong[7]}
    assert not set(right) & cancelled_jobs(broker)


def test_only_jobs_of_the_named_status_and_age_are_cancelled(
    broker: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, running = submit_jobs(broker, 3)
    redis = broker.store.connection.redis
    redis.zadd(keys.JOBS, {old: 1_000.0, running: 1_001.0})
    redis.hset(keys.job(running), "status", JobStatus.RUNNING.value)

    assert cancel(everything=True, statuses=["queued"], older_than=3_600.0, yes=True) == OK
    assert capsys.readouterr().out == "1 job is being cancelled\n"
    assert cancelled_jobs(broker) == {old}
    assert new not in cancelled_jobs(broker)


def test_a_job_that_ends_or_is_deleted_before_its_cancel_is_not_an_error(broker: Client) -> None:
    gone, ended, open_ = submit_jobs(broker, 3)
    broker.store.jobs.delete(gone)
    end_job(broker, ended)

    outcomes = cancel_each(broker, [gone, ended, open_], lambda *_: None)

    assert outcomes == {
        CancelOutcome.UNKNOWN: 1,
        CancelOutcome.HAD_ENDED: 1,
        CancelOutcome.STOPPED: 1,
    }


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Set Python's own handler of SIGINT, also if the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_reports_the_number_of_cancelled_jobs(
    broker: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    job_ids = submit_jobs(broker, 5)

    def interrupt_at_third(job_id: JobId, *_: object) -> None:
        if job_id == job_ids[2]:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        cancel_each(broker, job_ids, interrupt_at_third)

    assert "handoff: 3 of 5 jobs are being cancelled" in capsys.readouterr().err
    assert cancelled_jobs(broker) == set(job_ids[:3])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_a_terminal_cancel_all_needs_the_option_yes(broker: Client) -> None:
    submit_jobs(broker, 2)

    with pytest.raises(UserError, match="there is no terminal to ask: use --yes"):
        cancel(everything=True)

    assert cancelled_jobs(broker) == set()


@pytest.mark.parametrize(("answer", "code"), [("y", OK), ("YES", OK), ("", FAILED), ("n", FAILED)])
def test_cancel_all_asks_for_confirmation(
    broker: Client, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    job_ids = submit_jobs(broker, 2)

    with terminal(monkeypatch, f"{answer}\n"):
        assert cancel(everything=True) == code

    assert cancelled_jobs(broker) == (set(job_ids) if code == OK else set())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "name the jobs to cancel, or use --all"),
        ({"job": ["j-0123456789ab"], "everything": True}, "but not both"),
        ({"job": ["j-0123456789ab"], "tenant": "ann"}, "but not both"),
        ({"tenant": "ann"}, "need --all"),
        ({"everything": True, "statuses": [""]}, "'' is not a job status"),
        ({"everything": True, "statuses": ["runing"]}, "did you mean running"),
        ({"everything": True, "statuses": ["running,failed"]}, "--status failed: these jobs have"),
    ],
)
def test_an_ambiguous_cancel_cancels_nothing(
    broker: Client, options: dict[str, object], problem: str
) -> None:
    submit_jobs(broker, 1)

    with pytest.raises(UserError, match=problem):
        cancel(**options, yes=True)  # type: ignore[arg-type]

    assert cancelled_jobs(broker) == set()


def test_without_a_matching_job_nothing_is_cancelled(
    broker: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert broker.newest(9, EVERY_JOB) == []

    assert cancel(everything=True, yes=True) == OK
    assert capsys.readouterr().err == "handoff: no open job matches: there is nothing to cancel\n"
