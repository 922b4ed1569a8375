"""`handoff run` and `handoff up` say at their start which specialists this machine cannot serve."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.e2e.commands import BAD_INPUT, DOCUMENTS, REQUEST, Handoff, interrupt
from tests.workers.tools.servers import Page, serving

pytestmark = pytest.mark.slow

CODER = """---
name: coder
description: Writes small programs, and runs them. Not for text.
sandbox: local
---
You write the program that the task describes, and run it.
"""
WORKFLOW = """description: Writes a function.
steps:
  - id: code
    specialist: coder
    task: Write a function.
"""
UNSERVED = "no worker serves coder: no sandbox: bubblewrap is not installed"


@pytest.fixture
def handoff(tmp_path: Path) -> Handoff:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "coder.md").write_text(CODER)
    (tmp_path / "workflow.yaml").write_text(WORKFLOW)
    return Handoff(tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return a PATH with Redis and without bubblewrap."""
    programs = tmp_path / "programs"
    programs.mkdir()
    redis = shutil.which("redis-server")
    if redis is not None:
        (programs / "redis-server").symlink_to(redis)
    return str(programs)


def test_a_run_refuses_a_step_of_a_specialist_that_its_workers_cannot_serve(
    handoff: Handoff, path: str
) -> None:
    ended = handoff.run(
        "run", "Write it", "--specialists", "own", "--workflow", "workflow.yaml", PATH=path
    )

    assert ended.returncode == BAD_INPUT
    assert UNSERVED in ended.stderr
    assert "step 'code': no worker of this run serves coder: no sandbox" in ended.stderr


def test_a_run_that_can_do_without_such_a_specialist_only_names_it(
    handoff: Handoff, path: str
) -> None:
    ended = handoff.run("run", REQUEST, "--docs", str(DOCUMENTS), "--specialists", "own", PATH=path)

    assert ended.returncode == 0
    assert UNSERVED in ended.stderr


def test_a_run_asks_whether_the_model_of_its_job_can_run_code(
    handoff: Handoff, tmp_path: Path
) -> None:
    (tmp_path / "own" / "coder.md").write_text(CODER.replace("local", "provider"))
    pages: dict[str, Page] = {}
    for model, can_run_code in (("claude-haiku-5-5", True), ("claude-haiku-4-5", False)):
        tools = {"server_tools": {"code_execution": {"supported": can_run_code}}}
        pages[f"/v1/models/{model}"] = Page(json.dumps({"capabilities": tools}).encode())
    with serving(pages) as server:
        url = f"http://127.0.0.1:{server.port}"
        options = ("--specialists", "own", "--workflow", "workflow.yaml")
        ended = handoff.run(
            *("run", "Write it", *options, "--model", "claude-haiku-4-5"),
            ANTHROPIC_BASE_URL=url,
            HANDOFF_OFFLINE="false",
        )

    assert ended.returncode == BAD_INPUT
    assert "no worker of this run serves coder: no code execution: claude-haiku-4-5 cannot run" in (
        ended.stderr
    )


def test_up_names_the_specialists_that_its_workers_cannot_serve(
    handoff: Handoff, path: str
) -> None:
    with handoff.started("up", "--no-serve", "--specialists", "own", PATH=path) as process:
        handoff.wait_for_text("Ctrl-C stops everything")
        shown = handoff.read("err")
        interrupt(process)

    assert shown.count(UNSERVED) == 1
