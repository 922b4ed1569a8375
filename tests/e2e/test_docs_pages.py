"""A reader types all console lines of a page in order, in an empty folder, and all work.

The reader has a system of `handoff up` in another terminal. Programs and files that the page
shows are saved under the names that the page gives them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from handoff_queue.shared.settings.ports import find_free_port
from handoff_queue.supervisor.cli.serve import DEFAULT_PORT
from tests.docs.samples import Sample, commands, of_page, samples
from tests.e2e.commands import Handoff
from tests.e2e.test_cli_up import exported
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow
JOB = re.compile(r"\bj-(?:[a-z2-7]{16}|[0-9a-f]{12})\b")
GATE_FILES = {"notes/plans.md": "markdown", "prices.csv": "csv", "gates.yaml": "yaml"}
"""File that the page about gates shows -> the language of its sample."""
SERVERS = {"handoff serve": DEFAULT_PORT, "uvicorn backend:app": 8000}
"""Command that stays -> its port on the page."""
STRICT = 'set -e; curl() { command curl --silent --show-error --fail-with-body "$@"; }'
"""A failed program ends the shell, and an HTTP status from 400 on is a failure of curl."""
FROM_THE_OTHER_TERMINAL = "export HANDOFF_REDIS_URL="


@dataclass
class Reader:
    """A person with a shell in an empty folder."""

    folder: Path
    variables: dict[str, str]
    job_id: str = ""
    """The last job that a command named."""
    addresses: dict[str, str] = field(default_factory=dict)
    """Address on the page -> address of the server of this test."""
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def save(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(self.here(text))

    def here(self, text: str) -> str:
        """Return the text with the job and the addresses of this test."""
        for address_of_page, address in self.addresses.items():
            text = text.replace(address_of_page, address)
        return JOB.sub(self.job_id, text) if self.job_id else text

    def type_page(self, page: str) -> list[str]:
        """Type all lines of a page. Return the output of each line that has ended."""
        outputs: list[str] = []
        for sample in samples():
            if (sample.page, sample.language) == (f"docs/{page}.md", "console"):
                outputs += self.type_sample(sample)
        return outputs

    def type_sample(self, sample: Sample) -> list[str]:
        outputs: list[str] = []
        for line in commands(sample.text):
            outputs += self.type(line)
        return outputs

    def type(self, line: str) -> list[str]:
        if line.startswith(("pip ", FROM_THE_OTHER_TERMINAL)):
            return []  # the packages are installed, and `handoff up` has printed the variables
        if line in SERVERS:
            self.start(line)
            return []
        done = subprocess.run(
            ["bash", "-c", f"{STRICT}\n{self.here(line)}\nset > {self.folder / 'shell'}"],
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=MAX_WAIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done}"
        assert "Traceback" not in done.stderr
        self.keep_variable(line)
        if match := JOB.search(done.stdout + done.stderr):
            self.job_id = match[0]
        return [done.stdout]

    def keep_variable(self, line: str) -> None:
        """Keep the variable that a line sets, as one shell does for all its lines."""
        if setting := re.match(r"(?:export )?(\w+)=", line):
            shell = (self.folder / "shell").read_text()
            value = re.findall(rf"^{setting[1]}=(.*)$", shell, re.MULTILINE)[0]
            self.variables[setting[1]] = shlex.split(value)[0]

    def start(self, line: str) -> None:
        port = find_free_port()
        self.addresses[f"http://127.0.0.1:{SERVERS[line]}"] = f"http://127.0.0.1:{port}"
        with (self.folder / "server").open("wb") as log:
            server = subprocess.Popen(
                ["bash", "-c", f"exec {line} --port {port}"],
                cwd=self.folder,
                env=self.variables,
                stdout=log,
                stderr=log,
            )
        self.servers.append(server)
        wait_until(lambda: server.poll() is not None or self.is_ready(), expected=line)
        assert server.poll() is None, (self.folder / "server").read_text()

    def is_ready(self) -> bool:
        log = (self.folder / "server").read_text()
        return "running on" in log or "/v1/reference" in log


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables of a second terminal, with the lines that `handoff up` prints."""
    first_terminal = Handoff(tmp_path_factory.mktemp("system"))
    with first_terminal.started("up", "--no-serve", HANDOFF_OFFLINE="true"):
        shell = exported(first_terminal)
        programs = first_terminal.folder / "programs"
        programs.mkdir()
        command = shlex.join(Handoff(first_terminal.folder, is_cold=True).command())
        (programs / "handoff").write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / "handoff").chmod(0o755)
        path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        yield first_terminal.environment(PATH=path, **shell)


@pytest.fixture
def reader(tmp_path: Path, variables: dict[str, str]) -> Iterator[Reader]:
    reader = Reader(tmp_path, dict(variables))
    yield reader
    for server in reader.servers:
        server.terminate()
        server.wait(timeout=MAX_WAIT_S)


def test_the_page_about_the_http_api_works(reader: Reader) -> None:
    outputs = reader.type_page("how-to/http-api")

    followed, result, cancelled = outputs[-3:]
    assert followed.startswith("id: 1\nevent: job_submitted\n")
    assert json.loads(result)["status"] == "ok"
    assert "Refunds take five days [1]" in json.loads(result)["answer"]
    assert json.loads(cancelled)["cancelled"] is False, "the job has ended"


def test_the_page_about_the_mcp_server_works(reader: Reader) -> None:
    page = "docs/how-to/mcp-server.md"
    outputs: list[str] = []
    for sample in samples():
        if (sample.page, sample.language) == (page, "python"):
            reader.save("ask.py", sample.text)
        if (sample.page, sample.language) == (page, "console"):
            outputs += reader.type_sample(sample)

    assert "Order A-1042 was shipped [1]" in outputs[-1]


def test_the_page_about_a_web_backend_works(reader: Reader) -> None:
    reader.save("backend.py", of_page("docs/how-to/web-backend.md", "python"))
    outputs = reader.type_page("how-to/web-backend")

    assert "event: job_ended" in outputs[-2]
    answer = json.loads(outputs[-1])
    assert answer["status"] == "ok"
    assert "Order A-1042 was shipped [1]" in answer["answer"]


def test_the_page_about_gates_works(reader: Reader) -> None:
    for name, language in GATE_FILES.items():
        reader.save(name, of_page("docs/how-to/gates.md", language))
    answer, report = reader.type_page("how-to/gates")

    assert "The plan Basic costs $20 a month [1]" in answer
    assert "fact_checks" in report
