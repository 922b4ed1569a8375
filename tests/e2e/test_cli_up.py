"""`handoff up` runs the whole system on one machine. `handoff worker` and `handoff supervisor`
run one process each.

The first `handoff up` starts in a new interpreter, as from a shell. Other commands are forked.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis

from handoff_queue.shared.local.fork_server import ForkedProcess
from handoff_queue.shared.local.redis_server import RedisAccess, write_access
from handoff_queue.shared.settings.ports import find_free_port
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.store import open_store
from handoff_queue.shared.trust.event_signatures import read_stamp, without_signature
from handoff_queue.shared.trust.key_files import read_keyring
from handoff_queue.shared.trust.keyring import KEY_ID_CHARS
from handoff_queue.shared.types.events import HandoffFinished, HandoffIssued
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.names import ROLES
from handoff_queue.supervisor.cli.errors import OK, PARTIAL
from handoff_queue.supervisor.cli.serve import DEFAULT_PORT
from tests.docs.pages import ROOT
from tests.docs.samples import commands, of_page
from tests.e2e.commands import (
    BAD_INPUT,
    DOCUMENTS,
    REQUEST,
    Handoff,
    error_line,
    interrupt,
    processes,
)
from tests.e2e.test_hostile_environment import service_links
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

SERVER = "supervisor.cli.main serve"
"""Text in the command line of the console and the HTTP API."""


@pytest.fixture
def handoff(tmp_path: Path) -> Handoff:
    return Handoff(tmp_path)


def printed_url(handoff: Handoff) -> str:
    url: str = exported(handoff)["HANDOFF_REDIS_URL"]
    return url


def exported(handoff: Handoff) -> dict[str, Any]:
    """Return the variables that `handoff up` prints for the other terminal."""
    handoff.wait_for_text("Ctrl-C stops everything")
    return dict(re.findall(r"^export (\w+)=(\S+)$", handoff.read("out"), re.MULTILINE))


def signers_of(variables: dict[str, Any], job_id: str) -> dict[str, str]:
    """Return the identity that signed the results of each role in a job's journal."""
    keyring = read_keyring(Path(variables["HANDOFF_KEYS"]))
    store = open_store(variables["HANDOFF_REDIS_URL"], Settings())
    roles: dict[str, str] = {}
    signers: dict[str, str] = {}
    ended: list[str] = []
    for recorded in store.journal.read_all(JobId(job_id)):
        event, stamp = recorded.event, without_signature(recorded.raw)[1]
        if isinstance(event, HandoffIssued):
            roles[event.handoff_id] = event.assigned_to
        elif isinstance(event, HandoffFinished):
            ended.append(roles[event.handoff_id])
        if stamp:
            holder = keyring.find_holder(read_stamp(stamp).signature[:KEY_ID_CHARS])
            assert holder is not None
            signers |= dict.fromkeys(ended, holder[0])
            ended.clear()
    store.connection.close()
    return signers


def printed_password(handoff: Handoff) -> str:
    match = re.search(r"user admin, password (\S+)", handoff.read("err"))
    assert match, handoff.read("err")
    return match[1]


def console_of(handoff: Handoff) -> str:
    match = re.search(
        r"^console: (http://127\.0\.0\.1:\d+)/, open to", handoff.read("err"), re.MULTILINE
    )
    assert match, handoff.read("err")
    return match[1]


def jobs_at(address: str) -> list[str]:
    """Return the ids of the jobs that the HTTP API at this address lists."""
    with urllib.request.urlopen(f"{address}/v1/jobs", timeout=30) as answer:
        return [job["job_id"] for job in json.load(answer)["jobs"]]


def pids_of(handoff: Handoff, text: str) -> list[int]:
    """Return the processes of this `handoff up` with the text in their title in `ps`."""
    return [pid for pid, title in processes() if text in title and handoff.has_started(pid)]


def refused_at(url: str) -> list[Any]:
    """Return Redis's log of refused commands."""
    with redis.Redis.from_url(url) as connection:
        return list(connection.acl_log())


@dataclass(frozen=True)
class FirstStart:
    """Output and results of the first `handoff up` in a home folder, until its end by Ctrl-C."""

    home: Handoff
    taken: RedisAccess
    """Access to the Redis of an earlier start. Another program has its port."""
    variables: dict[str, Any]
    """Variables for the other terminal."""
    messages: str
    password: str
    job: subprocess.CompletedProcess[str]
    trace: str
    """The page of the job."""
    signers: dict[str, str]
    """Identity that signed the results of each role."""
    without_key: subprocess.CompletedProcess[str]
    """A submission in a terminal that has only the URL."""
    specialists: list[dict[str, Any]]
    second_up: subprocess.CompletedProcess[str]
    """Another `handoff up` with the same home folder, at the same time."""
    refused: list[Any]
    """Commands that Redis refused to the users of the processes."""
    jobs_over_http: list[str]
    """Ids of the jobs that the HTTP API lists, at the address of the console."""
    exit_code: int
    remaining: list[str]
    """Command lines of the processes that did not end."""


