"""The installed wheel works with the oldest and newest dependencies, without extras, and with
mypy.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from benchmarks.installs import ROOT, Environment, install_newest, install_oldest
from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.store import keys
from handoff_queue.shared.trust.key_files import make_keys
from handoff_queue.shared.types.ids import JobId
from tests.doubles.tls_proxy import a_certificate
from tests.package.bytecode import copy_bytecode
from tests.running_system import DOCUMENTS, RunningSystem, running_system

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
CONSUMER, WRONG = "a_consumer.py", "wrong.py"
ENDS = ("oldest", "newest")
SUPPORTED = {
    "oldest": {"celery": "5.5.0", "redis": "5.2.0", "pydantic": "2.12.0"},
    "newest": {"celery": "5.7", "redis": "8.1", "pydantic": "2.14"},
}
"""End of the supported versions -> package -> start of its version."""
MAX_PACKAGES = 40
MAX_MEGABYTES = 55
"""Limits of the client's install, without bytecode. `handoff-queue[all]` has 84 packages, 87 MB."""
NO_HTML = (
    "a.html is HTML, which needs the package selectolax: install the extra documents of"
    " handoff-queue, or leave such files out: strict_documents=False"
)
NEEDS_EXTRA = {
    'documents={"a.html": b"<p>hello</p>"}': NO_HTML,
    'documents={"a.html": b"<p>hello</p>" * 20_000}': NO_HTML,
    'documents={"a.pdf": b"%PDF-1.4"}': (
        "a.pdf is a PDF, which needs the package pypdf: install the extra documents of"
        " handoff-queue, or leave such files out: strict_documents=False"
    ),
    'model="claude-sonnet-4-5", limits=JobLimits(max_microusd=1_000_000)': (
        "a limit in money needs the package genai-prices: install the extra prices of handoff-queue"
    ),
}
"""Arguments of a request -> line of its refusal without the extra."""
INSTALL_ALL = "install the extra all of handoff-queue"
NEEDS_ALL = {
    "handoff_queue.supervisor.cli.entry run hello": (
        "the command handoff needs the package rich: install the extra cli of handoff-queue"
    ),
    "celery.__main__ -A handoff_queue.workers.app worker": (
        f"a process of handoff_queue.workers.app needs the package aiohttp: {INSTALL_ALL}"
    ),
    "celery.__main__ -A handoff_queue.supervisor.app worker": (
        f"a process of handoff_queue.supervisor.app needs the package aiohttp: {INSTALL_ALL}"
    ),
}
"""Module and arguments of a command -> line of its refusal without the extra."""
TYPE_ERRORS = {
    'jobs.submit("a question")': "arg-type",
    "Request(text=3)": "arg-type",
    'Request("a question", priority="now")': "arg-type",
    "jobs.result(job_id).no_such_field": "attr-defined",
    "jobs.rows(job_id)[0].key + 1": "operator",
    "later.submit(request).upper()": "attr-defined",
}
"""Line with a type error -> error code of mypy."""
TYPE_ERRORS_HEAD = """
from handoff_queue import AsyncClient, Client, JobId, Request

def wrong(jobs: Client, later: AsyncClient, request: Request, job_id: JobId) -> None:
"""


@pytest.fixture(scope="module")
def installs(
    wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Environment]]:
    """Yield environments with only the client's install, by the end of the supported versions.

    Delete their thousands of files here: pytest would delete them in one process, after all tests.
    """
    folder = tmp_path_factory.mktemp("installs")
    with ThreadPoolExecutor() as threads:
        old = threads.submit(install_oldest, folder / "oldest", wheel)
        new = threads.submit(install_newest, folder / "newest", wheel)
        environments = {"oldest": old.result(), "newest": new.result()}
    for environment in environments.values():
        copy_bytecode(environment)
    yield environments
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSystem]:
    with running_system(tmp_path_factory.mktemp("system")) as running:
        yield running


