"""`handoff up`: run the whole system on this machine, without Docker and with lasting data."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.local.fork_server import start_celery_fork_server
from handoff_queue.shared.local.redis_server import PrivateRedis, read_access, write_access
from handoff_queue.shared.local.redis_users import WORKER, RedisUsers, create_private_users
from handoff_queue.shared.settings.folders import expand_folder
from handoff_queue.shared.settings.optional_packages import check_extra
from handoff_queue.shared.settings.placeholder_passwords import check_log_ins, load_process_settings
from handoff_queue.shared.settings.ports import check_port, find_free_port, is_free
from handoff_queue.shared.settings.redis_url import read_address
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.trust.key_files import with_keys
from handoff_queue.shared.trust.keyring import CLIENT, CONSOLE, SUPERVISOR
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.presence import Announcement
from handoff_queue.supervisor.cli.celery_process import build_celery_command, find_messages
from handoff_queue.supervisor.cli.console_process import build_console_spec, has_server
from handoff_queue.supervisor.cli.display.terminal import (
    join_lines,
    print_message,
    print_progress,
    write,
)
from handoff_queue.supervisor.cli.embedded_system import (
    build_own_redis_worker_variables,
    build_worker_variables,
)
from handoff_queue.supervisor.cli.errors import FAILED, OK, end_like_ctrl_c
from handoff_queue.supervisor.cli.flower import build_flower_command, load_flower_password
from handoff_queue.supervisor.cli.local_keys import LocalKeys, prepare_local_keys
from handoff_queue.supervisor.cli.options import OwnSpecialists, OwnTools, Slots
from handoff_queue.supervisor.cli.serve import DEFAULT_PORT
from handoff_queue.supervisor.cli.supervisor_and_worker import (
    check_folders,
    check_own,
    check_specialists,
    list_specialist_names,
    list_specialists_without_memory,
    reach_redis,
    with_own,
)
from handoff_queue.supervisor.cli.unserved_specialists import find_unserved, print_unserved
from handoff_queue.supervisor.client.client import connect

WORKERS = 2
"""Worker processes for all specialists, without --worker."""
FLOWER_PORT = 5555
"""Default port of Flower."""
MAX_PROCESSES = 64
"""Most worker processes of `--workers`."""
PAGES = "Flower and the console"
_ACCESS = "redis-access.json"
_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")
_CHECK_EVERY_S = 0.5
"""Seconds between two checks of the processes."""
_AFTER_DRAIN_S = 5.0
"""Seconds after the drain in which a process may end. Then it is killed."""


def up(
    worker: Annotated[
        list[str],
        typer.Option(
            metavar="SPECIALIST=N", help="Start N processes for this specialist. Repeatable."
        ),
    ] = [],  # noqa: B006
    concurrency: Slots = None,
    flower: Annotated[
        bool,
        typer.Option(
            "--flower", help="Start Flower too, behind a password.", rich_help_panel=PAGES
        ),
    ] = False,
    flower_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=1,
            max=65_535,
            help="The port of Flower on 127.0.0.1.",
            show_default=str(FLOWER_PORT),
            rich_help_panel=PAGES,
        ),
    ] = None,
    no_serve: Annotated[
        bool,
        typer.Option(
            "--no-serve",
            help="Do not start the console and the HTTP API.",
            rich_help_panel=PAGES,
        ),
    ] = False,
    serve_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=1,
            max=65_535,
            help="The port of the console and the HTTP API on 127.0.0.1. Not given: 8321, or a free"
            " port if 8321 is taken.",
            rich_help_panel=PAGES,
        ),
    ] = None,
    home: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            envvar="HANDOFF_HOME",
            help="The folder for the data of Redis, passwords and logs.",
        ),
    ] = Path(".handoff"),
    specialists: OwnSpecialists = [],  # noqa: B006
    tools: OwnTools = [],  # noqa: B006
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Sign all messages with the keys in this folder, and make missing keys. Default:"
            " HANDOFF_KEYS, or with a Redis of its own DIR/keys of --home.",
        ),
    ] = None,
    no_keys: Annotated[
        bool, typer.Option("--no-keys", help="Sign nothing, for development.")
    ] = False,
) -> int:
    """Start Redis, a supervisor, workers and the console here.

    The command prints the `export` lines for the other terminal. With HANDOFF_REDIS_URL, it
    uses that Redis. Ctrl-C stops everything, and open jobs continue at the next start.

      handoff up --worker researcher=3 --flower --serve-port 8400
    """
    if flower_port is not None and not flower:
        raise UserError("--flower-port needs --flower, which starts Flower: add it")
    if serve_port is not None and no_serve:
        raise UserError("--no-serve and --serve-port exclude each other: leave one out")
    port_of_flower = None
    if flower:
        port_of_flower = flower_port or FLOWER_PORT
        check_extra("flower", "handoff up --flower")
        check_port(port_of_flower, "choose another for Flower with --flower-port")
        check_log_ins(filter(None, os.environ.get("FLOWER_BASIC_AUTH", "").split(",")))
    if serve_port is not None:
        check_extra("serve", "handoff up --serve-port", "serve")
        check_port(serve_port, "choose another with --serve-port")
    settings = with_own(_without_own_url(load_process_settings(), home), specialists, tools)
    queues = parse_workers(worker, list_specialist_names(settings))
    check_folders(settings)
    check_own(settings)
    if settings.redis_url is not None:
        reach_redis(settings)  # otherwise the processes would wait for Redis without a message
    end_like_ctrl_c()
    with ExitStack() as parts:
        folder = take_home_folder(home, parts)
        parts.enter_context(name_folder_in_error(folder))
        signing = prepare_local_keys(folder, settings, queues, keys, has_none=no_keys)
        fork_server = start_celery_fork_server(is_offline=settings.is_offline)
        if fork_server is not None:
            parts.enter_context(fork_server)
        processes = parts.enter_context(Processes(folder, fork_server))
        try:
            console_port = None
            if not no_serve:
                console_port = serve_port or get_default_console_port()
            system = _LocalSystem(
                processes=processes,
                folder=folder,
                settings=settings,
                queues=queues,
                slots=concurrency,
                flower_port=port_of_flower,
                console_port=console_port,
                signing=signing,
            )
            system.start()
            return _stay(processes)
        except KeyboardInterrupt:
            _stop(processes, settings)
            return OK


def get_default_console_port() -> int | None:
    """Return the port of a console for which the user named no port. None: a package of the
    console is not installed, and the system runs without it.
    """
    try:
        check_extra("serve", "the console", "serve")
    except UserError as error:
        print_message(f"{error}, or start without the console: handoff up --no-serve")
        return None
    if is_free(DEFAULT_PORT):
        return DEFAULT_PORT
    port = find_free_port()
    print_progress(f"port {DEFAULT_PORT} is taken: the console uses port {port}")
    return port


def _without_own_url(settings: Settings, home: Path) -> Settings:
    """Return the settings without a Redis URL that an earlier `handoff up` with this home
    printed.

    A shell that exported the URL can start the system again. The Redis has the same password
    at each start, but not always the same port.
    """
    own_access = read_access(expand_folder(home, "--home").resolve() / _ACCESS)
    if own_access is None or settings.redis_url is None:
        return settings
    url = read_address(settings.redis_url.get_secret_value())
    if url.password != own_access.password or url.hosts[0][0] not in _THIS_MACHINE:
        return settings
    return settings.model_copy(update={"redis_url": None})


def parse_workers(worker_options: Sequence[str], known: Sequence[str]) -> dict[str, list[str]]:
    """Return the queues of each worker process, by its name. No queues: all specialists.

    Without SPECIALIST=N there are `WORKERS` processes for all specialists. Otherwise one more
    process serves the specialists that are not named.

    Raises:
        UserError: a text is not SPECIALIST=N, or names an unknown specialist.
    """
    counts: dict[str, int] = {}
    for item in worker_options:
        specialist, _, number = item.partition("=")
        if not number.isdigit() or not 1 <= int(number) <= MAX_PROCESSES:
            raise UserError(
                f"--worker {item}: write SPECIALIST=N, with a number of processes from 1 to"
                f" {MAX_PROCESSES}"
            )
        check_specialists([specialist], known)
        counts[specialist] = int(number)
    if not counts:
        return {f"worker{n}": [] for n in range(1, WORKERS + 1)}
    queues: dict[str, list[str]] = {}
    for specialist, count in counts.items():
        for n in range(1, count + 1):
            queues[f"{specialist}{n}"] = [specialist]
    others = [name for name in known if name not in counts]
    if others:
        queues["others"] = others
    return queues


@dataclass(frozen=True, slots=True)
class _Environments:
    """The environments of the processes."""

    worker_variables: Mapping[str, str]
    url: str
    """URL of Redis for the user's own commands."""
    users: RedisUsers | None
    """Redis users of the private Redis; None for a Redis of the user."""

    def build(self, user: str) -> dict[str, str]:
        """Return the environment of the processes with one Redis user."""
        url = self.url
        if self.users is not None:
            url = self.users.build_url(user, url)
        return {**self.worker_variables, "HANDOFF_REDIS_URL": url}


