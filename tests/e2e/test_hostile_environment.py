"""A job runs with environment variables of other applications, or one line names the variable.

All compatible variables share one command. If the command fails, `failing_variables` finds the
variables that fail alone.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from celery.bin.celery import celery

from handoff_queue.shared.settings.foreign_environment import (
    NAME_A_BROKER,
    READ_BY_CELERY,
    SET_BY_CELERY,
    check_celery_command,
)
from handoff_queue.shared.types.errors import UserError
from handoff_queue.testing import Json, MessagesServer, Reply, result_reply, tool_call_reply
from handoff_queue.testing.request_rules import are_tool_results
from tests import forked_processes
from tests.e2e.commands import DOCUMENTS, REQUEST, Handoff, error_line
from tests.waiting import MAX_WAIT_S, wait_until

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
    "PYTHONMALLOC": "malloc",
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
    "SSL_CERT_DIR": "/nowhere/certs",
}
NEEDED_FILES = {"SSLKEYLOGFILE": "/nowhere/keys.log", "SSL_CERT_FILE": "/nowhere/ca.pem"}
"""Files without which no connection with TLS works."""
COMPATIBLE: dict[str, str] = {
    **CELERY_OPTIONS,
    **CELERY_SETTINGS,
    **dict.fromkeys(READ_BY_CELERY, "theirs"),
    **LINKS,
    **OPENSSL,
    **PROXIES,
    **PYTHON,
}
"""Variables that do not change the effect of each other.

PYTHONDONTWRITEBYTECODE is not one of these variables: with PYTHONOPTIMIZE, it would make each
process compile all modules.
"""


ANSWER = "Qdrant filters best."


def searches_and_answers(request: Json) -> Reply:
    """Play a model that searches the documents once."""
    if are_tool_results(request["messages"][-1]["content"]):
        return result_reply(ANSWER)
    return tool_call_reply(("search_documents", {"query": "Qdrant"}))


@pytest.fixture
def model_url() -> Iterator[str]:
    with MessagesServer(searches_and_answers) as server:
        yield server.url


def run_with(
    folder: Path, model_url: str, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a job in new interpreters, without a process or a file at its end."""
    folder.mkdir()
    handoff = Handoff(folder, is_cold=True)
    completed = handoff.run(
        *("run", REQUEST, "--docs", str(DOCUMENTS), "--mode", "single", "--json"),
        timeout_s=120,
        ANTHROPIC_BASE_URL=model_url,
        **environment,
    )
    assert handoff.remaining_processes() == []
    assert list(folder.glob("handoff-run-*")) == []
    return completed


def has_succeeded(completed: subprocess.CompletedProcess[str]) -> bool:
    return completed.returncode == 0 and json.loads(completed.stdout)["answer"] == ANSWER


def named_variable(
    completed: subprocess.CompletedProcess[str], environment: dict[str, str]
) -> str | None:
    """Return the variable that the last line of a refused job names, or None."""
    last_line = completed.stderr.splitlines()[-1]
    if completed.returncode != 2 or "Traceback" in completed.stderr:
        return None
    names = sorted(environment, key=len, reverse=True)
    return next((name for name in names if name in last_line), None)


def failing_variables(
    folder: Path, model_url: str, environment: dict[str, str]
) -> dict[str, list[str]]:
    """Return each variable that alone makes the job fail without its name, with the error."""
    errors: dict[str, list[str]] = {}
    for name, value in environment.items():
        completed = run_with(folder / name, model_url, {name: value})
        if not has_succeeded(completed) and named_variable(completed, {name: value}) is None:
            errors[name] = completed.stderr.splitlines()[-3:]
    return errors


def test_a_job_runs_with_the_variables_of_other_applications(
    tmp_path: Path, model_url: str
) -> None:
    """A named variable is removed, and the job runs again with the other variables."""
    environment = dict(COMPATIBLE)
    completed = run_with(tmp_path / "all", model_url, environment)
    while not has_succeeded(completed):
        name = named_variable(completed, environment)
        if name is None:
            print(completed.stderr)  # shown if the search for the variable takes too long
            failing = failing_variables(tmp_path, model_url, environment)
            pytest.fail(f"{completed.stderr[-500:]}\n{failing}")
        del environment[name]
        completed = run_with(tmp_path / f"without {name}", model_url, environment)


@pytest.mark.parametrize("name", NEEDED_FILES)
def test_a_process_refuses_a_variable_that_names_no_file(tmp_path: Path, name: str) -> None:
    completed = celery_report(tmp_path, {name: NEEDED_FILES[name]})

    assert name in error_line(completed, 2)


def celery_report(folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a Celery command that loads our app and ends."""
    return forked_processes.run(
        [sys.executable, "-m", "celery", "-A", "handoff_queue.workers.app", "report"],
        Handoff(folder).environment(**variables),
        folder,
        "",
        MAX_WAIT_S,
        read_by_commands=variables,
    )


def test_the_celery_command_takes_no_option_of_ours_from_the_environment(
    redis_url: str, tmp_path: Path
) -> None:
    """Celery reads only the worker options here: it reads others before it imports our app."""
    options = {name: value for name, value in CELERY_OPTIONS.items() if "WORKER_" in name}
    foreign = {**dict.fromkeys(NAME_A_BROKER, NOWHERE), **options}
    for app, queues in (
        ("handoff_queue.supervisor.app", "supervisor"),
        ("handoff_queue.workers.app", "researcher"),
    ):
        ready, log = tmp_path / app, tmp_path / f"{app}.log"
        environment = Handoff(tmp_path).environment(
            HANDOFF_REDIS_URL=redis_url, HANDOFF_READY_FILE=str(ready), **foreign
        )
        with log.open("wb") as output:
            process = forked_processes.start(
                [*(sys.executable, "-m", "celery", "-A", app), *("worker", "-Q", queues)],
                environment,
                tmp_path,
                output.fileno(),
                output.fileno(),
                read_by_commands=foreign,
            )
        try:
            wait_until(
                lambda ready=ready, process=process: ready.exists() or process.poll() is not None,  # type: ignore[misc]
                expected=f"the start of {app}",
            )
            assert ready.exists(), log.read_text()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(MAX_WAIT_S)


def test_the_celery_command_refuses_a_variable_that_our_app_cannot_ignore(tmp_path: Path) -> None:
    completed = celery_report(tmp_path, {"CELERY_WORKER_REVOKES_MAX": "1"})

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


def test_an_invalid_flower_variable_is_named_in_one_line(tmp_path: Path) -> None:
    completed = Handoff(tmp_path).run(
        "up", "--no-serve", "--flower", FLOWER_MAX_TASKS="many secrets", timeout_s=90
    )

    assert (completed.returncode, completed.stdout) == (2, "")
    line = completed.stderr.splitlines()[-1]
    assert line.startswith("handoff: ")
    assert "FLOWER_MAX_TASKS" in line
    assert "secrets" not in completed.stderr