@dataclass(frozen=True)
class Service:
    """A process of a user's service in one of the environments. It runs programs of the tests."""

    process: subprocess.Popen[str]
    errors: Path

    def output_of(self, redis_url: str, program: Path, *arguments: str) -> str:
        """Run a program with this Redis, check that no warning or error occurs, and return the
        program's output.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([redis_url, str(program), *arguments]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert self.errors.read_text() == ""
        output: str = json.loads(answer)
        return output


@pytest.fixture(scope="module")
def services(
    installs: Mapping[str, Environment], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Service]]:
    """Yield a service in each environment, in isolated mode and without this repository."""
    folder = tmp_path_factory.mktemp("services")
    services = {}
    with ExitStack() as stack:
        for end, environment in installs.items():
            errors = folder / end
            process = subprocess.Popen(
                [environment.python, "-I", "-W", "error", HERE / "a_service.py"],
                cwd=folder,
                env={"PATH": os.environ["PATH"]},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stack.enter_context(errors.open("w")),
                text=True,
            )
            stack.enter_context(process)  # It closes stdin, which ends the service.
            services[end] = Service(process, errors)
        yield services


def run_in(
    environment: Environment, *arguments: str, cwd: Path
) -> subprocess.CompletedProcess[str]:
    """Run the environment's interpreter in isolated mode, without this repository."""
    return subprocess.run(
        [environment.python, "-I", *arguments],
        cwd=cwd,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def is_open(port: int) -> bool:
    """Return whether a server listens on the port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def type_checks(
    installs: Mapping[str, Environment], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    """Check a correct and a wrong program with `mypy --strict` and the packages of each
    environment.

    Return the lines of mypy's output by the end of the supported versions. The caches stay for the
    next test run, which checks only changed modules. A new cache begins as a copy of the other
    one, because most modules are equal in both environments.
    """
    folder = tmp_path_factory.mktemp("typed")
    shutil.copy(HERE / CONSUMER, folder)
    (folder / WRONG).write_text(TYPE_ERRORS_HEAD + "".join(f"    {line}\n" for line in TYPE_ERRORS))
    strict = ("--strict", "--config-file", os.devnull)
    command = [sys.executable, "-m", "mypy", *strict, CONSUMER, WRONG]
    caches = {end: ROOT / ".mypy_cache" / "consumers" / end for end in ENDS}
    lines = {}
    for end in ENDS:
        if caches["oldest"].exists() and not caches[end].exists():
            shutil.copytree(caches["oldest"], caches[end])
        checked = subprocess.run(
            [*command, "--cache-dir", caches[end], "--python-executable", installs[end].python],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        lines[end] = checked.stdout.splitlines()
    return lines


@pytest.mark.parametrize("end", ENDS)
def test_the_environments_have_the_versions_at_each_end(
    installs: Mapping[str, Environment], end: str
) -> None:
    packages = installs[end].list_packages()

    for name, version in SUPPORTED[end].items():
        assert packages[name].startswith(version)


@pytest.mark.parametrize("end", ENDS)
def test_a_client_submits_follows_and_reads_at_each_end_of_the_supported_versions(
    installs: Mapping[str, Environment],
    services: Mapping[str, Service],
    system: RunningSystem,
    end: str,
) -> None:
    output = services[end].output_of(system.redis_url, HERE / "a_client.py", str(DOCUMENTS))

    printed = json.loads(output)
    assert Path(printed["installed"]).is_relative_to(installs[end].folder)
    for result in printed["results"]:
        assert result["status"] == "ok"
        assert result["events"][0] == "job_submitted"
        assert result["events"][-1] == "job_ended"
        assert "Qdrant" in result["answer"]


@pytest.mark.parametrize("end", ENDS)
def test_a_client_signs_its_jobs_without_an_extra(
    services: Mapping[str, Service], redis_url: str, tmp_path: Path, end: str
) -> None:
    make_keys(tmp_path / "keys", ["researcher"])
    submit = tmp_path / "submit.py"
    submit.write_text(
        "import os, sys\n"
        "from handoff_queue import Request, connect\n"
        "keys = {'HANDOFF_KEYS': sys.argv[1], 'HANDOFF_SIGNING_KEY': sys.argv[1] + '/client.key'}\n"
        "os.environ.update(keys)\n"
        "print(connect().submit(Request('What is HNSW?')))\n"
        "for name in keys:\n"
        "    del os.environ[name]\n"
    )

    output = services[end].output_of(redis_url, submit, str(tmp_path / "keys"))

    with redis.Redis.from_url(redis_url) as store:
        submitted = store.lindex(keys.log(JobId(output.strip())), 0)
    assert submitted is not None
    assert b'"signature":"' in submitted


@pytest.mark.parametrize("end", ENDS)
def test_a_client_keeps_its_prefix_with_the_oldest_and_the_newest_supported_versions(
    services: Mapping[str, Service], redis_url: str, tmp_path: Path, end: str
) -> None:
    submit = tmp_path / "submit.py"
    submit.write_text(
        "from handoff_queue import Request, connect\n"
        "print(connect().submit(Request('What is HNSW?')))\n"
    )

    output = services[end].output_of(f"{redis_url}?prefix=team", submit)

    assert re.fullmatch("j-[a-z2-7]{16}\n", output)
    with redis.Redis.from_url(redis_url, decode_responses=True) as store:
        keys = store.keys()
    assert keys
    assert all(key.startswith("team:") for key in keys)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
@pytest.mark.parametrize("end", ENDS)
def test_a_client_refuses_the_certificate_of_another_host_at_each_end(
    services: Mapping[str, Service],
    redis_url: str,
    processes: Processes,
    tmp_path: Path,
    end: str,
) -> None:
    """redis-py below 6 does not check the host name by default."""
    program = tmp_path / "look.py"
    program.write_text(
        "import sys\n"
        "from handoff_queue.shared.types.errors import HandoffError\n"
        "from handoff_queue.supervisor.client.client import connect\n"
        "for url in sys.argv[1:]:\n"
        "    try:\n"
        "        print(connect(url).newest())\n"
        "    except HandoffError as error:\n"
        "        print(error)\n"
    )
    certificate, key = a_certificate(tmp_path, "other", alternative_name="DNS:other.example")
    redis_address, port = urlsplit(redis_url), free_port()
    proxy_arguments = (str(certificate), str(key), f"{port}:{redis_address.port}")
    command = [sys.executable, "-m", "tests.doubles.tls_proxy", *proxy_arguments]
    environment = {"PYTHONPATH": str(ROOT)}
    processes.start(ChildSpec("door", command, environment, is_ready=partial(is_open, port)))
    processes.wait_until_ready()
    files = f"ssl_ca_certs={certificate}&ssl_certfile={certificate}&ssl_keyfile={key}"
    url = f"rediss://:{redis_address.password}@localhost:{port}/0?{files}"

    unchecked = f"{url}&ssl_check_hostname=false"

    output = services[end].output_of(redis_url, program, url, unchecked)

    refused, allowed = output.splitlines()
    assert "certificate" in refused
    assert allowed == "[]"


@pytest.mark.parametrize("end", ENDS)
def test_a_client_install_is_small(installs: Mapping[str, Environment], end: str) -> None:
    packages = installs[end].list_packages()

    assert len(packages) <= MAX_PACKAGES
    assert installs[end].measure_size() < MAX_MEGABYTES
    assert not {"anthropic", "aiohttp", "flower", "typer", "pypdf"} & set(packages)


def test_a_command_without_its_extra_names_it_in_one_line(
    installs: Mapping[str, Environment], tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import importlib, sys\n"
        "for command in sys.argv[1:]:\n"
        "    module, *sys.argv[1:] = command.split()\n"
        "    try:\n"
        "        importlib.import_module(module).main()\n"
        "    except SystemExit as end:\n"
        "        print(end.code)\n"
    )

    completed = run_in(installs["newest"], str(program), *NEEDS_ALL, cwd=tmp_path)

    assert completed.stdout.split() == ["2"] * len(NEEDS_ALL)
    assert completed.stderr.splitlines() == [f"handoff: {line}" for line in NEEDS_ALL.values()]


def test_a_request_that_needs_an_extra_is_refused_with_its_name(
    services: Mapping[str, Service], redis_url: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    requests = ", ".join(f"dict({arguments})" for arguments in NEEDS_EXTRA)
    program.write_text(
        "from handoff_queue.shared.types.errors import UserError\n"
        "from handoff_queue.shared.types.limits import JobLimits\n"
        "from handoff_queue import Request, connect\n"
        f"for arguments in ({requests}):\n"
        "    try:\n"
        "        connect().submit(Request('What is HNSW?', **arguments))\n"
        "    except UserError as error:\n"
        "        print(error)\n"
    )

    output = services["newest"].output_of(redis_url, program)

    assert output.splitlines() == list(NEEDS_EXTRA.values())


@pytest.mark.parametrize("end", ENDS)
def test_a_strict_consumer_passes_mypy_and_a_wrong_call_is_an_error(
    type_checks: dict[str, list[str]], end: str
) -> None:
    *errors, summary = type_checks[end]

    first = len(TYPE_ERRORS_HEAD.splitlines()) + 1
    expected = [(first + index, code) for index, code in enumerate(TYPE_ERRORS.values())]
    reported = re.findall(
        rf"^{re.escape(WRONG)}:(\d+): error: .*\[([a-z-]+)\]$", "\n".join(errors), re.M
    )
    assert [(int(line), code) for line, code in reported] == expected
    assert [line for line in errors if line.startswith(CONSUMER)] == []
    assert summary == f"Found {len(expected)} errors in 1 file (checked 2 source files)"


def test_the_package_has_the_marker_of_typed_packages() -> None:
    assert (ROOT / "handoff_queue" / "py.typed").is_file()
