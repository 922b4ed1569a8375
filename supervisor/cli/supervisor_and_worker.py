"""`handoff supervisor` and `handoff worker`: start a Celery worker with the right queues.

The folder of the built-in specialists is found without an import of the workers' code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated

import typer

from handoff_queue.shared.settings.placeholder_passwords import load_process_settings
from handoff_queue.shared.settings.settings import (
    DEFAULT_REDIS_URL,
    Settings,
    get_redis_url,
    load_settings,
)
from handoff_queue.shared.text.word_forms import suggest_name
from handoff_queue.shared.trust.keyring import SUPERVISOR_RIGHTS, WORKER_RIGHTS, Right
from handoff_queue.shared.types.errors import StoreUnavailable, UserError
from handoff_queue.supervisor.cli.celery_process import build_celery_command, check_app
from handoff_queue.supervisor.cli.display.terminal import print_message
from handoff_queue.supervisor.cli.embedded_system import build_worker_variables
from handoff_queue.supervisor.cli.options import OwnSpecialists, OwnTools, Slots


def complete_specialist_names() -> list[str]:
    """Return the names of the specialists for shell completion, or no names after any error."""
    try:
        return list_specialist_names(load_settings())
    except Exception:  # noqa: BLE001
        return []


def supervisor(concurrency: Slots = None) -> int:
    """Start a supervisor process.

    It plans and reviews jobs, writes the answers and recovers lost work. You can start any
    number. The command is the same as `celery -A handoff_queue.supervisor.app worker`. If
    HANDOFF_SIGNING_KEY is the key of another kind of process, the supervisor takes its own key.
    """
    settings = load_process_settings()
    _check_redis(settings)
    _take_key_of(settings, "supervisor", SUPERVISOR_RIGHTS)
    return _become(
        "handoff_queue.supervisor.app", f"supervisor-{os.getpid()}", [], concurrency, settings
    )


def worker(
    served: Annotated[
        list[str],
        typer.Argument(
            metavar="SPECIALIST",
            autocompletion=complete_specialist_names,
            help="The specialists to serve.",
        ),
    ] = [],  # noqa: B006
    everyone: Annotated[bool, typer.Option("--all", help="Serve every specialist.")] = False,
    concurrency: Slots = None,
    specialists: OwnSpecialists = [],  # noqa: B006
    tools: OwnTools = [],  # noqa: B006
) -> int:
    """Start a worker process for one or more specialists.

    You can start any number, on any machine that reaches the broker. The command is the same
    as `celery -A handoff_queue.workers.app worker -Q SPECIALIST,SPECIALIST`. If
    HANDOFF_SIGNING_KEY is the key of another kind of process, the worker takes its own key.

      handoff worker researcher -c 32

      handoff worker --all --specialists our-specialists --tools our-tools
    """
    settings = with_own(load_process_settings(), specialists, tools)
    known = list_specialist_names(settings)
    if everyone == bool(served):
        raise UserError(f"name the specialists to serve, or give --all (known: {', '.join(known)})")
    check_specialists(served, known)
    check_folders(settings)
    _check_redis(settings)
    _take_key_of(settings, "worker", WORKER_RIGHTS, served or known)
    if served:
        queues = ["-Q", ",".join(dict.fromkeys(served))]
    else:
        queues = []
    name = "-".join(list(dict.fromkeys(served))[:3]) or "everyone"
    return _become(
        "handoff_queue.workers.app", f"{name}-{os.getpid()}", queues, concurrency, settings
    )


def with_own(settings: Settings, specialists: Sequence[Path], tools: Sequence[Path]) -> Settings:
    """Return the settings with the folders of the command line after the folders of the
    settings.
    """
    return settings.model_copy(
        update={
            "specialists_dirs": (*settings.specialists_dirs, *specialists),
            "tools_dirs": (*settings.tools_dirs, *tools),
        }
    )


def check_own(settings: Settings) -> list[str]:
    """Check that a worker can load the user's own specialists and tools. Print and return its
    messages about them.

    The check runs in another process, because a tool's file is code for workers only.

    Raises:
        UserError: a file is not valid. The message names the file and the fix.
    """
    if settings.specialists_dirs or settings.tools_dirs:
        return check_app("handoff_queue.workers.app", build_worker_variables(settings))
    return []


def check_folders(settings: Settings) -> None:
    """Check that the working directory exists, and that this user can write the cache folder of
    the workers, before anything starts.

    Raises:
        UserError: the working directory was deleted, the user has no home folder, or the cache
            folder cannot be written. The last two messages name HANDOFF_CACHE_DIR.
    """
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise UserError(
            "the working directory does not exist any more: change to another folder"
        ) from error
    folder = settings.cache_folder
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"HANDOFF_CACHE_DIR: {folder} cannot be written ({error.strerror}): name a folder that"
            " this user can write"
        ) from error


def list_specialist_names(settings: Settings) -> list[str]:
    """Return the names of all specialists.

    Raises:
        InvalidSpecialist: a file is not valid.
    """
    from handoff_queue.shared.specialists import find_specialists_folder, load_specialists

    return list(load_specialists(find_specialists_folder(), *settings.specialists_dirs))


def list_specialists_without_memory(settings: Settings) -> list[str]:
    """Return the names of all specialists that do not have the tool `memory`.

    Raises:
        InvalidSpecialist: a file is not valid.
    """
    from handoff_queue.shared.specialists import find_specialists_folder, load_specialists
    from handoff_queue.shared.types.memory_notes import MEMORY

    names: list[str] = []
    specialists = load_specialists(find_specialists_folder(), *settings.specialists_dirs)
    for name, spec in specialists.items():
        if MEMORY not in spec.tools:
            names.append(name)
    return names


def check_specialists(names: Collection[str], known: Collection[str]) -> None:
    """Check that the specialists exist.

    Raises:
        UserError: names the first unknown specialist, and the closest known name.
    """
    for name in names:
        if name not in known:
            otherwise = (
                "name a known specialist, or add a folder of your own with --specialists DIR"
            )
            hint = suggest_name(name, known, otherwise=otherwise, limit=2)
            raise UserError(f"there is no specialist {name[:64]!r}: {hint}")


def _become(
    app: str, name: str, queues: list[str], concurrency: int | None, settings: Settings
) -> int:
    """Replace this process by a Celery worker. Never returns."""
    if concurrency:
        slots = ["-c", str(concurrency)]
    else:
        slots = []
    os.environ.update(build_worker_variables(settings))
    sys.stdout.flush()
    sys.stderr.flush()
    command = build_celery_command(app, "worker", "-n", f"{name}@%h", *queues, *slots)
    os.execv(command[0], command)


def _take_key_of(
    settings: Settings, kind: str, rights: Sequence[Right], specialists: Sequence[str] = ()
) -> None:
    """Sign with the key of this kind of process if HANDOFF_SIGNING_KEY has a key of another kind.
    The shell of `handoff up` has the key of the client, for example. Print a line about it.

    The key is in the folder of HANDOFF_KEYS. If this user can read no such key, nothing changes,
    and the process refuses to start.

    Args:
        rights: the rights that this kind of process needs.
        specialists: the specialists of the worker.

    Raises:
        UserError: there is no key in HANDOFF_SIGNING_KEY, or no identity has it.
    """
    from handoff_queue.shared.trust.signatures import open_trust

    trust = open_trust(settings)
    file = trust.find_key_of(rights, specialists)
    if file is not None:
        print_message(
            f"HANDOFF_SIGNING_KEY is the key of {trust.signer.name}: the {kind} signs with {file}"
        )
        os.environ["HANDOFF_SIGNING_KEY"] = str(file)


def _check_redis(settings: Settings) -> None:
    """Check Redis before the worker starts. If Redis is away, Celery waits for it.

    Raises:
        StoreUnavailable: the URL or the password is wrong.
        UnusableRedis: it is a cluster, or the database does not exist.
    """
    if settings.redis_url is None:
        print_message(f"HANDOFF_REDIS_URL is not set: trying {DEFAULT_REDIS_URL}")
    try:
        reach_redis(settings)
    except StoreUnavailable as error:
        if "cannot be reached" not in str(error):
            raise
        print_message(f"{error}; waiting for it")


def reach_redis(settings: Settings) -> None:
    """Connect to Redis once.

    Raises:
        StoreUnavailable: Redis cannot be reached, or the URL or the password is wrong.
        UnusableRedis: it is a cluster, or the database does not exist.
    """
    from handoff_queue.shared.store.redis.connection import COMMAND_TIMEOUT_S
    from handoff_queue.shared.store.store import open_store

    store = open_store(get_redis_url(settings), settings, timeout_s=COMMAND_TIMEOUT_S)
    try:
        store.connection.now()
        store.health.check_no_cluster()
    finally:
        store.connection.close()
