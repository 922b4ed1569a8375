"""A command that waits for an answer checks first that the broker has processes."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.presence import Announcement
from handoff_queue.supervisor.cli.connection import require_processes
from handoff_queue.supervisor.client.client import Client
from tests.doubles.handoffs import a_spec


def announce_worker(jobs: Client, model: str = "offline") -> None:
    jobs.store.presence.announce(
        Announcement(worker="w1", specialists=(a_spec(),), slots=1, model=model)
    )


def refusal(jobs: Client, model: str | None = None) -> str | None:
    """Return why a command with this model cannot wait for an answer; None: it can."""
    try:
        require_processes(jobs, model)
    except UserError as error:
        return str(error)
    return None


def test_an_announced_process_counts_as_present(jobs: Client) -> None:
    announce_worker(jobs)
    jobs.store.presence.announce_supervisor("s1")

    assert refusal(jobs) is None
    assert refusal(jobs, "offline") is None


def test_without_a_supervisor_the_message_names_the_command_to_start(jobs: Client) -> None:
    announce_worker(jobs)

    with pytest.raises(
        UserError,
        match="no supervisor takes jobs from this broker: start one: `handoff supervisor`",
    ):
        require_processes(jobs)


def test_without_workers_the_message_names_the_command_to_start(jobs: Client) -> None:
    jobs.store.presence.announce_supervisor("s1")

    with pytest.raises(
        UserError,
        match="no worker serves any specialist on this broker: start some: `handoff worker --all`",
    ):
        require_processes(jobs)


def test_a_real_model_that_no_worker_has_is_refused(jobs: Client) -> None:
    announce_worker(jobs, "offline")
    jobs.store.presence.announce_supervisor("s1")

    with pytest.raises(UserError, match="--model claude-opus-5-5 is not available"):
        require_processes(jobs, "claude-opus-5-5")


def test_every_worker_has_the_offline_model(jobs: Client) -> None:
    announce_worker(jobs, "anthropic")
    jobs.store.presence.announce_supervisor("s1")

    assert refusal(jobs, "offline") is None