@pytest.fixture(scope="module")
def first_start(tmp_path_factory: pytest.TempPathFactory) -> FirstStart:
    """Start `handoff up` in a new interpreter, in a folder with packages named like ours.

    Another program has the usual port of the console.
    """
    home = Handoff(tmp_path_factory.mktemp("up"))
    for name in ("shared", "workers"):
        (home.folder / name).mkdir()
        (home.folder / name / "__init__.py").write_text("raise SystemExit('not this one')")
    with ExitStack() as parts:
        other = parts.enter_context(socket.create_server(("127.0.0.1", 0)))
        taken = RedisAccess(port=other.getsockname()[1], password="a-password-of-some-length")
        with suppress(OSError):  # a program outside of this test has the port
            parts.enter_context(socket.create_server(("127.0.0.1", DEFAULT_PORT)))
        (home.folder / ".handoff").mkdir()
        write_access(home.folder / ".handoff" / "redis-access.json", taken)
        up = ("up", "--worker", "researcher=2", "--flower", "--flower-port", str(find_free_port()))
        system = parts.enter_context(Handoff(home.folder, is_cold=True).started(*up))
        variables = exported(home)
        url = variables["HANDOFF_REDIS_URL"]
        job = home.run("run", REQUEST, "--docs", str(DOCUMENTS), "--json", **variables)
        job_id = json.loads(job.stdout)["job_id"]
        assert home.run("trace", job_id, "-o", "job.html", **variables).returncode == 0
        specialists = home.run("specialists", "--json", **variables)
        second_up = home.run("up")
        return FirstStart(
            home=home,
            taken=taken,
            variables=variables,
            messages=home.read("err"),
            password=printed_password(home),
            job=job,
            trace=(home.folder / "job.html").read_text(),
            signers=signers_of(variables, job_id),
            without_key=home.run("submit", REQUEST, HANDOFF_REDIS_URL=url),
            specialists=json.loads(specialists.stdout),
            second_up=second_up,
            jobs_over_http=jobs_at(console_of(home)),
            refused=refused_at(url),
            exit_code=interrupt(system),
            remaining=home.remaining_processes(),
        )


@dataclass
class SecondStart:
    """`handoff up` with the home folder of the first start, in a terminal that exported its URL.

    The terminal has the variables that Kubernetes sets for a service called flower.
    """

    first: FirstStart
    flower_port: int = field(default_factory=find_free_port)
    console_port: int = field(default_factory=find_free_port)
    process: subprocess.Popen[bytes] | ForkedProcess | None = None
    _parts: ExitStack = field(default_factory=ExitStack)

    @property
    def home(self) -> Handoff:
        return self.first.home

    def start(self) -> None:
        """Start the system, unless it runs."""
        if self.process is not None and self.process.poll() is None:
            return
        flower = ("--flower", "--flower-port", str(self.flower_port))
        up = ("up", *flower, "--serve-port", str(self.console_port), "--worker", "researcher=1")
        variables = {**self.first.variables, **service_links("FLOWER")}
        self.process = self._parts.enter_context(self.home.started(*up, **variables))
        exported(self.home)

    def stop(self) -> None:
        self._parts.close()


@pytest.fixture(scope="module")
def second_start(first_start: FirstStart) -> Iterator[SecondStart]:
    shared = SecondStart(first_start)
    yield shared
    shared.stop()


@pytest.fixture
def system(second_start: SecondStart) -> SecondStart:
    """Return the second start of the system. Start it again if a test has killed it."""
    second_start.start()
    return second_start


def test_each_process_has_the_rights_that_it_needs(first_start: FirstStart) -> None:
    """Each kind of process has its own Redis user. The job used all rules of a team's job."""
    assert first_start.refused == []


def test_each_role_of_workers_signs_with_its_own_key(first_start: FirstStart) -> None:
    """The researchers, the other specialists and the supervisor have different keys."""
    signers = first_start.signers
    assert signers["researcher"] == "worker-researcher"
    assert {signers[role] for role in signers if role not in ("researcher", *ROLES)} <= {
        "worker-others"
    }
    assert {signers[role] for role in signers if role in ROLES} == {"supervisor"}
    assert "messages are not signed" not in first_start.messages


def test_the_page_of_a_job_has_the_messages_and_tool_calls_of_ended_handoffs(
    first_start: FirstStart,
) -> None:
    assert '"name":"search_documents"' in first_start.trace.replace(": ", ":")


def test_a_terminal_without_the_keys_is_told_to_set_them(first_start: FirstStart) -> None:
    line = error_line(first_start.without_key, BAD_INPUT)
    assert "set HANDOFF_KEYS and HANDOFF_SIGNING_KEY (`handoff up` prints both)" in line


