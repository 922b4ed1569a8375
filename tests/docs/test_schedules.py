"""The page docs/how-to/schedules.md: its rules are those of the code, and its requests work."""

from __future__ import annotations

import subprocess

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.schedule import Missed, Overlap
from handoff_queue.supervisor.cli.serve import DEFAULT_PORT
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.client.cron import ALIASES
from handoff_queue.supervisor.client.schedule_decisions import ON_TIME_S
from handoff_queue.supervisor.serve.application import make_application
from tests.docs.pages import blocks, rows, sections, text_of
from tests.docs.samples import commands
from tests.supervisor.serve.serving import serving

PAGE = text_of("how-to/schedules")
ADDRESS = f"http://127.0.0.1:{DEFAULT_PORT}"


def test_the_table_has_every_rule() -> None:
    values = [row[1].strip("`") for row in rows(sections(PAGE)["Choose the rules"])]

    assert values[:6] == [*Overlap, *Missed]
    assert f"within {ON_TIME_S} seconds" in sections(PAGE)["Choose the rules"]
    named = {alias for alias in ALIASES if f"`{alias}`" in PAGE}
    assert named == set(ALIASES) - {"@midnight", "@annually"}


@pytest.mark.slow
def test_the_requests_of_the_page_add_and_run_a_schedule(redis_url: str) -> None:
    jobs = client.connect(redis_url, Settings(offline=True))
    typed = [command for block in blocks(PAGE, "console") for command in commands(block)]
    requests = [command for command in typed if command.startswith("curl ")]
    with serving(make_application(AsyncClient(jobs), jobs.settings)) as url:
        for request in requests:
            line = request.replace(ADDRESS, url)
            subprocess.run(
                ["bash", "-c", f"{line} --silent --show-error --fail-with-body"],
                capture_output=True,
                check=True,
            )

        (schedule,) = jobs.schedules()
        assert (schedule.name, schedule.started) == ("monthly", 1)