@dataclass(frozen=True, slots=True, kw_only=True)
class _LocalSystem:
    """The system that one `handoff up` starts."""

    processes: Processes
    folder: Path
    """The home folder."""
    settings: Settings
    queues: Mapping[str, Sequence[str]]
    """The specialists of each worker process, by its name: see `parse_workers`."""
    slots: int | None
    """Handoffs that a worker process runs at the same time; None: the default of the workers."""
    flower_port: int | None
    """None: without Flower."""
    console_port: int | None
    """None: without the console."""
    signing: LocalKeys

    def start(self) -> None:
        """Start all processes, wait until they are ready, and print how to use them.

        Raises:
            UserError: a process cannot start. The message is the last message for a person in its
                log, or else the end of its log.
        """
        print_progress("starting ...")
        environments = self._open_redis()
        self._start_supervisor(environments)
        self._start_workers(environments)
        password = None
        if self.flower_port:
            password = self._start_flower(self.flower_port, environments)
        if self.console_port:
            variables = environments.build("console") | self.signing.build_variables(CONSOLE)
            self.processes.start(build_console_spec(variables, self.console_port))
        self._wait()
        if self.settings.redis_url is None:
            # not by print_progress: an error must not repeat the password
            write(f"export HANDOFF_REDIS_URL={environments.url}\n")
        for line in self.signing.build_lines():
            write(f"{line}\n")
        for name, specialists in self.queues.items():
            print_progress(f"{name}: {', '.join(specialists) or 'all specialists'}")
        self._print_unserved(environments.url)
        self._print_use(password)

    def _open_redis(self) -> _Environments:
        """Return the environments with the Redis of the user, or start a private Redis."""
        if self.settings.redis_url is not None:
            url = self.settings.redis_url.get_secret_value()
            return _Environments(build_worker_variables(self.settings), url, None)
        known = list_specialist_names(self.settings)
        users = create_private_users(
            _group_specialists_by_user(self.queues, known),
            list_specialists_without_memory(self.settings),
        )
        url = self._start_redis(users)
        return _Environments(build_own_redis_worker_variables(self.settings), url, users)

    def _start_redis(self, users: RedisUsers) -> str:
        """Start Redis and return its URL.

        The password stays the same at each start, because other terminals use it. The port stays
        the same if it is free.
        """
        earlier = read_access(self.folder / _ACCESS)
        redis = PrivateRedis(
            self.processes, self.folder, earlier=earlier, users=users.build_lines()
        )
        if earlier is not None and redis.access.port != earlier.port:
            print_progress(
                f"port {earlier.port} of the last start is taken: the export lines have changed"
            )
        url = redis.start()
        write_access(self.folder / _ACCESS, redis.access)
        return url

    def _start_supervisor(self, environments: _Environments) -> None:
        command = build_celery_command(
            "handoff_queue.supervisor.app", "worker", "-n", "supervisor@%h"
        )
        variables = environments.build("supervisor") | self.signing.build_variables(SUPERVISOR)
        self.processes.start(ChildSpec("supervisor", command, variables))

    def _start_workers(self, environments: _Environments) -> None:
        for name, specialists in self.queues.items():
            options = ["-n", f"{name}@%h"]
            if specialists:
                options += ["-Q", ",".join(specialists)]
            if self.slots:
                options += ["-c", str(self.slots)]
            command = build_celery_command("handoff_queue.workers.app", "worker", *options)
            keys = self.signing.build_variables(self.signing.workers[name])
            variables = environments.build(_get_user(specialists)) | keys
            self.processes.start(ChildSpec(name, command, variables))

    def _start_flower(self, port: int, environments: _Environments) -> str | None:
        """Start Flower and return its password, or None if FLOWER_BASIC_AUTH sets the log-in.

        The password goes into the environment, because every user can read a command line.
        """
        variables = environments.build("flower") | self.signing.build_variables(None)
        password = None
        if not os.environ.get("FLOWER_BASIC_AUTH"):
            password = load_flower_password(self.folder)
            variables["FLOWER_BASIC_AUTH"] = f"admin:{password}"
        command = build_flower_command(self.folder, port)
        self.processes.start(
            ChildSpec("flower", command, variables, is_ready=lambda: has_server(port))
        )
        return password

    def _wait(self) -> None:
        """Wait until all processes are ready."""
        try:
            self.processes.wait_until_ready()
        except UserError as error:
            if messages := find_messages(str(error)):
                raise UserError(messages[-1]) from error
            raise

    def _print_unserved(self, url: str) -> None:
        """Print each specialist that no started worker can serve, with the reason."""
        store = connect(url, with_keys(self.settings, self.signing.folder, CLIENT)).store
        nodes = tuple(f"{name}@" for name in self.queues)
        new_announcements: list[Announcement] = []
        for announcement in store.presence.read_announcements():
            if announcement.node.startswith(nodes):
                new_announcements.append(announcement)
        store.connection.close()
        print_unserved(find_unserved(new_announcements))

    def _print_use(self, password: str | None) -> None:
        """Print how to use the system.

        Args:
            password: the password of Flower; None: FLOWER_BASIC_AUTH has it.
        """
        redis, environment = "your Redis", "with the same HANDOFF_REDIS_URL"
        if self.settings.redis_url is None:
            lines = "line" if self.signing.folder is None else "lines"
            redis, environment = "Redis with its data", f"with the export {lines} above"
        print_progress(f"supervisor; {redis}; logs in {self.folder / 'logs'}")
        if self.flower_port:
            log_in = "log-in as in FLOWER_BASIC_AUTH"
            if password:
                log_in = f"user admin, password {password}"
            print_progress(f"Flower: http://127.0.0.1:{self.flower_port}, {log_in}")
        if self.console_port:
            print_progress(
                f"console: http://127.0.0.1:{self.console_port}/, open to every user of this"
                " machine until the first `handoff token create`"
            )
        if self.signing.folder is None:
            print_progress(self.signing.why_none)
        print_progress(
            f"Ctrl-C stops everything; in another terminal, {environment}: handoff submit, handoff"
            " run, handoff doctor"
        )


