"""A complete system for the time of one command: a private Redis, a supervisor and workers."""

from __future__ import annotations

import json
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.local.fork_server import start_celery_fork_server
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.local.run_directory import RunDirectory
from handoff_queue.shared.observability.telemetry import is_telemetry_wanted
from handoff_queue.shared.settings.folders import expand_folder
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.trust.key_files import build_key_variables, make_keys_of, with_keys
from handoff_queue.shared.trust.keyring import (
    CLIENT,
    CONSOLE,
    SUPERVISOR,
    WORKER,
    create_identities,
)
from handoff_queue.shared.types.errors import StoreUnavailable, UserError
from handoff_queue.shared.types.names import SUPERVISOR_QUEUE
from handoff_queue.supervisor.cli import interrupted_runs
from handoff_queue.supervisor.cli.celery_process import build_celery_command, find_messages
from handoff_queue.supervisor.cli.console_process import JobPages, job_pages
from handoff_queue.supervisor.cli.errors import BAD_INPUT

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.client import Client

WORKERS = 3
"""Worker processes that serve all specialists. A fan-out over three runs in parallel."""
SLOTS = 8
"""Handoffs that each worker runs at the same time."""
DRAIN_S = 2.0
"""Seconds that running turns get after Ctrl-C. A longer turn is cut off, and `handoff retry`
repeats it.
"""
_AFTER_DRAIN_S = 3.0
"""Seconds that the processes get after the drain, to export traces and to end."""
KEYS_FOLDER = "keys"
"""Folder of the keys in the folder of the private Redis, which is kept with an interrupted run."""
READY_WITHIN_S = 60.0
"""Seconds that the processes of a run may take until they are ready."""
_CHECK_EVERY_S = 0.02
"""Seconds between two checks whether the processes are ready."""


class EmbeddedSystem:
    """A private system, for `with EmbeddedSystem(settings) as system:`.

    The `with` block starts when Redis answers. The supervisor and the workers may still be
    starting.

    Args:
        interrupted: job id or name of a kept run to continue.
    """

    def __init__(self, settings: Settings, *, interrupted: str | None = None) -> None:
        self._settings = settings
        self._interrupted = interrupted
        if interrupted is None:
            self._worker_variables = build_own_redis_worker_variables(settings)
        else:
            self._worker_variables = interrupted_runs.read_worker_variables(settings, interrupted)
        self._parts = ExitStack()
        self._keep_as: str | None = None
        self._is_kept = interrupted is not None
        self.url = ""

    def __enter__(self) -> Self:
        with ExitStack() as parts:
            self._folder = parts.enter_context(RunDirectory()).path
            if self._interrupted:
                interrupted_runs.restore(self._settings, self._interrupted, self._folder)
            fork_server = start_celery_fork_server(is_offline=self._settings.is_offline)
            if fork_server is not None:
                parts.enter_context(fork_server)
            self._processes = parts.enter_context(Processes(self._folder, fork_server))
            self.url = PrivateRedis(self._processes, self._folder).start()
            self._make_keys()
            for spec in self._build_children():
                self._processes.start(spec)
            self._parts = parts.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._parts:
            try:
                grace_s = 0.0
                if self._keep_as or is_telemetry_wanted():
                    grace_s = DRAIN_S + _AFTER_DRAIN_S
                self._processes.stop(grace_s=grace_s)
            except KeyboardInterrupt:  # a second Ctrl-C: stop at once
                self._processes.stop(grace_s=0.0)
            if self._keep_as:
                self._is_kept = interrupted_runs.keep_run(
                    self._settings, self._keep_as, self._folder / "redis", self._worker_variables
                )
            elif self._interrupted and kind is None:
                interrupted_runs.forget(self._settings, self._interrupted)
                self._is_kept = False

    def keep_as(self, job_id: str) -> None:
        """Let the running handoffs end their turns, and keep the work for `handoff retry`."""
        self._keep_as = job_id

    @property
    def was_kept(self) -> bool:
        """Return whether the cache folder holds the work of this run."""
        return self._is_kept

    def wait_until_ready(self, jobs: Client) -> None:
        """Return when the supervisor and all workers have announced themselves.

        Raises:
            UserError: a process has ended, or a process is not ready in time. The message ends
                with a line of its log.
            StoreUnavailable: the private Redis has ended.
        """
        until = time.monotonic() + READY_WITHIN_S
        while not _has_announced_all(jobs):
            self.check()
            if time.monotonic() > until:
                raise UserError(
                    f"the processes of this run were not ready within {READY_WITHIN_S:.0f} s:"
                    f" {self._find_error_in_logs()}"
                )
            time.sleep(_CHECK_EVERY_S)

    def check(self) -> None:
        """Check that all needed processes live.

        Raises:
            UserError, StoreUnavailable: a process has ended, and is not started again.
        """
        broken_children = self._processes.read_log_ends_of_broken_children()
        if "redis" in broken_children:
            raise StoreUnavailable(
                f"the private Redis has ended: {broken_children['redis'].splitlines()[-1]}"
            )
        if broken_children:
            raise UserError(self._find_error_in_logs())

    def _make_keys(self) -> None:
        """Make the keys of a new run. An interrupted run keeps its keys."""
        self._keys = self._folder / "redis" / KEYS_FOLDER
        if self._interrupted is None:
            make_keys_of(self._keys, create_identities(()), is_for_one_run=True)

    def build_variables(self, identity: str) -> dict[str, str]:
        """Return the variables with the keys of one kind of process."""
        return build_key_variables(self._keys, identity)

    def open_pages(self, *, are_wanted: bool) -> AbstractContextManager[JobPages | None]:
        """Return the console of this system, or None if no pages are wanted."""
        return job_pages(self.url, self.build_variables(CONSOLE), are_wanted=are_wanted)

    def build_client_settings(self) -> Settings:
        """Return the settings of a client of this system."""
        return with_keys(self._settings, self._keys, CLIENT)

    def _build_children(self) -> list[ChildSpec]:
        environment = {
            **self._worker_variables,
            "HANDOFF_REDIS_URL": self.url,
            "HANDOFF_DRAIN_S": str(DRAIN_S),
        }
        commands = {"supervisor": _build_command("supervisor", "handoff_queue.supervisor.app", 8)}
        for n in range(1, WORKERS + 1):
            commands[f"worker{n}"] = _build_command(
                f"worker{n}", "handoff_queue.workers.app", SLOTS
            )
        child_specs: list[ChildSpec] = []
        for name, command in commands.items():
            identity = SUPERVISOR if name == SUPERVISOR else WORKER
            variables = {**environment, **self.build_variables(identity)}
            child_specs.append(ChildSpec(name, command, variables, fatal_exit_code=BAD_INPUT))
        return child_specs

    def _find_error_in_logs(self) -> str:
        """Return the first message for a person in the logs of the processes.

        The logs of ended processes come first. Without a message, return the last line of the
        first log that is not empty.
        """
        broken_children = self._processes.read_log_ends_of_broken_children()
        logs = (self._folder / "logs").glob("*.log")
        last_line = None
        for path in sorted(logs, key=lambda log: (log.stem not in broken_children, log)):
            if path.stem == "redis":
                continue
            log = path.read_text(errors="replace")
            messages = find_messages(log)
            if messages:
                return messages[0]
            lines = log.strip().splitlines()
            if lines and last_line is None:
                last_line = lines[-1]
        return f"a process of this run has ended: {last_line or 'its log is empty'}"


