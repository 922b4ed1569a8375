"""`handoff up --flower` over restarts: roles, jobs and steps are found by search, also those
of before.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
import urllib.request
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.e2e.commands import DOCUMENTS, REQUEST, Handoff, processes
from tests.e2e.test_cli_up import url_in
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
LOG_IN = "admin:a-password-of-some-length"


@dataclass(frozen=True)
class Search:
    """What its search box finds, by the address that the box asks."""

    port: int

    def __call__(self, words: str) -> dict[str, Any]:
        """Task id -> task."""
        table = (
            "draw=1&start=0&length=1000&columns[0][data]=name&order[0][column]=0&order[0][dir]=asc"
        )
        url = f"http://127.0.0.1:{self.port}/tasks/datatable?{table}&search[value]={quote(words)}"
        page = urllib.request.Request(
            url, headers={"Authorization": "Basic " + b64encode(LOG_IN.encode()).decode()}
        )
        with urllib.request.urlopen(page, timeout=10) as answer:
            found = json.load(answer)
        assert "searchError" not in found, found
        return {task["uuid"]: task for task in found["data"]}

    def answers(self) -> bool:
        try:
            return bool(self("specialist."))
        except OSError:
            return False


def test_roles_jobs_and_steps_are_found_and_so_they_are_after_a_restart_and_a_kill(
    tmp_path: Path,
) -> None:
    handoff = Handoff(tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        search = Search(probe.getsockname()[1])
    up = ("up", "--flower", "--port", str(search.port))

    with handoff.started(*up, FLOWER_BASIC_AUTH=LOG_IN) as system:
        url = url_in(handoff)
        first, before = seen_job(handoff, url, search, REQUEST)
        seen_job(handoff, url, search, "What is HNSW?")
        assert found_well(search, first) == before
        system.send_signal(signal.SIGINT)
        assert system.wait(timeout=60) == 0

    with handoff.started(*up, FLOWER_BASIC_AUTH=LOG_IN):
        assert url_in(handoff) == url
        assert found_well(search, first) == before
        second, then = seen_job(handoff, url, search, "What is IVF?")
        killed_after_a_save(handoff)
        wait_until(search.answers, timeout_s=60, what="another Flower")
        assert (found_well(search, first), found_well(search, second)) == (before, then)


def seen_job(
    handoff: Handoff, url: str, search: Search, request: str
) -> tuple[str, dict[str, str]]:
    """Run a job, and return it with its tasks as Flower shows them."""
    done = handoff.run("run", request, "--docs", str(DOCUMENTS), "--json", HANDOFF_REDIS_URL=url)
    job_id: str = json.loads(done.stdout)["job_id"]
    return job_id, wait_until(lambda: ended(search(f"{job_id}:")), what="the job's tasks")


def killed_after_a_save(handoff: Handoff) -> None:
    """Kill Flower after it has saved its state to a file that only its user can write."""
    kept = handoff.folder / ".handoff" / "flower"
    assert kept.stat().st_mode & 0o777 == 0o700
    now_ns = time.time_ns()
    wait_until(lambda: is_saved_after(now_ns, kept), what="a save")
    (pid,) = (pid for pid, command in processes() if f"--db={handoff.folder}" in command)
    os.kill(pid, signal.SIGKILL)


def is_saved_after(now_ns: int, kept: Path) -> bool:
    """Return whether Flower has written its state. A file that disappears during the check counts
    as not written.
    """
    try:
        return all(file.stat().st_mtime_ns > now_ns for file in kept.glob("state*"))
    except FileNotFoundError:
        return False


def ended(tasks: dict[str, Any]) -> dict[str, str]:
    """Return the end state of each of the job's specialists. Empty while a specialist is still
    running.
    """
    handoffs = {
        uuid: task for uuid, task in tasks.items() if task["name"].startswith("specialist.")
    }
    states = {uuid: task["state"] for uuid, task in handoffs.items()}
    return states if "write" in str(states) and set(states.values()) == {"SUCCESS"} else {}


def found_well(search: Search, job_id: str) -> dict[str, str]:
    """Task id -> state of the job's handoffs, after looking for them in every way that a
    person would.
    """
    handoffs = ended(search(f"{job_id}:"))
    of_role = search("specialist.researcher")
    assert {uuid.partition(":")[0] for uuid in of_role} > {job_id}, "of all jobs"
    assert {task["name"] for task in of_role.values()} == {"specialist.researcher"}
    assert all(
        job_id in str(task["args"]) for task in search(f"{job_id} supervisor.advance").values()
    )
    for uuid in handoffs:
        step = re.sub(r"\.\d+$", "", uuid.partition(":")[2])
        assert uuid in search(f":{step}.")
        assert set(search(f"{job_id}:{step}.")) == {uuid}
    return handoffs
