"""The installed wheel works in a project with its own packages `shared`, `supervisor` and
`workers`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.installs import Environment, install_newest
from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.local.redis_server import PrivateRedis, find_server
from tests.e2e.test_without_home_folder import NO_ENTRY
from tests.package.bytecode import copy_bytecode
from tests.running_system import DOCUMENTS

pytestmark = pytest.mark.slow
PROJECT_PACKAGES = ("shared", "supervisor", "workers", "chaos")
PROGRAM = """
import json, sys
from pathlib import Path
from typing import Any
import shared, supervisor, workers, chaos
import handoff_queue

jobs = handoff_queue.connect()
job_id = jobs.submit(handoff_queue.Request("Compare Qdrant and pgvector", documents=Path(sys.argv[1])))
result = jobs.result(job_id, wait_s=120)
packages = [shared.OWNER, supervisor.OWNER, workers.OWNER, chaos.OWNER]
print(json.dumps({"job_id": job_id, "status": result.status, "owners": packages}))

from handoff_queue.supervisor.cli.main import main
sys.argv = ["handoff", "trace", job_id, "-o", "trace.html"]
main()
"""  # noqa: E501 - lines of a text


@dataclass(frozen=True)
class Project:
    """A project with its own packages, and an environment in which the wheel is installed."""

    folder: Path
    environment: Environment
    variables: dict[str, str]

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment in the project's folder."""
        return subprocess.run(
            [self.environment.folder / "bin" / command[0], *command[1:]],
            cwd=self.folder,
            env={**self.variables, **variables},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def project(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("project")
    for name in PROJECT_PACKAGES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("OWNER = 'the project'\n")
    (folder / "program.py").write_text(PROGRAM)
    build_folder = tmp_path_factory.mktemp("built")
    environment = install_newest(build_folder / "environment", wheel, "all")
    copy_bytecode(environment)
    variables = {
        "PATH": f"{find_server().parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "PYTHONPATH": str(folder),
        "HANDOFF_OFFLINE": "true",
        "HANDOFF_CACHE_DIR": str(build_folder / "cache"),
    }
    yield Project(folder, environment, variables)
    shutil.rmtree(build_folder)


@pytest.fixture(scope="module")
def redis_url(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a Redis and, with Celery's own command, a supervisor and a worker of the wheel."""
    folder = tmp_path_factory.mktemp("system")
    celery = str(project.environment.folder / "bin" / "celery")
    with Processes(folder) as processes:
        url = PrivateRedis(processes, folder).start()
        for room, queues in (
            ("supervisor", "supervisor,submissions,roles"),
            ("workers", "researcher,analyst,writer,coder,generalist,reviewer"),
        ):
            app = f"handoff_queue.{room}.app"
            command = [celery, "--workdir", str(project.folder), "-A", app]
            options = ["worker", "-n", f"{room}@%h", "-Q", queues, "-c", "4"]
            environment = {**project.variables, "HANDOFF_REDIS_URL": url}
            processes.start(ChildSpec(room, [*command, *options], environment))
        processes.wait_until_ready()
        yield url


@pytest.fixture(scope="module")
def client_output(project: Project, redis_url: str) -> dict[str, Any]:
    """Return the output of the project's program, which uses the Python client, and then the
    command `handoff trace`.
    """
    completed = project.run(
        "python", "-W", "error", "program.py", str(DOCUMENTS), HANDOFF_REDIS_URL=redis_url
    )
    assert completed.returncode == 0, completed.stderr
    printed: dict[str, Any] = json.loads(completed.stdout)
    assert completed.stderr == f"{printed['job_id']} is in trace.html\n"
    return printed


def test_both_celery_commands_run_a_job_from_the_python_client(
    client_output: dict[str, Any],
) -> None:
    assert client_output["status"] == "ok"


def test_the_project_imports_its_own_packages(client_output: dict[str, Any]) -> None:
    assert client_output["owners"] == ["the project"] * len(PROJECT_PACKAGES)


@pytest.mark.usefixtures("client_output")
def test_handoff_trace_writes_its_page(project: Project) -> None:
    assert "<html" in (project.folder / "trace.html").read_text()


def test_handoff_run_answers_a_question_of_a_user_without_a_home_folder(
    project: Project, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_ENTRY)
    variables = {name: value for name, value in project.variables.items() if name != "HOME"}
    variables["PYTHONPATH"] = os.pathsep.join((str(tmp_path), str(project.folder)))

    completed = replace(project, variables=variables).run(
        "handoff", "run", "Compare Qdrant and pgvector", "--docs", str(DOCUMENTS)
    )

    assert completed.returncode == 0, completed.stderr
    assert "Qdrant" in completed.stdout


def test_the_wheel_has_one_top_level_package(project: Project) -> None:
    (record,) = project.environment.folder.glob("lib/python*/site-packages/handoff_queue-*/RECORD")
    installed = {line.split("/")[0] for line in record.read_text().splitlines()}

    assert {name for name in installed if name.isidentifier()} == {"handoff_queue"}
