"""A job runs with environment variables of other applications, or one line names the variable.

All compatible variables share one command. If the command fails, `failing_variables` finds the
variables that fail alone.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
from celery.bin.celery import celery

from handoff_queue.shared.local.processes import ChildSpec, Processes
from handoff_queue.shared.settings.foreign_environment import (
    NAME_A_BROKER,
    READ_BY_CELERY,
    SET_BY_CELERY,
    check_celery_command,
)
from handoff_queue.shared.types.errors import UserError
from handoff_queue.testing import Json, MessagesServer, Reply, json_reply
from tests.e2e.commands import DOCUMENTS, REQUEST, ROOT, Handoff, error_line

pytestmark = pytest.mark.slow

NOWHERE = "redis://:secret@127.0.0.1:1/0"
SERVICES = ("REDIS", "SUPERVISOR", "FLOWER", "HANDOFF", "WORKERS", "CELERY", "HANDOFF_REDIS")


def service_links(service: str, port: int = 5555) -> dict[str, str]:
    """Variables that Kubernetes sets in every container for a service of its namespace."""
    address = f"tcp://10.0.0.1:{port}"
    return {
        f"{service}_SERVICE_HOST": "10.0.0.1",
        f"{service}_SERVICE_PORT": f"{port}",
        f"{service}_SERVICE_PORT_HTTP": f"{port}",
        f"{service}_PORT": address,
        f"{service}_PORT_{port}_TCP": address,
        f"{service}_PORT_{port}_TCP_PROTO": "tcp",
        f"{service}_PORT_{port}_TCP_PORT": f"{port}",
        f"{service}_PORT_{port}_TCP_ADDR": "10.0.0.1",
    }


CELERY_OPTIONS = {
    "CELERY_APP": "theirs.celery",
    "CELERY_BROKER": NOWHERE,
    "CELERY_CONFIG": "theirs.settings",
    "CELERY_NO_COLOR": "perhaps",
    "CELERY_QUIET": "perhaps",
    "CELERY_SKIP_CHECKS": "perhaps",
    "CELERY_VERSION": "1",
    "CELERY_WORKDIR": "/nowhere",
    "CELERY_WORKER_AUTOSCALE": "many",
    "CELERY_WORKER_BEAT": "1",
    "CELERY_WORKER_CONCURRENCY": "many",
    "CELERY_WORKER_DETACH": "1",
    "CELERY_WORKER_HOSTNAME": "theirs@%h",
    "CELERY_WORKER_LOGFILE": "/nowhere/log",
    "CELERY_WORKER_POOL": "theirs",
    "CELERY_WORKER_PURGE": "1",
    "CELERY_WORKER_QUEUES": "theirs",
    "CELERY_WORKER_UID": "theirs",
}
CELERY_SETTINGS = {
    **dict.fromkeys(NAME_A_BROKER, NOWHERE),
    "APP": "theirs",
    "BROKER": NOWHERE,
    "CELERY_CONFIG_MODULE": "theirs.settings",
    "CELERY_LOADER": "theirs.loader:Loader",
    "CELERY_TASK_ALWAYS_EAGER": "true",
    "CELERYD_NODES": "w1 w2",
    "CELERYD_OPTS": "--pool=theirs",
    "CONFIG_MODULE": "theirs.settings",
    "DJANGO_SETTINGS_MODULE": "theirs.settings",
    "LOADER": "theirs.loader:Loader",
    "NO_COLOR": "please",
    "SKIP_CHECKS": "perhaps",
}
LINKS = {name: value for service in SERVICES for name, value in service_links(service).items()}
PROXIES = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy"), "http://127.0.0.1:1"),
    **dict.fromkeys(("https_proxy", "FTP_PROXY"), "http://user:secret@proxy.invalid:3128"),
    **dict.fromkeys(("ALL_PROXY", "all_proxy"), "http://127.0.0.1:1"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,10.0.0.0/8,[::1],.svc,*"),
}
PYTHON = {
    "PYTHONASYNCIODEBUG": "1",
    "PYTHONBREAKPOINT": "theirs.debugger",
    "PYTHONDEVMODE": "1",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONINTMAXSTRDIGITS": "640",
    "PYTHONIOENCODING": "ascii",
    "PYTHONMALLOC": "debug",
    "PYTHONNODEBUGRANGES": "1",
    "PYTHONNOUSERSITE": "1",
    "PYTHONOPTIMIZE": "2",
    "PYTHONSTARTUP": "/nowhere/startup.py",
    "PYTHONUNBUFFERED": "1",
    "PYTHONUTF8": "0",
    "LANG": "C",
    "LC_ALL": "POSIX",
    "TZ": "Asia/Kathmandu",
}
OPENSSL = {
    "CURL_CA_BUNDLE": "/nowhere/ca.pem",
    "OPENSSL_CONF": "/nowhere/openssl.cnf",
    "REQUESTS_CA_BUNDLE": "/nowhere/ca.pem",
    "SSLKEYLOGFILE": "/nowhere/keys.log",
    "SSL_CERT_DIR": "/nowhere/certs",
    "SSL_CERT_FILE": "/nowhere/ca.pem",
}
COMPATIBLE: dict[str, str] = {
    **CELERY_OPTIONS,
    **CELERY_SETTINGS,
    **dict.fromkeys(READ_BY_CELERY, "theirs"),
    **LINKS,
    **PROXIES,
    **PYTHON,
}
"""Variables that do not change the effect of each other.

