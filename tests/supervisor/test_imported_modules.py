"""A process imports no module that it does not need, so that commands start fast."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.supervisor.client import client

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SDK = {"anthropic", "aiohttp"}
AGENTS = {*SDK, "genai_prices", "httpx2", "jsonschema", "re2"}
PUBLISHING = {"celery", "kombu", "structlog"}
TYPING_SCRIPT = """
import sys
from handoff_queue.supervisor.cli.main import main
try:
    main()
finally:
    print(*sys.modules)
"""
WORKER_START_SCRIPT = """
import sys
from celery import signals
{app}
class Worker:
    app, hostname = app, "worker@here"
print(*sys.modules)
signals.worker_init.send(Worker())
print(*sys.modules)
"""
"""Script that prints the modules before and after Celery's `worker_init` signal."""
CUSTOM_MODELS_SCRIPT = """
from handoff_queue.shared.settings.settings import load_settings
from {room}.assembly import make_{room}_app
app = make_{room}_app(load_settings(), lambda settings: None)
"""


def run_code(code: str, *arguments: str, **surroundings: str) -> list[set[str]]:
    """Run Python code in a new process. Return the words of each line that it prints."""
    command = [sys.executable, "-c", code, *arguments]
    process = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **surroundings},
        capture_output=True,
        text=True,
        check=True,
    )
    return [set(line.split()) for line in process.stdout.splitlines()]


@pytest.mark.parametrize(
    ("typed", "unused"),
    [
        ("list", {*AGENTS, *PUBLISHING, "yaml"}),
        ("list --json", {*AGENTS, *PUBLISHING, "yaml"}),
        ("stats", {*AGENTS, *PUBLISHING, "yaml"}),
        ("show JOB", {*AGENTS, *PUBLISHING}),
        ("cancel JOB", AGENTS),
        ("submit hello", AGENTS),
    ],
)
def test_a_command_imports_nothing_heavy_that_it_does_not_use(
    typed: str, unused: set[str], redis_url: str
) -> None:
    job_id = client.connect(redis_url, Settings(offline=True)).submit(
        client.Request("What is HNSW?")
    )

    *_, imported = run_code(
        TYPING_SCRIPT, *typed.replace("JOB", job_id).split(), HANDOFF_REDIS_URL=redis_url
    )

    assert "redis" in imported
    assert imported & unused == set()


@pytest.mark.parametrize("room", ["supervisor", "workers"])
def test_a_process_imports_the_sdk_when_it_becomes_a_worker_and_not_when_an_app_is_inspected(
    room: str,
) -> None:
    """`celery inspect`, Flower and the check of a user's files import the app too."""
    looked_at, started = run_code(
        WORKER_START_SCRIPT.format(app=f"from {room}.app import app"),
        HANDOFF_OFFLINE="false",
        ANTHROPIC_API_KEY="sk-canary-0123456789",
    )

    assert looked_at & {*SDK, "genai_prices"} == set()
    assert {*SDK, "genai_prices"} <= started, "the first call would pay for it"


@pytest.mark.parametrize("room", ["supervisor", "workers"])
def test_a_worker_with_custom_models_never_imports_the_sdk(room: str) -> None:
    _, started = run_code(
        WORKER_START_SCRIPT.format(app=CUSTOM_MODELS_SCRIPT.format(room=room)),
        HANDOFF_OFFLINE="false",
    )

    assert started & SDK == set()


def test_the_clients_types_can_be_named_though_they_are_imported_late() -> None:
    assert [getattr(client, name).__name__ for name in client.__all__] == client.__all__
    assert not hasattr(client, "Nonsense")
