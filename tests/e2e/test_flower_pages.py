"""Flower's Broker and Workers pages show the fleet without a refresh by hand."""

from __future__ import annotations

import json
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from handoff_queue.shared.settings.ports import find_free_port
from handoff_queue.shared.specialists import load_specialists
from handoff_queue.shared.types.names import (
    ROLES_QUEUE,
    SUBMISSIONS_QUEUE,
    SUPERVISOR_QUEUE,
    UNROUTED_QUEUE,
)
from handoff_queue.workers.specialists import BUILT_IN
from tests.e2e.commands import Handoff
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
LOG_IN = "admin:a-word-of-this-test"
QUEUES = {
    *load_specialists(BUILT_IN),
    *(SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, ROLES_QUEUE, UNROUTED_QUEUE),
}


@dataclass(frozen=True)
class Fleet:
    """System started by `handoff up --flower`, on a Redis with a key prefix."""

    handoff: Handoff
    redis_url: str
    flower_url: str

    def page(self, path: str) -> str:
        request = urllib.request.Request(f"{self.flower_url}{path}")
        request.add_header("Authorization", "Basic " + b64encode(LOG_IN.encode()).decode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            text: str = answer.read().decode()
            return text

    def json(self, path: str) -> Any:
        return json.loads(self.page(path))

    def queues(self) -> dict[str, int]:
        """Return the messages of each queue that Flower lists."""
        listed = self.json("/api/queues/length")["active_queues"]
        return {queue["name"]: queue["messages"] for queue in listed}


@pytest.fixture(scope="module")
def fleet(redis_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    handoff, port = Handoff(tmp_path_factory.mktemp("up")), find_free_port()
    url = f"{redis_server}?prefix=pages"
    up = ("up", "--no-serve", "--flower", "--flower-port", str(port))
    with handoff.started(*up, HANDOFF_REDIS_URL=url, FLOWER_BASIC_AUTH=LOG_IN):
        handoff.wait_for_text("Ctrl-C stops everything")
        yield Fleet(handoff, url, f"http://127.0.0.1:{port}")


def test_the_broker_page_lists_all_queues_of_the_fleet(fleet: Fleet) -> None:
    wait_until(lambda: set(fleet.queues()) == QUEUES, expected="all queues")

    page = fleet.page("/broker")
    assert [queue for queue in QUEUES if f"<td>{queue}</td>" not in page] == []


def test_a_failed_job_counts_as_failed(fleet: Fleet) -> None:
    completed = fleet.handoff.run(
        "run", "What is in the documents?", HANDOFF_REDIS_URL=fleet.redis_url
    )
    assert completed.returncode == 1, completed.stderr

    def failed_jobs() -> list[str]:
        tasks = fleet.json("/api/tasks?taskname=supervisor.job").values()
        return [task["worker"] for task in tasks if task["state"] == "FAILURE"]

    (worker,) = wait_until(failed_jobs, expected="the failed job in Flower")
    workers = {row["hostname"]: row for row in fleet.json("/workers?json=1")["data"]}
    assert workers[worker]["task-failed"] == 1
    assert set(workers) == {name for name in workers if workers[name]["status"]}, "no phantoms"