def _get_user(specialists: Sequence[str]) -> str:
    """Return the Redis user of the workers that serve these specialists; none: all."""
    if not specialists:
        return WORKER
    if len(specialists) == 1:
        return f"{WORKER}-{specialists[0]}"
    return f"{WORKER}-others"


def _group_specialists_by_user(
    queues: Mapping[str, Sequence[str]], known: Sequence[str]
) -> dict[str, Sequence[str]]:
    """Return the specialists of each Redis user of workers."""
    return {_get_user(specialists): specialists or known for specialists in queues.values()}


def _stay(processes: Processes) -> int:
    """Wait until Ctrl-C, or until a process has died too often. Return the exit code."""
    known = processes.get_pids()
    while not (broken_children := processes.read_log_ends_of_broken_children()):
        time.sleep(_CHECK_EVERY_S)
        for name, pid in processes.get_pids().items():
            if known.get(name, pid) != pid:
                print_progress(
                    f"{name} died and was started again; see {processes.get_log_path(name)}"
                )
            known[name] = pid
    for name, tail in broken_children.items():
        print_message(
            f"{name} has died too often, and everything is stopped: {join_lines(tail)[-300:]}"
        )
    return FAILED


def _stop(processes: Processes, settings: Settings) -> None:
    print_progress(
        f"stopping: running turns have up to {settings.drain_s:.0f} s; Ctrl-C again stops at once"
    )
    try:
        processes.stop(grace_s=settings.drain_s + _AFTER_DRAIN_S)
    except KeyboardInterrupt:
        processes.stop(grace_s=0.0)
    print_progress("stopped; open jobs continue at the next `handoff up`")


@contextmanager
def name_folder_in_error(folder: Path) -> Iterator[None]:
    """Name the home folder in the error of a full disk. A failed write names no file."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or error.filename:
            raise
        raise OSError(error.errno, error.strerror, str(folder)) from error


def take_home_folder(home: Path, parts: ExitStack) -> Path:
    """Lock the home folder and return it.

    Raises:
        UserError: it cannot be written, or another `handoff up` uses it.
    """
    folder = expand_folder(home, "--home").resolve()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        ignored = folder / ".gitignore"
        if not ignored.exists():
            ignored.write_text("*\n")  # the folder has private keys and the data of jobs
        lock = parts.enter_context((folder / "lock").open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UserError(
            f"another `handoff up` uses {folder}: stop it, or choose another --home"
        ) from error
    except OSError as error:
        raise UserError(
            f"{folder} cannot be used ({error.strerror}): choose another folder with --home"
        ) from error
    return folder
