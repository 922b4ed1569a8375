"""`handoff up`: the whole system on one machine, and the files that a second start finds. Also
`worker` and `supervisor`, one process each.

The commands start cold, as from a shell.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path

import pytest

from handoff_queue.shared.local.redis_access import RedisAccess, write_access
from handoff_queue.shared.settings.ports import free_port
from tests.e2e.commands import BAD_INPUT, DOCUMENTS, REQUEST, Handoff, processes, said
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def handoff(tmp_path: Path) -> Handoff:
    return Handoff(tmp_path, is_cold=True)


def url_in(handoff: Handoff) -> str:
    handoff.wait_for("Ctrl-C stops everything")
    match = re.search(r"^export HANDOFF_REDIS_URL=(\S+)$", handoff.read("out"), re.MULTILINE)
    assert match, handoff.read("out")
    return match[1]


def test_up_serves_other_terminals_until_ctrl_c_and_keeps_their_jobs(handoff: Handoff) -> None:
    with handoff.started("up", "--worker", "researcher=2") as system:
        url = url_in(handoff)
        done = handoff.run(
            "run", REQUEST, "--docs", str(DOCUMENTS), "--json", HANDOFF_REDIS_URL=url
        )
        served = json.loads(handoff.run("specialists", "--json", HANDOFF_REDIS_URL=url).stdout)
        second = handoff.run("up")
        system.send_signal(signal.SIGINT)
        assert system.wait(timeout=60) == 0

    assert done.returncode == 0, done.stderr
    assert {one["name"]: len(one["workers"]) for one in served}["researcher"] == 2
    assert {one["name"]: len(one["workers"]) for one in served}["writer"] == 1
    assert (second.returncode, "another `handoff up`" in second.stderr) == (2, True)
    assert handoff.left_behind() == []

    with handoff.started("up", HANDOFF_REDIS_URL=url):  # typed in a terminal that has exported it
        assert url_in(handoff) == url, "what other terminals have exported still holds"
        listed = handoff.run("list", "--json", HANDOFF_REDIS_URL=url)
    assert (handoff.folder / ".handoff" / "redis-access.json").stat().st_mode & 0o777 == 0o600
    assert [one["job_id"] for one in json.loads(listed.stdout)] == [
        json.loads(done.stdout)["job_id"]
    ]


def test_up_takes_another_port_where_the_earlier_one_is_taken(handoff: Handoff) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        (handoff.folder / ".handoff").mkdir()
        earlier = RedisAccess(port=other.getsockname()[1], password="a-password-of-some-length")
        write_access(handoff.folder / ".handoff" / "redis-access.json", earlier)
        with handoff.started("up", "--worker", "researcher=1"):
            url = url_in(handoff)

    assert f"port {earlier.port} of the last start is taken" in handoff.read("err")
    assert url != earlier.url
    assert earlier.password in url


def test_up_on_the_users_redis_tells_other_terminals_to_use_the_same_url(
    handoff: Handoff, redis_url: str
) -> None:
    with handoff.started("up", HANDOFF_REDIS_URL=redis_url):
        handoff.wait_for("Ctrl-C stops everything")

    assert "export" not in handoff.read("err") + handoff.read("out")
    assert "with the same HANDOFF_REDIS_URL" in handoff.read("err")


def test_up_names_the_restarted_process_and_its_log(handoff: Handoff) -> None:
    with handoff.started("up", "--worker", "researcher=1"):
        url_in(handoff)
        (supervisor,) = (
            pid
            for pid, command in processes()
            if "supervisor@" in command and handoff.has_started(pid)
        )
        os.kill(supervisor, signal.SIGKILL)

        handoff.wait_for("supervisor died and was started again; see ")
        log = handoff.read("err").split("was started again; see ")[1].splitlines()[0]

    assert Path(log).is_file()


def test_no_child_process_survives_a_kill(handoff: Handoff) -> None:
    with handoff.started("up") as system:
        url_in(handoff)
        system.kill()
        system.wait()

        wait_until(
            lambda: not handoff.left_behind(), timeout_s=5.0, what="the end of all processes"
        )


def test_flower_is_closed_without_its_password(handoff: Handoff) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with handoff.started("up", "--flower", "--port", str(port)):
        url_in(handoff)
        match = re.search(r"user admin, password (\S+)", handoff.read("err"))
        assert match
        page = urllib.request.Request(f"http://127.0.0.1:{port}/workers")
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(page, timeout=10)
        refused.value.close()
        page.add_header(
            "Authorization", "Basic " + b64encode(f"admin:{match[1]}".encode()).decode()
        )
        with urllib.request.urlopen(page, timeout=10) as answer:
            assert answer.status == 200


def test_up_names_a_port_of_flower_that_is_taken_before_anything_starts(handoff: Handoff) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        ended = handoff.run("up", "--flower", "--port", port)

    assert said(ended, BAD_INPUT) == (
        f"handoff: port {port} is taken by another process: choose another for Flower with --port"
    )
    assert not (handoff.folder / ".handoff").exists()


@pytest.mark.parametrize(
    ("command", "variable", "value"),
    [
        (("up", "--flower"), "FLOWER_BASIC_AUTH", "admin:change-me-flower"),
        (("up",), "HANDOFF_REDIS_URL", "redis://:change-me-redis@127.0.0.1:6379/0"),
        (("supervisor",), "HANDOFF_REDIS_URL", "redis://:change-me-redis@127.0.0.1:6379/0"),
        (("worker", "--all"), "HANDOFF_REDIS_URL", "redis://:change-me-redis@127.0.0.1:6379/0"),
    ],
)
def test_no_process_starts_with_a_placeholder_as_a_password(
    handoff: Handoff, command: tuple[str, ...], variable: str, value: str
) -> None:
    free = str(free_port())
    arguments = (*command, "--port", free) if command[0] == "up" else command

    line = said(handoff.run(*arguments, **{variable: value}), BAD_INPUT)  # type: ignore[arg-type]

    assert variable in line
    assert "change-me" not in line


def test_flower_keeps_its_password_over_restarts(handoff: Handoff) -> None:
    passwords = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with handoff.started("up", "--flower", "--port", str(port)):
            url_in(handoff)
            handoff.wait_for("user admin, password ")
            match = re.search(r"user admin, password (\S+)", handoff.read("err"))
            assert match
            passwords.append(match[1])

    assert passwords[0] == passwords[1]


def test_worker_and_supervisor_are_celery_workers_of_the_right_queues(
    handoff: Handoff, redis_url: str, tmp_path: Path
) -> None:
    ready = {name: tmp_path / f"{name}.ready" for name in ("worker", "supervisor")}
    with (
        handoff.started(
            "worker",
            "researcher",
            "writer",
            "-c",
            "2",
            HANDOFF_REDIS_URL=redis_url,
            HANDOFF_READY_FILE=str(ready["worker"]),
        ),
        handoff.started(
            "supervisor", HANDOFF_REDIS_URL=redis_url, HANDOFF_READY_FILE=str(ready["supervisor"])
        ),
    ):
        wait_until(lambda: all(file.exists() for file in ready.values()), timeout_s=40, what="both")
        found = {
            one["about"]: one["found"]
            for one in json.loads(
                handoff.run("doctor", "--json", HANDOFF_REDIS_URL=redis_url).stdout
            )
        }

    assert found["queue supervisor"].startswith("1 process,")
    assert found["queue writer"].startswith("1 process with 2 slots")
    assert "queue legal" not in found


def test_a_worker_logs_json_from_its_first_line_on(
    handoff: Handoff, redis_url: str, tmp_path: Path
) -> None:
    """Also as root, of which Celery warns before it asks for logging."""
    ready = tmp_path / "ready"
    with handoff.started(
        "worker", "--all", HANDOFF_REDIS_URL=redis_url, HANDOFF_READY_FILE=str(ready)
    ):
        wait_until(ready.exists, timeout_s=40, what="the worker")

    lines = handoff.read("err").splitlines()
    assert lines
    assert [line for line in lines if not line.startswith("{")] == []


def test_processes_start_in_a_folder_with_a_package_named_shared(handoff: Handoff) -> None:
    for name in ("shared", "workers"):
        (handoff.folder / name).mkdir()
        (handoff.folder / name / "__init__.py").write_text("raise SystemExit('not this one')")

    done = handoff.run("run", "What is HNSW?", "--docs", str(DOCUMENTS))

    assert done.returncode == 0, done.stderr