def test_up_serves_other_terminals_until_ctrl_c(first_start: FirstStart) -> None:
    """The folder has packages named `shared` and `workers`, which do not hide our packages."""
    workers = {
        specialist["name"]: len(specialist["workers"]) for specialist in first_start.specialists
    }

    assert first_start.job.returncode == 0, first_start.job.stderr
    assert (workers["researcher"], workers["writer"]) == (2, 1)
    assert first_start.second_up.returncode == 2
    assert "another `handoff up`" in first_start.second_up.stderr
    assert (first_start.exit_code, first_start.remaining) == (0, [])


def test_up_takes_another_port_if_the_port_of_the_last_start_is_taken(
    first_start: FirstStart,
) -> None:
    taken = first_start.taken

    assert f"port {taken.port} of the last start is taken" in first_start.messages
    url = first_start.variables["HANDOFF_REDIS_URL"]
    assert url != taken.url
    assert taken.password in url


def test_a_second_start_keeps_the_url_the_jobs_and_the_password_of_flower(
    first_start: FirstStart, system: SecondStart
) -> None:
    listed = system.home.run("list", "--json", **first_start.variables)

    assert exported(system.home) == first_start.variables
    access = system.home.folder / ".handoff" / "redis-access.json"
    assert access.stat().st_mode & 0o777 == 0o600
    assert [job["job_id"] for job in json.loads(listed.stdout)] == [
        json.loads(first_start.job.stdout)["job_id"]
    ]
    assert printed_password(system.home) == first_start.password


def test_ps_shows_the_node_name_of_each_process(system: SecondStart) -> None:
    for name in ("supervisor", "researcher1", "others"):
        assert len(pids_of(system.home, f"[celeryd: {name}@")) == 1


def test_flower_ignores_a_service_called_flower(system: SecondStart) -> None:
    assert f"Flower: http://127.0.0.1:{system.flower_port}" in system.home.read("err")


def test_flower_refuses_requests_without_its_password(system: SecondStart) -> None:
    page = urllib.request.Request(f"http://127.0.0.1:{system.flower_port}/workers")
    with pytest.raises(urllib.error.HTTPError, match="401") as refused:
        urllib.request.urlopen(page, timeout=10)
    refused.value.close()
    log_in = b64encode(f"admin:{printed_password(system.home)}".encode()).decode()
    page.add_header("Authorization", f"Basic {log_in}")

    with urllib.request.urlopen(page, timeout=10) as answer:
        assert answer.status == 200


def test_up_serves_the_console_and_the_api_of_its_queue(system: SecondStart) -> None:
    address = f"http://127.0.0.1:{system.console_port}"

    with urllib.request.urlopen(f"{address}/", timeout=30) as page:
        jobs_page = page.read().decode()

    (job_id,) = jobs_at(address)
    assert job_id in jobs_page
    assert console_of(system.home) == address
    assert pids_of(system.home, SERVER)


def test_the_console_takes_a_free_port_if_its_usual_port_is_taken(first_start: FirstStart) -> None:
    assert f"port {DEFAULT_PORT} is taken: the console uses port " in first_start.messages
    assert first_start.jobs_over_http == [json.loads(first_start.job.stdout)["job_id"]]


def test_up_refuses_a_taken_port_for_the_console_before_anything_starts(handoff: Handoff) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        line = error_line(handoff.run("up", "--serve-port", port), BAD_INPUT)

    assert line.endswith("is taken by another process: choose another with --serve-port")
    assert handoff.remaining_processes() == []


def test_up_names_the_restarted_process_and_its_log(system: SecondStart) -> None:
    (supervisor,) = pids_of(system.home, "supervisor@")
    os.kill(supervisor, signal.SIGKILL)

    system.home.wait_for_text("supervisor died and was started again; see ")
    log = system.home.read("err").split("was started again; see ")[1].splitlines()[0]
    assert Path(log).is_file()


def test_a_job_ends_although_the_commands_of_the_docs_kill_all_workers(
    handoff: Handoff,
) -> None:
    text = of_page("docs/get-started/offline.md", "console", "kill -9")
    before, kill, _ = commands(text)
    program = shlex.join(handoff.command())
    with handoff.started("up", "--serve-port", str(find_free_port())):
        variables = exported(handoff)

        submitted = subprocess.run(
            ["bash", "-ec", f'handoff() {{ {program} "$@"; }}\n{before}\n{kill}'],
            cwd=ROOT,
            env=handoff.environment(**variables),
            capture_output=True,
            text=True,
            check=False,
        )
        watched = handoff.run("watch", submitted.stdout.strip(), **variables)
        handoff.wait_for_text("worker1 died and was started again")
        handoff.wait_for_text("worker2 died and was started again")

    assert (submitted.returncode, submitted.stderr) == (0, "")
    assert watched.returncode in (OK, PARTIAL), watched


