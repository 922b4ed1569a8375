"""`handoff up` runs the whole system on one machine. `handoff worker` and `handoff supervisor` run
one process each.

Each command starts in a new interpreter, as from a shell.
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
from tests.e2e.commands import BAD_INPUT, DOCUMENTS, REQUEST, Handoff, error_line, processes
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def handoff(tmp_path: Path) -> Handoff:
    return Handoff(tmp_path, is_cold=True)


def printed_url(handoff: Handoff) -> str:
    handoff.wait_for_text("Ctrl-C stops everything")
    match = re.search(r"^export HANDOFF_REDIS_URL=(\S+)$", handoff.read("out"), re.MULTILINE)
    assert match, handoff.read("out")
    return match[1]


def test_up_serves_other_terminals_until_ctrl_c_and_keeps_their_jobs(handoff: Handoff) -> None:
    with handoff.started("up", "--worker", "researcher=2") as system:
        url = printed_url(handoff)
        completed = handoff.run(
            "run", REQUEST, "--docs", str(DOCUMENTS), "--json", HANDOFF_REDIS_URL=url
        )
        served = json.loads(handoff.run("specialists", "--json", HANDOFF_REDIS_URL=url).stdout)
        second = handoff.run("up")
        system.send_signal(signal.SIGINT)
        assert system.wait(timeout=60) == 0

    assert completed.returncode == 0, completed.stderr
    assert {specialist["name"]: len(specialist["workers"]) for specialist in served}[
        "researcher"
    ] == 2
    assert {specialist["name"]: len(specialist["workers"]) for specialist in served}["writer"] == 1
    assert (second.returncode, "another `handoff up`" in second.stderr) == (2, True)
    assert handoff.remaining_processes() == []

    with handoff.started("up", HANDOFF_REDIS_URL=url):  # This terminal has exported the URL.
        assert printed_url(handoff) == url, "the URL of the first start stays valid"
        listed = handoff.run("list", "--json", HANDOFF_REDIS_URL=url)
    assert (handoff.folder / ".handoff" / "redis-access.json").stat().st_mode & 0o777 == 0o600
    assert [job["job_id"] for job in json.loads(listed.stdout)] == [
        json.loads(completed.stdout)["job_id"]
    ]


def test_up_takes_another_port_if_the_port_of_the_last_start_is_taken(handoff: Handoff) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        (handoff.folder / ".handoff").mkdir()
        earlier = RedisAccess(port=other.getsockname()[1], password="a-password-of-some-length")
        write_access(handoff.folder / ".handoff" / "redis-access.json", earlier)
        with handoff.started("up", "--worker", "researcher=1"):
            url = printed_url(handoff)

    assert f"port {earlier.port} of the last start is taken" in handoff.read("err")
    assert url != earlier.url
    assert earlier.password in url


def test_up_on_the_users_redis_tells_other_terminals_to_use_the_same_url(
    handoff: Handoff, redis_url: str
) -> None:
    with handoff.started("up", HANDOFF_REDIS_URL=redis_url):
        handoff.wait_for_text("Ctrl-C stops everything")

    assert "export" not in handoff.read("err") + handoff.read("out")
    assert "with the same HANDOFF_REDIS_URL" in handoff.read("err")


def test_up_names_the_restarted_process_and_its_log(handoff: Handoff) -> None:
    with handoff.started("up", "--worker", "researcher=1"):
        printed_url(handoff)
        (supervisor,) = (
            pid
            for pid, command in processes()
            if "supervisor@" in command and handoff.has_started(pid)
        )
        os.kill(supervisor, signal.SIGKILL)

        handoff.wait_for_text("supervisor died and was started again; see ")
        log = handoff.read("err").split("was started again; see ")[1].splitlines()[0]

    assert Path(log).is_file()


def test_no_child_process_survives_a_kill(handoff: Handoff) -> None:
    with handoff.started("up") as system:
        printed_url(handoff)
        system.kill()
        system.wait()

        wait_until(
            lambda: not handoff.remaining_processes(),
            timeout_s=5.0,
            expected="the end of all processes",
        )


def test_flower_refuses_requests_without_its_password(handoff: Handoff) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with handoff.started("up", "--flower", "--port", str(port)):
        printed_url(handoff)
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


def test_up_refuses_a_taken_port_for_flower_before_anything_starts(handoff: Handoff) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        completed = handoff.run("up", "--flower", "--port", port)

    assert error_line(completed, BAD_INPUT) == (
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

    line = error_line(handoff.run(*arguments, **{variable: value}), BAD_INPUT)  # type: ignore[arg-type]

    assert variable in line
    assert "change-me" not in line


def test_flower_keeps_its_password_over_restarts(handoff: Handoff) -> None:
    passwords = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with handoff.started("up", "--flower", "--port", str(port)):
            printed_url(handoff)
            handoff.wait_for_text("user admin, password ")
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
        wait_until(
            lambda: all(file.exists() for file in ready.values()), timeout_s=40, expected="both"
        )
        findings = {
            finding["about"]: finding["found"]
            for finding in json.loads(
                handoff.run("doctor", "--json", HANDOFF_REDIS_URL=redis_url).stdout
            )
        }

    assert findings["queue supervisor"].startswith("1 process,")
    assert findings["queue writer"].startswith("1 process with 2 slots")
    assert "queue legal" not in findings


def test_every_line_of_a_workers_log_is_json(
    handoff: Handoff, redis_url: str, tmp_path: Path
) -> None:
    """The test may run as root. Celery warns about that before it sets up logging."""
    ready = tmp_path / "ready"
    with handoff.started(
        "worker", "--all", HANDOFF_REDIS_URL=redis_url, HANDOFF_READY_FILE=str(ready)
    ):
        wait_until(ready.exists, timeout_s=40, expected="the worker")

    lines = handoff.read("err").splitlines()
    assert lines
    assert [line for line in lines if not line.startswith("{")] == []


def test_processes_start_in_a_folder_with_a_package_named_shared(handoff: Handoff) -> None:
    for name in ("shared", "workers"):
        (handoff.folder / name).mkdir()
        (handoff.folder / name / "__init__.py").write_text("raise SystemExit('not this one')")

    completed = handoff.run("run", "What is HNSW?", "--docs", str(DOCUMENTS))

    assert completed.returncode == 0, completed.stderr