def _has_announced_all(jobs: Client) -> bool:
    """Return whether the supervisor and all workers of the system have announced themselves."""
    presence = jobs.store.presence
    if len(presence.read_announcements()) < WORKERS:
        return False
    return SUPERVISOR_QUEUE in presence.read_presence().queues


def build_worker_variables(settings: Settings) -> dict[str, str]:
    """Return the environment variables of the workers except the Redis URL, with absolute paths."""
    variables = {
        "HANDOFF_SPECIALISTS_DIRS": _encode_folders(settings.specialists_dirs, "--specialists"),
        "HANDOFF_TOOLS_DIRS": _encode_folders(settings.tools_dirs, "--tools"),
    }
    if settings.offline is not None:
        variables["HANDOFF_OFFLINE"] = str(settings.offline).lower()
    if settings.job_model is not None:
        variables["HANDOFF_JOB_MODEL"] = settings.job_model
    return variables


def build_own_redis_worker_variables(settings: Settings) -> dict[str, str]:
    """Return the environment variables of workers whose Redis no other program uses. These workers
    keep the turns for `handoff trace` unless the user has set HANDOFF_KEEP_TURNS.
    """
    variables = build_worker_variables(settings)
    if "keep_turns" not in settings.model_fields_set:
        variables["HANDOFF_KEEP_TURNS"] = "true"
    return variables


def _encode_folders(paths: tuple[Path, ...], option: str) -> str:
    """Return folders as a JSON list of absolute paths.

    Args:
        option: for an error.
    """
    absolute = [expand_folder(path, option).resolve() for path in paths]
    return json.dumps([str(path) for path in absolute])


def _build_command(name: str, app: str, slots: int) -> list[str]:
    return build_celery_command(app, "worker", "-n", f"{name}@%h", "-c", str(slots))
