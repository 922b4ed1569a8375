"""Commands report a missing, unreachable, wrong, silent or unserved broker in one line."""

from __future__ import annotations

import os
import signal
import socketserver
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from handoff_queue.shared.local.child_process_restarts import Processes
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.redis.connection import COMMAND_TIMEOUT_S
from handoff_queue.shared.store.store import open_store
from handoff_queue.shared.types.presence import Announcement
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.request import Request
from tests.doubles.redis_faults import silent_redis
from tests.e2e.commands import BAD_INPUT, DOCUMENTS, NO_REDIS, Handoff, error_line
from tests.e2e.test_approvals import read_until
from tests.waiting import MAX_WAIT_S

pytestmark = pytest.mark.slow

UNREACHABLE_URL = "redis://127.0.0.1:1/0"


@pytest.mark.parametrize(
    "command",
    [
        ["run", "x"],
        ["submit", "x"],
        ["list"],
        ["dead"],
        ["specialists"],
        ["watch", "j-0123456789ab"],
    ],
)
def test_an_unreachable_redis_is_reported(handoff: Handoff, command: list[str]) -> None:
    assert "cannot be reached" in error_line(
        handoff.run(*command, HANDOFF_REDIS_URL=UNREACHABLE_URL), NO_REDIS
    )


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://localhost:6379", "begin with redis://"),
        ("nonsense", "begin with redis://"),
        ("redis://127.0.0.1:port/0", "its port"),
        ("redis://127.0.0.1:6379/abc", "its database"),
        ("redis://127.0.0.1:99999/0", "its port"),
        ("redis://127.0.0.1:1/0?foo=bar", "an unknown option after its ?"),
    ],
)
def test_an_unusable_url_is_explained(handoff: Handoff, url: str, reason: str) -> None:
    for command in (["list"], ["worker", "--all"], ["up"]):
        line = error_line(handoff.run(*command, HANDOFF_REDIS_URL=url, timeout_s=45), BAD_INPUT)
        assert "HANDOFF_REDIS_URL" in line
        assert reason in line
    assert not (handoff.folder / ".handoff").exists(), "nothing was begun"


def test_a_wrong_password_is_reported(handoff: Handoff, redis_url: str) -> None:
    url = redis_url.replace("redis://:", "redis://:wrong")

    for command in (["run", "x"], ["submit", "x"], ["list"], ["supervisor"]):
        assert "password" in error_line(handoff.run(*command, HANDOFF_REDIS_URL=url), NO_REDIS)


def test_up_reports_an_unreachable_redis_within_seconds(handoff: Handoff) -> None:
    assert "HANDOFF_REDIS_URL" in error_line(
        handoff.run("up", HANDOFF_REDIS_URL=UNREACHABLE_URL, timeout_s=45), NO_REDIS
    )
    assert not (handoff.folder / ".handoff").exists(), "nothing was begun"


def test_up_reports_a_wrong_password_within_seconds(handoff: Handoff, redis_url: str) -> None:
    url = redis_url.replace("redis://:", "redis://:wrong")

    assert "password" in error_line(
        handoff.run("up", HANDOFF_REDIS_URL=url, timeout_s=45), NO_REDIS
    )


class NoRedis(socketserver.BaseRequestHandler):
    """Handler that answers like a web server, and keeps the connection open."""

    def handle(self) -> None:
        while self.request.recv(65_536):
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_up_reports_a_server_that_is_not_redis_within_seconds(
    handoff: Handoff,
) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), NoRedis) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        line = error_line(
            handoff.run(
                "up",
                HANDOFF_REDIS_URL=f"redis://127.0.0.1:{server.server_address[1]}/0",
                timeout_s=45,
            ),
            NO_REDIS,
        )
        server.shutdown()

    assert "is not Redis" in line


def test_submit_without_a_broker_names_the_variable_and_run(handoff: Handoff) -> None:
    line = error_line(handoff.run("submit", "x"), BAD_INPUT)

    assert "HANDOFF_REDIS_URL is not set" in line
    assert line.endswith("or use `handoff run`")


@pytest.mark.parametrize("command", ["schedule list", "list", "watch j-0", "quote x"])
def test_a_command_that_needs_a_broker_does_not_advise_run(handoff: Handoff, command: str) -> None:
    line = error_line(handoff.run(*command.split()), BAD_INPUT)

    assert "HANDOFF_REDIS_URL is not set" in line
    assert "handoff run" not in line


def test_a_missing_worker_is_reported_within_seconds(handoff: Handoff, redis_url: str) -> None:
    line = error_line(handoff.run("run", "x", HANDOFF_REDIS_URL=redis_url, timeout_s=45), BAD_INPUT)

    assert "no worker serves" in line
    assert "handoff worker --all" in line


