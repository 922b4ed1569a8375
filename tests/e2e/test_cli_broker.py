"""A broker that is unnamed, unreachable, not Redis, without access, lost, or without workers:
commands report it in one line.
"""

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

from handoff_queue.shared.local.processes import Processes
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.redis.connection import COMMAND_TIMEOUT_S
from handoff_queue.shared.store.store import open_store
from handoff_queue.shared.types.presence import Announcement
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.supervisor.client import client
from tests.doubles.redis_faults import silent_redis
from tests.e2e.commands import BAD_INPUT, DOCUMENTS, NO_REDIS, Handoff, said
from tests.e2e.test_approvals import read_until

pytestmark = pytest.mark.slow

NOBODY = "redis://127.0.0.1:1/0"
SILENT_FOR_S = 12.0
"""Longest time in seconds until a user hears about a silent Redis. It is three times the normal
time, and far below the patience of workers.
"""


@pytest.fixture
def handoff(tmp_path: Path) -> Handoff:
    return Handoff(tmp_path)


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
def test_no_redis_where_the_url_points(handoff: Handoff, command: list[str]) -> None:
    assert "cannot be reached" in said(handoff.run(*command, HANDOFF_REDIS_URL=NOBODY), NO_REDIS)


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("http://localhost:6379", "begin with redis://"),
        ("nonsense", "begin with redis://"),
        ("redis://127.0.0.1:port/0", "its port"),
        ("redis://127.0.0.1:6379/abc", "its database"),
        ("redis://127.0.0.1:99999/0", "its port"),
        ("redis://127.0.0.1:1/0?foo=bar", "an unknown option after its ?"),
    ],
)
def test_an_unusable_url_is_explained(handoff: Handoff, url: str, what: str) -> None:
    for command in (["list"], ["worker", "--all"], ["up"]):
        line = said(handoff.run(*command, HANDOFF_REDIS_URL=url, timeout_s=45), BAD_INPUT)
        assert "HANDOFF_REDIS_URL" in line
        assert what in line
    assert not (handoff.folder / ".handoff").exists(), "nothing was begun"


def test_a_wrong_password(handoff: Handoff, redis_url: str) -> None:
    wrong = redis_url.replace("redis://:", "redis://:wrong")

    for command in (["run", "x"], ["submit", "x"], ["list"], ["supervisor"]):
        assert "password" in said(handoff.run(*command, HANDOFF_REDIS_URL=wrong), NO_REDIS)


def test_up_without_the_redis_that_is_named_says_so_within_seconds(handoff: Handoff) -> None:
    assert "HANDOFF_REDIS_URL" in said(
        handoff.run("up", HANDOFF_REDIS_URL=NOBODY, timeout_s=45), NO_REDIS
    )
    assert not (handoff.folder / ".handoff").exists(), "nothing was begun"


def test_up_with_a_wrong_password_says_so_within_seconds(handoff: Handoff, redis_url: str) -> None:
    wrong = redis_url.replace("redis://:", "redis://:wrong")

    assert "password" in said(handoff.run("up", HANDOFF_REDIS_URL=wrong, timeout_s=45), NO_REDIS)


class NoRedis(socketserver.BaseRequestHandler):
    """Answers every request like a web server, and keeps the connection open."""

    def handle(self) -> None:
        while self.request.recv(65_536):
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_up_where_something_else_than_redis_answers_says_so_within_seconds(
    handoff: Handoff,
) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), NoRedis) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        line = said(
            handoff.run(
                "up",
                HANDOFF_REDIS_URL=f"redis://127.0.0.1:{server.server_address[1]}/0",
                timeout_s=45,
            ),
            NO_REDIS,
        )
        server.shutdown()

    assert "is not Redis" in line


def test_no_broker_named(handoff: Handoff) -> None:
    assert "HANDOFF_REDIS_URL is not set" in said(handoff.run("submit", "x"), BAD_INPUT)