PYTHONDONTWRITEBYTECODE is not one of these variables: with PYTHONOPTIMIZE, it would make each
process compile all modules.
"""


def run_with(folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    return Handoff(folder, is_cold=True).run(
        *("run", REQUEST, "--docs", str(DOCUMENTS), "--json"),
        timeout_s=120,
        **environment,
    )


def has_succeeded(completed: subprocess.CompletedProcess[str]) -> bool:
    return completed.returncode == 0 and json.loads(completed.stdout)["status"] == "ok"


def named_variable(
    completed: subprocess.CompletedProcess[str], environment: dict[str, str]
) -> str | None:
    """Return the variable that the last line of a refused job names, or None."""
    last_line = completed.stderr.splitlines()[-1]
    if completed.returncode != 2 or "Traceback" in completed.stderr:
        return None
    names = sorted(environment, key=len, reverse=True)
    return next((name for name in names if name in last_line), None)


def failing_variables(folder: Path, environment: dict[str, str]) -> dict[str, list[str]]:
    """Return each variable that alone makes the job fail without its name, with the error."""
    errors: dict[str, list[str]] = {}
    for name, value in environment.items():
        completed = run_with(folder / name, {name: value})
        if not has_succeeded(completed) and named_variable(completed, {name: value}) is None:
            errors[name] = completed.stderr.splitlines()[-3:]
    return errors


def test_a_job_runs_with_the_variables_of_other_applications(tmp_path: Path) -> None:
    """A named variable is removed, and the job runs again with the other variables."""
    environment = dict(COMPATIBLE)
    completed = run_with(tmp_path / "all", environment)
    while not has_succeeded(completed):
        name = named_variable(completed, environment)
        if name is None:
            pytest.fail(f"{completed.stderr[-500:]}\n{failing_variables(tmp_path, environment)}")
        del environment[name]
        completed = run_with(tmp_path / f"without {name}", environment)


def answers(_request: Json) -> Reply:
    return json_reply({"status": "ok", "output": "Qdrant", "citations": [], "confidence": 0.9})


def test_a_job_on_a_model_server_runs_with_variables_of_openssl(tmp_path: Path) -> None:
    with MessagesServer(answers) as server:
        completed = Handoff(tmp_path, is_cold=True).run(
            *("run", REQUEST, "--mode", "single", "--json"),
            ANTHROPIC_BASE_URL=server.url,
            ANTHROPIC_API_KEY="no-key",
            PYTHONDONTWRITEBYTECODE="1",
            **OPENSSL,  # type: ignore[arg-type]
        )

    if completed.returncode == 2:
        assert any(name in error_line(completed, 2) for name in OPENSSL)
    else:
        assert (completed.returncode, json.loads(completed.stdout)["answer"]) == (
            0,
            "Qdrant",
        ), completed.stderr


def test_the_celery_command_takes_no_option_of_ours_from_the_environment(
    redis_url: str, processes: Processes, tmp_path: Path
) -> None:
    """Celery reads only the worker options here: it reads others before it imports our app."""
    options = {name: value for name, value in CELERY_OPTIONS.items() if "WORKER_" in name}
    for app, queues in (
        ("handoff_queue.supervisor.app", "supervisor"),
        ("handoff_queue.workers.app", "researcher"),
    ):
        processes.start(
            ChildSpec(
                app,
                [*(sys.executable, "-m", "celery", "-A", app), *("worker", "-Q", queues)],
                {
                    "HANDOFF_REDIS_URL": redis_url,
                    "HANDOFF_CACHE_DIR": str(tmp_path),
                    "PYTHONPATH": str(ROOT),
                    **dict.fromkeys(NAME_A_BROKER, NOWHERE),
                    **options,
                },
            )
        )

    processes.wait_until_ready()


def test_the_celery_command_refuses_a_variable_that_our_app_cannot_ignore(tmp_path: Path) -> None:
    completed = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "handoff_queue.workers.app", "report"],
        env=Handoff(tmp_path).environment(CELERY_WORKER_REVOKES_MAX="1"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "CELERY_WORKER_REVOKES_MAX" in error_line(completed, 2)


@pytest.mark.parametrize("name", sorted(READ_BY_CELERY - SET_BY_CELERY))
def test_the_check_of_the_celery_command_refuses_each_of_these_variables(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    context = click.Context(celery)
    context.params["app"] = "handoff_queue.workers.app"

    with context.scope(), pytest.raises(UserError, match=rf"variable {name} changes"):
        check_celery_command("handoff_queue.workers.app")


def test_flower_ignores_a_service_called_flower(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    handoff = Handoff(tmp_path)

    with handoff.started("up", "--flower", "--port", str(port), **LINKS):
        handoff.wait_for_text("Ctrl-C stops everything")

    assert f"Flower: http://127.0.0.1:{port}" in handoff.read("err")


def test_an_invalid_flower_variable_is_named_in_one_line(tmp_path: Path) -> None:
    completed = Handoff(tmp_path).run(
        "up", "--flower", FLOWER_MAX_TASKS="many secrets", timeout_s=90
    )

    assert (completed.returncode, completed.stdout) == (2, "")
    line = completed.stderr.splitlines()[-1]
    assert line.startswith("handoff: ")
    assert "FLOWER_MAX_TASKS" in line
    assert "secrets" not in completed.stderr
