"""A whole system on this machine for tests: Redis, a supervisor and a worker."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.local.fork_server import start_celery_fork_server
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.local.run_directory import RunDirectory
from handoff_queue.shared.settings.folders import expand_folder
from handoff_queue.shared.settings.settings import load_settings
from handoff_queue.shared.trust.key_files import build_key_variables, with_keys
from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.client.client import Client, connect
from handoff_queue.testing.messages_server import MessagesServer

APPS = {
    "supervisor": "handoff_queue.supervisor.app",
    "worker": "handoff_queue.workers.app",
}
"""Celery app of each process by the name of the process."""
SLOTS = 8
"""Handoffs that the worker runs at once, and jobs that the supervisor plans at once."""


@dataclass(frozen=True, slots=True)
class RunningSystem:
    """A system that runs until the end of the `with` block of `running_system`."""

    redis_url: str
    """URL of the private Redis: `HANDOFF_REDIS_URL` for other programs of the test."""
    jobs: Client
    """Client of the system."""
    logs: Path
    """Folder of the logs: `supervisor.log` and `worker.log`."""


@contextmanager
def running_system(
    model: MessagesServer | None = None,
    *,
    specialists: Path | Sequence[Path] = (),
    tools: Path | Sequence[Path] = (),
    settings: Mapping[str, str] | None = None,
) -> Iterator[RunningSystem]:
    """Start a private Redis, a supervisor and a worker, and stop them after the `with` block.

    The system signs no messages: it does not use HANDOFF_KEYS and HANDOFF_SIGNING_KEY of the shell.
    The machine needs the program `redis-server` or `valkey-server`, and the environment needs
    the extra `worker` of the package.

    Args:
        model: server that replies to the agents. None: the offline model replies.
        specialists: folder of specialist files, or several folders.
        tools: folder of tool files, or several folders.
        settings: more environment variables of the processes, such as the secrets of tools.

    Raises:
        UserError: a folder does not exist, there is no Redis program, or a process does not
            start. The message has the end of the log of the process.
    """
    environment = {
        "HANDOFF_SPECIALISTS_DIRS": _join_folders(specialists, "specialists"),
        "HANDOFF_TOOLS_DIRS": _join_folders(tools, "tools"),
        **_build_model_environment(model),
    }
    with ExitStack() as parts:
        folder = parts.enter_context(RunDirectory())
        fork_server = start_celery_fork_server(is_offline=model is None)
        if fork_server is not None:
            parts.enter_context(fork_server)
        processes = parts.enter_context(Processes(folder.path, fork_server))
        environment["HANDOFF_CACHE_DIR"] = str(folder.path / "cache")
        url = PrivateRedis(processes, folder.path, append_only=False).start()
        environment |= {"HANDOFF_REDIS_URL": url, **build_key_variables(None), **(settings or {})}
        for name, app in APPS.items():
            processes.start(ChildSpec(name, _build_celery_command(name, app), environment))
        processes.wait_until_ready()
        jobs = connect(url, with_keys(load_settings(), None))
        parts.callback(jobs.close)
        yield RunningSystem(url, jobs, folder.path / "logs")


def _build_model_environment(model: MessagesServer | None) -> dict[str, str]:
    if model is None:
        return {"HANDOFF_OFFLINE": "true"}
    return {
        "HANDOFF_OFFLINE": "false",
        "HANDOFF_MODEL_PROVIDER": "anthropic",
        "ANTHROPIC_API_KEY": "test-key",
        "ANTHROPIC_BASE_URL": model.url,
    }


def _join_folders(folders: Path | Sequence[Path], option: str) -> str:
    if isinstance(folders, Path):
        folders = [folders]
    paths: list[str] = []
    for folder in folders:
        path = expand_folder(folder, option).resolve()
        if not path.is_dir():
            raise UserError(f"{option}: {path} is not a folder; name an existing folder")
        paths.append(str(path))
    return json.dumps(paths)


def _build_celery_command(name: str, app: str) -> list[str]:
    worker = ["worker", "-n", f"{name}@%h", "-c", str(SLOTS)]
    return [sys.executable, "-m", "celery", "-A", app, *worker]
