"""`handoff up` serves a specialist of the user from the moment at which its worker starts in
another terminal, as `docs/how-to/add-a-specialist.md` says.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from handoff_queue.shared.settings.ports import find_free_port
from tests.docs.sample_files import SHOWN
from tests.docs.samples import commands, of_page
from tests.e2e.commands import Handoff
from tests.e2e.test_cli_up import console_of, exported, refused_at
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

GUIDE = "docs/how-to/add-a-specialist.md"
WORKFLOW = """
description: One step of one specialist.
review: false
steps:
  - id: look
    specialist: {specialist}
    task: "{{request}}"
"""
REQUEST = "Which databases store vectors?"


@dataclass(frozen=True)
class System:
    """`handoff up`, and the worker of the guide in another terminal."""

    home: Handoff
    other: Handoff
    variables: dict[str, Any]

    def run(self, *arguments: str) -> Any:
        """Run a command with the variables of the other terminal, and return its JSON."""
        ended = self.other.run(*arguments, **self.variables)
        assert ended.stdout, ended.stderr
        return json.loads(ended.stdout)

    def run_step_of(self, specialist: str) -> Any:
        """Run a job whose only step is of this specialist, and return its result."""
        workflow = self.other.folder / f"{specialist}.yaml"
        workflow.write_text(WORKFLOW.format(specialist=specialist))
        (self.other.folder / "note.md").write_text("Two databases store vectors.\n")
        options = ("--workflow", str(workflow), "--docs", "note.md", "--json")
        return self.run("run", REQUEST, *options)

    def get(self, path: str) -> Any:
        """Return the JSON of a page of the HTTP API."""
        with urllib.request.urlopen(f"{console_of(self.home)}{path}", timeout=30) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    home = Handoff(tmp_path_factory.mktemp("up"))
    other = Handoff(tmp_path_factory.mktemp("other"))
    (worker_command,) = [
        line
        for line in commands(of_page(GUIDE, "console", "$ handoff worker orders"))
        if line.startswith("handoff worker orders")
    ]
    for name in ("our-specialists/orders.md", "our-tools/shop.py"):
        file = other.folder / name
        file.parent.mkdir()
        file.write_text(of_page(*SHOWN[name]))
    with ExitStack() as parts:
        parts.enter_context(home.started("up", "--serve-port", str(find_free_port())))
        started = System(home, other, exported(home))
        parts.enter_context(other.started(*worker_command.split()[1:], **started.variables))
        wait_until(
            lambda: "orders" in names_of(started.run("specialists", "--json")),
            timeout_s=60,
            expected="the worker of orders",
        )
        yield started


def names_of(specialists: list[dict[str, Any]]) -> set[str]:
    return {specialist["name"] for specialist in specialists}


def test_a_worker_in_another_terminal_answers_the_steps_of_its_specialist(system: System) -> None:
    result = system.run_step_of("orders")

    assert result["answer"]["summary"].startswith("Two databases store vectors")


def test_jobs_of_other_specialists_end_while_an_added_worker_runs(system: System) -> None:
    assert system.run_step_of("researcher")["status"] in ("ok", "partial")
    assert system.run("dead", "--json") == []


def test_the_pages_of_the_fleet_show_an_added_worker(system: System) -> None:
    assert "orders" in names_of(system.get("/v1/specialists"))
    assert "orders" in {agent["agent"] for agent in system.get("/v1/stats")["agents"]}


def test_no_process_runs_a_refused_command_because_of_an_added_worker(system: System) -> None:
    system.run_step_of("orders")

    assert refused_at(system.variables["HANDOFF_REDIS_URL"]) == []


def test_a_step_of_a_misspelled_specialist_waits_with_the_reason(system: System) -> None:
    workflow = system.other.folder / "misspelled.yaml"
    workflow.write_text(WORKFLOW.format(specialist="reseacher"))
    submitted = system.other.run("submit", REQUEST, "--workflow", str(workflow), **system.variables)
    job_id = submitted.stdout.strip()
    reason = "step look waits for a worker of `reseacher` (did you mean `researcher`?)"

    assert "did you mean researcher?" in submitted.stderr
    wait_until(
        lambda: reason in system.other.run("show", job_id, **system.variables).stdout,
        timeout_s=60,
        expected="the reason in `show`",
    )
    (listed,) = [job for job in system.run("list", "--json") if job["job_id"] == job_id]
    assert reason in listed["waiting_for"]
    assert system.run("dead", "--json") == []
    assert system.other.run("cancel", job_id, **system.variables).returncode == 0
