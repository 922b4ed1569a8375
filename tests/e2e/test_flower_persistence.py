"""Flower's search finds roles, jobs and steps, also after restarts of `handoff up --flower`."""

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
from tests.e2e.test_cli_up import printed_url
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow
LOG_IN = "admin:a-password-of-some-length"


@dataclass(frozen=True)
class Search:
    """Search box of Flower's task page."""

    port: int

    def __call__(self, text: str) -> dict[str, Any]:
        """Return the found tasks by their id."""
        table = (
            "draw=1&start=0&length=1000&columns[0][data]=name&order[0][column]=0&order[0][dir]=asc"
        )
        url = f"http://127.0.0.1:{self.port}/tasks/datatable?{table}&search[value]={quote(text)}"
        page = urllib.request.Request(
            url, headers={"Authorization": "Basic " + b64encode(LOG_IN.encode()).decode()}
        )
        with urllib.request.urlopen(page, timeout=10) as answer:
            response = json.load(answer)
        assert "searchError" not in response, response
        return {task["uuid"]: task for task in response["data"]}

    def is_available(self) -> bool:
        try:
            return bool(self("specialist."))
        except OSError:
            return False


def test_search_finds_roles_jobs_and_steps_also_after_a_restart_and_a_kill(
    tmp_path: Path,
) -> None:
    handoff = Handoff(tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        search = Search(probe.getsockname()[1])
    up = ("up", "--no-serve", "--no-keys", "--flower", "--flower-port", str(search.port))

    with handoff.started(*up, FLOWER_BASIC_AUTH=LOG_IN) as system:
        url = printed_url(handoff)
        wait_for_events(handoff, url, search)
        first, first_states = run_job(handoff, url, search, REQUEST)
        run_job(handoff, url, search, "What is HNSW?")
        assert search_handoffs(search, first) == first_states
        system.send_signal(signal.SIGINT)
        assert system.wait(timeout=MAX_WAIT_S) == 0

    with handoff.started(*up, FLOWER_BASIC_AUTH=LOG_IN):
        assert printed_url(handoff) == url
        assert search_handoffs(search, first) == first_states
        wait_for_events(handoff, url, search)
        second, second_states = run_job(handoff, url, search, "What is IVF?")
        kill_flower_after_save(handoff)
        wait_until(search.is_available, timeout_s=60, expected="another Flower")
        assert search_handoffs(search, first) == first_states
        assert search_handoffs(search, second) == second_states


def wait_for_events(handoff: Handoff, url: str, search: Search) -> None:
    """Run jobs until Flower has seen the beginning of a task. Flower may miss tasks that run while
    Flower itself starts.
    """

    def has_seen_a_job() -> bool:
        job_id = ended_job(handoff, url, "What is HNSW?")["job_id"]
        return any(task["name"] for task in search(f"{job_id}:").values())

    wait_until(has_seen_a_job, expected="a job in Flower")


def ended_job(handoff: Handoff, url: str, request: str) -> dict[str, Any]:
    """Run a job to its end, and return its result."""
    completed = handoff.run(
        "run", request, "--docs", str(DOCUMENTS), "--json", HANDOFF_REDIS_URL=url
    )
    result: dict[str, Any] = json.loads(completed.stdout)
    return result


def run_job(handoff: Handoff, url: str, search: Search, request: str) -> tuple[str, dict[str, str]]:
    """Run a job, and return its id and the states of all its handoffs in Flower."""
    result = ended_job(handoff, url, request)
    job_id = result["job_id"]
    uuids = {f"{job_id}:{step['id']}.1" for step in result["plan"]["steps"]}

    def states_of_all() -> dict[str, str]:
        states = final_states(search(f"{job_id}:"))
        return states if set(states) == uuids else {}

    return job_id, wait_until(states_of_all, expected="the job's tasks")


def kill_flower_after_save(handoff: Handoff) -> None:
    """Kill Flower after it has saved its state to a file that only its user can write."""
    state_folder = handoff.folder / ".handoff" / "flower"
    assert state_folder.stat().st_mode & 0o777 == 0o700
    now_ns = time.time_ns()
    wait_until(lambda: is_saved_after(now_ns, state_folder), expected="a save")
    (pid,) = (pid for pid, command in processes() if f"--db={handoff.folder}" in command)
    os.kill(pid, signal.SIGKILL)


def is_saved_after(now_ns: int, state_folder: Path) -> bool:
    """Return whether Flower has written its state. A file that disappears during the check counts
    as not written.
    """
    try:
        return all(file.stat().st_mtime_ns > now_ns for file in state_folder.glob("state*"))
    except FileNotFoundError:
        return False


def final_states(tasks: dict[str, Any]) -> dict[str, str]:
    """Return the final states of the specialists' tasks by id. Empty while a specialist runs."""
    handoffs = {
        uuid: task for uuid, task in tasks.items() if (task["name"] or "").startswith("specialist.")
    }
    states = {uuid: task["state"] for uuid, task in handoffs.items()}
    return states if "write" in str(states) and set(states.values()) == {"SUCCESS"} else {}


def search_handoffs(search: Search, job_id: str) -> dict[str, str]:
    """Check the searches by job, role, step and supervisor task.

    Return the states of the job's handoffs by task id.
    """
    handoffs = final_states(search(f"{job_id}:"))
    role_tasks = search("specialist.researcher")
    assert {uuid.partition(":")[0] for uuid in role_tasks} > {job_id}, (
        "the search by role finds tasks of other jobs, too"
    )
    assert {task["name"] for task in role_tasks.values()} == {"specialist.researcher"}
    assert all(
        job_id in str(task["args"]) for task in search(f"{job_id} supervisor.advance").values()
    )
    for uuid in handoffs:
        step = re.sub(r"\.\d+$", "", uuid.partition(":")[2])
        assert uuid in search(f":{step}.")
        assert set(search(f"{job_id}:{step}.")) == {uuid}
    return handoffs