def test_no_child_process_survives_a_kill(system: SecondStart) -> None:
    assert system.process is not None
    assert len(system.home.remaining_processes()) >= 7, (
        "up, fork server, Redis, Flower, supervisor and two workers"
    )
    system.process.kill()
    system.process.wait()

    wait_until(
        lambda: not system.home.remaining_processes(),
        timeout_s=5.0,
        expected="the end of all processes",
    )


@pytest.fixture(scope="module")
def on_own_redis(redis_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Handoff]:
    """Yield the command of a running `handoff up` that uses the Redis of the user."""
    handoff = Handoff(tmp_path_factory.mktemp("own-redis"))
    up = ("up", "--no-serve", "--worker", "researcher=1")
    with handoff.started(*up, HANDOFF_REDIS_URL=f"{redis_server}?prefix=up"):
        handoff.wait_for_text("Ctrl-C stops everything")
        yield handoff


def test_up_on_the_users_redis_tells_other_terminals_to_use_the_same_url(
    on_own_redis: Handoff,
) -> None:
    assert "export" not in on_own_redis.read("err") + on_own_redis.read("out")
    assert "with the same HANDOFF_REDIS_URL" in on_own_redis.read("err")


def test_up_without_the_server_starts_no_console(on_own_redis: Handoff) -> None:
    assert "console" not in on_own_redis.read("err")
    assert pids_of(on_own_redis, SERVER) == []


def test_up_starts_all_processes_again_after_the_death_of_its_fork_server(
    on_own_redis: Handoff,
) -> None:
    fork_servers = pids_of(on_own_redis, "fork_server_process")
    assert fork_servers
    for pid in fork_servers:  # the fork server, and the stand-in for its interpreter
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    for name in ("supervisor", "researcher1", "others"):
        on_own_redis.wait_for_text(f"{name} died and was started again")
        wait_until(
            lambda name=name: pids_of(on_own_redis, f"[celeryd: {name}@"),  # type: ignore[misc]
            timeout_s=60,
            expected=f"another {name}",
        )


def test_up_refuses_a_taken_port_for_flower_before_anything_starts(handoff: Handoff) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        completed = handoff.run("up", "--flower", "--flower-port", port)

    assert (
        error_line(completed, BAD_INPUT)
        == f"handoff: port {port} is taken by another process: choose another for Flower with"
        " --flower-port"
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
    free = str(find_free_port())
    arguments = (*command, "--flower-port", free) if "--flower" in command else command

    line = error_line(handoff.run(*arguments, **{variable: value}), BAD_INPUT)  # type: ignore[arg-type]

    assert variable in line
    assert "change-me" not in line


@dataclass(frozen=True)
class SeparateProcesses:
    """A worker and a supervisor on one Redis, each from its own command."""

    redis_url: str
    worker: Handoff
    commands: Handoff


@pytest.fixture(scope="module")
def separate_processes(
    redis_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SeparateProcesses]:
    """Start a worker of two specialists with two slots, and a supervisor."""
    url = f"{redis_server}?prefix=separate"
    handoffs = {name: Handoff(tmp_path_factory.mktemp(name)) for name in ("worker", "supervisor")}
    arguments = {"worker": ("researcher", "writer", "-c", "2"), "supervisor": ()}
    ready = {name: handoff.folder / "ready" for name, handoff in handoffs.items()}
    with ExitStack() as parts:
        for name, handoff in handoffs.items():
            environment = {"HANDOFF_REDIS_URL": url, "HANDOFF_READY_FILE": str(ready[name])}
            parts.enter_context(handoff.started(name, *arguments[name], **environment))
        wait_until(
            lambda: all(file.exists() for file in ready.values()), timeout_s=60, expected="both"
        )
        yield SeparateProcesses(url, handoffs["worker"], Handoff(tmp_path_factory.mktemp("other")))


def test_worker_and_supervisor_are_celery_workers_of_the_right_queues(
    separate_processes: SeparateProcesses,
) -> None:
    report = separate_processes.commands.run(
        "doctor", "--json", HANDOFF_REDIS_URL=separate_processes.redis_url
    )
    findings = {finding["about"]: finding["report"] for finding in json.loads(report.stdout)}

    assert findings["queue supervisor"].startswith("1 process,")
    assert findings["queue writer"].startswith("1 process with 2 slots")
    assert "queue legal" not in findings


def test_every_line_of_a_workers_log_is_json(separate_processes: SeparateProcesses) -> None:
    """The test may run as root. Celery warns about that before it sets up logging."""
    lines = separate_processes.worker.read("err").splitlines()

    assert lines
    assert [line for line in lines if not line.startswith("{")] == []
