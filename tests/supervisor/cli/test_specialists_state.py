"""Before a command waits for an answer it looks who is there, as `watch`, `list` and `submit` do."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.presence import Announcement
from handoff_queue.supervisor.cli.fleet_state import require_somebody
from handoff_queue.supervisor.client.client import Client
from tests.doubles.handoffs import a_spec


def a_worker(jobs: Client, model: str = "offline") -> None:
    jobs.store.presence.announce(
        Announcement(worker="w1", specialists=(a_spec(),), slots=1, model=model)
    )


def test_who_has_announced_itself_is_there(jobs: Client) -> None:
    a_worker(jobs)
    jobs.store.presence.announce_supervisor("s1")

    require_somebody(jobs)
    require_somebody(jobs, "offline")


def test_without_a_supervisor_it_says_what_to_start(jobs: Client) -> None:
    a_worker(jobs)

    with pytest.raises(
        UserError,
        match="no supervisor takes jobs from this broker: start one: `handoff supervisor`",
    ):
        require_somebody(jobs)


def test_without_workers_it_says_what_to_start(jobs: Client) -> None:
    jobs.store.presence.announce_supervisor("s1")

    with pytest.raises(
        UserError,
        match="no worker serves any specialist on this broker: start some: `handoff worker --all`",
    ):
        require_somebody(jobs)


def test_a_real_model_that_no_worker_has_is_refused(jobs: Client) -> None:
    a_worker(jobs, "offline")
    jobs.store.presence.announce_supervisor("s1")

    with pytest.raises(UserError, match="--model claude-opus-5-5 is not available"):
        require_somebody(jobs, "claude-opus-5-5")


def test_the_offline_model_can_be_had_of_every_worker(jobs: Client) -> None:
    a_worker(jobs, "anthropic")
    jobs.store.presence.announce_supervisor("s1")

    require_somebody(jobs, "offline")