def test_a_missing_worker_is_reported_within_seconds(handoff: Handoff, redis_url: str) -> None:
    line = said(handoff.run("run", "x", HANDOFF_REDIS_URL=redis_url, timeout_s=45), BAD_INPUT)

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

    line = said(handoff.run("run", "x", HANDOFF_REDIS_URL=redis_url, timeout_s=45), BAD_INPUT)

    assert "no supervisor" in line
    assert "handoff supervisor" in line
    assert client.connect(redis_url, Settings()).newest() == [], (
        "nothing waits in the queue that nobody was told of"
    )


def test_a_lost_redis_is_reported_at_once_and_nothing_is_lost(
    handoff: Handoff, processes: Processes
) -> None:
    url = PrivateRedis(processes, handoff.folder / "redis", append_only=False).start()
    job_id = client.connect(url, Settings()).submit(
        client.Request("What is HNSW?", documents=DOCUMENTS)
    )

    with handoff.started("watch", job_id, "--reconnect", "1", HANDOFF_REDIS_URL=url) as process:
        handoff.wait_for("submitted")
        os.kill(processes.pids()["redis"], signal.SIGKILL)
        handoff.wait_for("trying again", timeout_s=5)
        assert process.wait(timeout=20) == NO_REDIS

    assert "Traceback" not in handoff.read("err")
    assert "cannot be reached" in handoff.read("err").splitlines()[-1]


def test_a_watcher_hears_that_redis_is_silent_and_that_it_is_back(
    handoff: Handoff, processes: Processes
) -> None:
    url = PrivateRedis(processes, handoff.folder / "redis", append_only=False).start()
    job_id = client.connect(url, Settings()).submit(
        client.Request("What is HNSW?", documents=DOCUMENTS)
    )

    with handoff.started("watch", job_id, HANDOFF_REDIS_URL=url) as process:
        handoff.wait_for("submitted")
        with silent_redis(processes):
            handoff.wait_for("trying again", timeout_s=SILENT_FOR_S)
        handoff.wait_for("Redis is back", timeout_s=SILENT_FOR_S)
        process.kill()
    assert handoff.read("err").count("Redis is back") == 1


def test_a_waiting_command_reports_a_silent_redis(handoff: Handoff, processes: Processes) -> None:
    """Includes the commands of an autoscaler and of a person who looks for the cause."""
    url = PrivateRedis(processes, handoff.folder / "redis", append_only=False).start()
    asked = (["stats", "--json"], ["list"], ["doctor"])

    with silent_redis(processes), ThreadPoolExecutor(len(asked)) as side_by_side:
        began = time.monotonic()
        done = list(
            side_by_side.map(lambda command: handoff.run(*command, HANDOFF_REDIS_URL=url), asked)
        )
        took_s = time.monotonic() - began

    assert took_s < 2 * COMMAND_TIMEOUT_S
    assert all("cannot be reached" in one.stderr + one.stdout for one in done)
    assert all(one.returncode for one in done)


def test_the_fleet_view_ends_on_request_even_if_redis_is_silent(
    handoff: Handoff, processes: Processes
) -> None:
    url = PrivateRedis(processes, handoff.folder / "redis", append_only=False).start()
    ours, theirs = os.openpty()
    environment = handoff.environment(
        TERM="xterm", COLUMNS="140", LINES="50", HANDOFF_REDIS_URL=url
    )
    process = subprocess.Popen(
        handoff.command("top", "--every", "0.2"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    try:
        read_until(ours, "1-9: open a job")
        with silent_redis(processes):
            since = time.monotonic()
            read_until(ours, "trying again")
            assert time.monotonic() - since < SILENT_FOR_S
            os.write(ours, b"q")
            assert process.wait(SILENT_FOR_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_role_is_paused_seen_and_unpaused_from_the_command_line(
    handoff: Handoff, redis_url: str
) -> None:
    assert "'plannr'" in said(
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
        == "planner works again\n"
    )
    assert "was not paused" in handoff.run("unpause", "planner", HANDOFF_REDIS_URL=redis_url).stderr