def test_a_missing_supervisor_is_reported_within_seconds(handoff: Handoff, redis_url: str) -> None:
    spec = SpecialistSpec(
        name="poet",
        description="Writes short verses.",
        instructions="You write verses of four lines.",
    )
    store = open_store(redis_url, Settings())
    store.presence.announce(
        Announcement(worker="one", specialists=(spec,), slots=1, model="offline")
    )

    line = error_line(handoff.run("run", "x", HANDOFF_REDIS_URL=redis_url, timeout_s=45), BAD_INPUT)

    assert "no supervisor" in line
    assert "handoff supervisor" in line
    assert client.connect(redis_url, Settings()).newest() == [], (
        "the refused job is not in the queue"
    )


def test_a_lost_redis_is_reported_at_once_and_nothing_is_lost(
    handoff: Handoff, processes: Processes
) -> None:
    url = PrivateRedis(processes, handoff.folder / "redis", append_only=False).start()
    job_id = client.connect(url, Settings()).submit(Request("What is HNSW?", documents=DOCUMENTS))

    with handoff.started("watch", job_id, "--reconnect", "1", HANDOFF_REDIS_URL=url) as process:
        handoff.wait_for_text("submitted")
        os.kill(processes.get_pids()["redis"], signal.SIGKILL)
        handoff.wait_for_text("trying again", timeout_s=5)
        assert process.wait(timeout=MAX_WAIT_S) == NO_REDIS

    assert "Traceback" not in handoff.read("err")
    assert "cannot be reached" in handoff.read("err").splitlines()[-1]


def test_watch_reports_that_redis_is_silent_and_that_it_is_back(
    handoff: Handoff, processes: Processes
) -> None:
    url = PrivateRedis(processes, handoff.folder / "redis", append_only=False).start()
    job_id = client.connect(url, Settings()).submit(Request("What is HNSW?", documents=DOCUMENTS))

    with handoff.started("watch", job_id, HANDOFF_REDIS_URL=url) as process:
        handoff.wait_for_text("submitted")
        with silent_redis(processes):
            handoff.wait_for_text("trying again")
        handoff.wait_for_text("Redis is back")
        process.kill()
    assert handoff.read("err").count("Redis is back") == 1


def test_a_waiting_command_reports_a_silent_redis(tmp_path: Path, processes: Processes) -> None:
    """The commands include `stats`, which an autoscaler calls, and `doctor`."""
    handoff = Handoff(tmp_path)
    url = PrivateRedis(processes, handoff.folder / "redis", append_only=False).start()
    commands = (["stats", "--json"], ["list"], ["doctor"])

    def run_all() -> tuple[list[subprocess.CompletedProcess[str]], float]:
        """Run the commands at once, and return the outcomes and the seconds."""
        began = time.monotonic()
        with ThreadPoolExecutor(len(commands)) as pool:
            results = list(
                pool.map(lambda command: handoff.run(*command, HANDOFF_REDIS_URL=url), commands)
            )
        return results, time.monotonic() - began

    _, usual_s = run_all()
    with silent_redis(processes):
        results, took_s = run_all()

    assert took_s < 2 * COMMAND_TIMEOUT_S + usual_s
    assert all("cannot be reached" in completed.stderr + completed.stdout for completed in results)
    assert all(completed.returncode for completed in results)


def test_the_fleet_view_ends_on_request_even_if_redis_is_silent(
    handoff: Handoff, processes: Processes
) -> None:
    url = PrivateRedis(processes, handoff.folder / "redis", append_only=False).start()
    with handoff.on_a_terminal(
        "top", "--every", "0.2", TERM="xterm", COLUMNS="140", LINES="50", HANDOFF_REDIS_URL=url
    ) as (
        process,
        terminal,
    ):
        read_until(terminal, "1-9: open a job")
        with silent_redis(processes):
            read_until(terminal, "trying again")
            os.write(terminal, b"q")
            assert process.wait(MAX_WAIT_S) == 0


def test_commands_pause_a_role_show_the_pause_and_end_it(handoff: Handoff, redis_url: str) -> None:
    assert "'plannr'" in error_line(
        handoff.run("pause", "plannr", HANDOFF_REDIS_URL=redis_url), BAD_INPUT
    )
    assert (
        handoff.run(
            "pause", "planner", "--reason", "wait for the\nnew prompt", HANDOFF_REDIS_URL=redis_url
        ).returncode
        == 0
    )
    assert (
        ": wait for the new prompt -> `handoff unpause planner`"
        in handoff.run("doctor", HANDOFF_REDIS_URL=redis_url).stdout
    )
    assert (
        handoff.run("unpause", "planner", HANDOFF_REDIS_URL=redis_url).stdout
        == "planner is unpaused\n"
    )
    assert "was not paused" in handoff.run("unpause", "planner", HANDOFF_REDIS_URL=redis_url).stderr
