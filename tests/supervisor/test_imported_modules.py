"""A process imports no module that it does not need, so that commands start fast."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.request import Request
from tests.warm_interpreter import WarmInterpreter

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SDK = {"anthropic", "aiohttp"}
AGENTS = {*SDK, "genai_prices", "httpx2", "jsonschema", "re2"}
PUBLISHING = {"celery", "kombu", "structlog"}
NOT_FOR_LISTS = {*AGENTS, *PUBLISHING, "snowballstemmer", "yaml"}
TOOL_HOST = "handoff_queue.workers.tools.tool_host_process"
UNUSED = {
    "list": NOT_FOR_LISTS,
    "list --json": NOT_FOR_LISTS,
    "stats": NOT_FOR_LISTS,
    "show JOB": AGENTS | PUBLISHING,
    "cancel JOB": AGENTS,
    "submit hello": AGENTS,
}
"""Command -> modules that it does not use. A later command may use more than an earlier one."""
TYPING_SCRIPT = """
import sys
from handoff_queue.supervisor.cli.main import main
for line in sys.argv[1:]:
    sys.argv = ["handoff", *line.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, line
    print("\\nmodules:", *sys.modules, flush=True)
"""
WORKERS_START = """
import sys
from celery import signals
from handoff_queue.shared.settings.settings import load_settings
from handoff_queue.supervisor.assembly import make_supervisor_app
from handoff_queue.workers.assembly import make_workers_app

def start_worker(app):
    class Worker:
        pass
    Worker.app, Worker.hostname = app, "worker@here"
    signals.worker_init.send(Worker())
"""
"""Code that both rooms run."""
WORKERS_SCRIPT = """
start_worker(make_{room}_app(load_settings(), lambda settings: None))
print(*sys.modules)
from handoff_queue.{room}.app import app
print(*sys.modules)
start_worker(app)
print(*sys.modules)
"""
"""Script that prints the loaded modules three times. First it starts a worker with custom models.
Then it imports an app with the product's models, and starts the worker of that app.
"""


def run_code(code: str, *arguments: str, **environment: str) -> list[str]:
    """Run Python code in a new process, and return the lines that it prints."""
    command = [sys.executable, "-c", code, *arguments]
    process = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return process.stdout.splitlines()


def test_a_command_imports_nothing_heavy_that_it_does_not_use(redis_url: str) -> None:
    job_id = client.connect(redis_url, Settings(offline=True)).submit(Request("What is HNSW?"))
    commands = [command.replace("JOB", job_id) for command in UNUSED]

    printed = run_code(TYPING_SCRIPT, *commands, HANDOFF_REDIS_URL=redis_url)

    imported = [set(line.split()) for line in printed if line.startswith("modules:")]
    for (command, unused), modules in zip(UNUSED.items(), imported, strict=True):
        assert "redis" in modules, command
        assert modules & unused == set(), command


def test_a_tool_host_imports_no_message_types_and_nothing_for_rare_results() -> None:
    (line,) = run_code(f"import sys, {TOOL_HOST}; print(*sys.modules)")

    modules = set(line.split())
    assert TOOL_HOST in modules
    assert modules & {"asyncio", "imagesize", "handoff_queue.shared.types.handoff"} == set()


@dataclass(frozen=True)
class WorkerImports:
    """The modules of a process after each of its steps."""

    with_custom_models: set[str]
    """After the start of a worker with custom models."""
    inspected: set[str]
    """After the import of an app with the models of the product."""
    started: set[str]
    """After the start of a worker of this app."""


@pytest.fixture(scope="module")
def interpreter() -> Iterator[WarmInterpreter]:
    with WarmInterpreter(WORKERS_START, ROOT) as warm:
        yield warm


@pytest.fixture(scope="module", params=["supervisor", "workers"])
def worker_imports(request: pytest.FixtureRequest, interpreter: WarmInterpreter) -> WorkerImports:
    completed = interpreter.run(
        WORKERS_SCRIPT.format(room=request.param),
        HANDOFF_OFFLINE="false",
        ANTHROPIC_API_KEY="sk-canary-0123456789",
    )
    assert completed.returncode == 0, completed.stderr
    return WorkerImports(*(set(line.split()) for line in completed.stdout.splitlines()))


def test_a_worker_with_custom_models_never_imports_the_sdk(worker_imports: WorkerImports) -> None:
    assert worker_imports.with_custom_models & SDK == set()


def test_an_app_that_is_inspected_does_not_import_the_sdk(worker_imports: WorkerImports) -> None:
    """`celery inspect`, Flower and the check of a user's files import the app too."""
    assert worker_imports.inspected & {*SDK, "genai_prices"} == set()


def test_a_process_imports_the_sdk_when_it_becomes_a_worker(worker_imports: WorkerImports) -> None:
    assert {*SDK, "genai_prices"} <= worker_imports.started, "the first call would pay for it"
