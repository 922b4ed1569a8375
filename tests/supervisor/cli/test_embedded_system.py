"""The processes of a private system sign their messages, as those of `handoff up` do."""

from __future__ import annotations

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.events import EventRefused
from handoff_queue.supervisor.cli.embedded_system import EmbeddedSystem
from handoff_queue.supervisor.client.client import connect
from handoff_queue.supervisor.client.request import Request


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
def test_the_journal_of_a_private_run_is_signed() -> None:
    with EmbeddedSystem(Settings(offline=True)) as system:
        jobs = connect(system.url, system.build_client_settings())
        system.wait_until_ready(jobs)
        job_id = jobs.submit(Request("Which database is the best?"))
        jobs.wait(job_id, 60)
        journal = jobs.store.journal
        events = [recorded.event for recorded in journal.read(job_id)]

    assert journal.checks_signatures
    assert len(events) > 2
    assert not any(isinstance(event, EventRefused) for event in events)
