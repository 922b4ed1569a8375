"""`handoff run` starts its own system, prints a cited answer, and leaves no process or file.

A killed run starts in a new interpreter, as from a shell. Other private runs are forked:
`test_hostile_environment.py` has a complete run in new interpreters. Tests that do not depend on a
private run use a shared system.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.supervisor.cli.errors import PARTIAL
from handoff_queue.testing import (
    Json,
    MessagesServer,
    Reply,
    Script,
    answer_properties,
    json_reply,
    text_reply,
)
from tests import forked_processes
from tests.e2e.commands import DOCUMENTS, REQUEST, Handoff, interrupt
from tests.e2e.fleet import ENVELOPE, Fleet
from tests.running_system import RunningSystem
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow

KEYS = [
    "job_id",
    "status",
    "tenant",
    "priority",
    "forked_from",
    "answer",
    "citations",
    "mode",
    "route",
    "plan",
    "handoffs",
    "results",
    "verdicts",
    "patches",
    "gates",
    "conflicts",
    "approvals",
    "messages",
    "gaps",
    "to_finish_usd",
    "quote",
    "usage",
    "wall_s",
    "worked_s",
    "model",
    "notes",
    "waiting_since",
]
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture
def handoff(tmp_path: Path) -> Handoff:
    return Handoff(tmp_path)


@pytest.fixture
def silent_model() -> Iterator[str]:
    """Yield the URL of a model server that never answers. Jobs run until they are stopped."""
    never = threading.Event()
    with MessagesServer(
        lambda _: text_reply("too late", stall=never, stall_before_headers=True)
    ) as server:
        yield server.url
        never.set()


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the object that `handoff run --json` prints, with an own specialist and an own
    tool.
    """
    folder = tmp_path_factory.mktemp("json")
    (folder / "people").mkdir()
    (folder / "people" / "poet.md").write_text(POET)
    (folder / "things").mkdir()
    (folder / "things" / "rhymes.py").write_text(RHYMES)
    completed = Handoff(folder).run(
        *("run", REQUEST, "--docs", str(DOCUMENTS), "--json"),
        *("--specialists", "people", "--tools", "things"),
    )
    assert completed.returncode == 0, completed.stderr
    printed: dict[str, Any] = json.loads(completed.stdout)
    return printed


def test_json_output_has_exactly_the_documented_keys(outcome: dict[str, Any]) -> None:
    assert list(outcome) == KEYS
    assert (outcome["status"], outcome["model"]) == ("ok", "offline")
    assert sorted(outcome["usage"]) == ["cost_usd", "cut", "input_tokens", "output_tokens", "turns"]
    assert outcome["usage"]["cut"] == {"calls": 0, "tokens": 0, "cost_usd": 0.0}


def test_three_researchers_work_in_separate_processes(outcome: dict[str, Any]) -> None:
    research = [
        handoff for handoff in outcome["handoffs"] if handoff["assigned_to"] == "researcher"
    ]
    workers, supervisors = (
        {
            handoff["worker"]
            for handoff in outcome["handoffs"]
            if (handoff["group"] is None) is is_role
        }
        for is_role in (False, True)
    )
    assert len(research) >= 3
    assert len(workers) > 1
    assert not workers & supervisors


def test_citations_point_into_the_documents(outcome: dict[str, Any]) -> None:
    assert len(outcome["citations"]) >= 3
    for citation in outcome["citations"]:
        text = (DOCUMENTS / citation["source"]).read_text()
        assert text[citation["start"] : citation["end"]] == citation["quote"]
        assert f"[{citation['n']}]" in outcome["answer"]


def test_run_prints_the_answer_on_stdout_and_progress_on_stderr_and_leaves_nothing(
    handoff: Handoff,
) -> None:
    completed = handoff.run("run", REQUEST, "--docs", str(DOCUMENTS))

    assert completed.returncode == 0, completed.stderr
    assert "# Qdrant, pgvector and Milvus" in completed.stdout
    assert "Sources:\n[1] " in completed.stdout
    assert "plan: 4 steps" not in completed.stdout
    for text in ("plan: 4 steps", "review, round 1: PASS", "turns", "tokens", "$0"):
        assert text in completed.stderr
    assert handoff.remaining_processes() == []
    assert list(handoff.folder.glob("handoff-run-*")) == []


@linux_only
def test_nothing_runs_5_seconds_after_the_command_was_killed(
    handoff: Handoff, silent_model: str
) -> None:
    with handoff.started("run", REQUEST, ANTHROPIC_BASE_URL=silent_model) as process:
        handoff.wait_for_text("submitted")
        assert len(handoff.remaining_processes()) >= 6, (
            "the command, Redis and four Celery processes"
        )
        process.send_signal(signal.SIGKILL)
        process.wait()

        wait_until(
            lambda: not handoff.remaining_processes(),
            timeout_s=5.0,
            expected="the end of all processes",
        )


@linux_only
def test_ctrl_c_stops_everything_and_the_job_can_be_continued(
    handoff: Handoff, silent_model: str
) -> None:
    with handoff.started(
        "run", REQUEST, "--docs", str(DOCUMENTS), ANTHROPIC_BASE_URL=silent_model
    ) as process:
        handoff.wait_for_text("submitted")
        assert interrupt(process) == 130
    errors = handoff.read("err")
    job_id = errors.split("handoff retry ")[1].split("`")[0]

    assert handoff.remaining_processes() == []
    assert "Traceback" not in errors

    resumed = handoff.run("retry", job_id, "--json", HANDOFF_OFFLINE="true")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["job_id"] == job_id
    second = handoff.run("retry", job_id)
    assert (second.returncode, "no interrupted run" in second.stderr) == (
        2,
        True,
    ), "a run that has ended is not kept"


def test_an_interrupted_start_leaves_no_process(handoff: Handoff) -> None:
    with handoff.started("run", REQUEST) as process:
        handoff.wait_for_text("starting")
        assert interrupt(process) == 130

    # The kernel ends a process that was just forked when it ends the command.
    wait_until(lambda: not handoff.remaining_processes(), timeout_s=5, expected="no process")


def test_own_specialists_and_tools_reach_the_workers(outcome: dict[str, Any]) -> None:
    planner = next(entry for entry in outcome["handoffs"] if entry["assigned_to"] == "planner")
    assert '"poet"' in planner["task_description"]
    assert '"rhymes"' in planner["task_description"]


def synthesis_until(release: threading.Event) -> Script:
    """Return the script of a model that ends its synthesis after the test sets `release`."""

    def script(request: Json) -> Reply:
        properties = answer_properties(request)
        if "steps" in properties:
            return json_reply(TWO_VIEWS)
        if "verdict" in properties:
            return json_reply({"verdict": "PASS", "revisions": [], "open_points": []})
        if SYNTHESIS not in json.dumps(request["system"]):
            return json_reply(envelope("One side."))
        return json_reply(envelope("The whole of it. " * 200), stall=release)

    return script


def test_a_run_with_an_unread_answer_is_interrupted_and_kept(tmp_path: Path) -> None:
    """The pipe is closed early, as in `handoff run "..." | head -1`."""
    handoff = Handoff(tmp_path)
    release, (read_end, write_end) = threading.Event(), os.pipe()
    os.close(read_end)
    with (
        MessagesServer(synthesis_until(release)) as server,
        (tmp_path / "err").open("wb") as errors,
    ):
        process = forked_processes.start(
            handoff.command("run", REQUEST),
            handoff.environment(ANTHROPIC_BASE_URL=server.url),
            tmp_path,
            write_end,
            errors.fileno(),
        )
        try:
            assert process.wait(timeout=MAX_WAIT_S) == 130
        finally:
            process.kill()
            release.set()
    os.close(write_end)

    assert "`handoff retry j-" in handoff.read("err")


def test_run_prints_the_answer_while_the_model_writes_it(fleet: Fleet, tmp_path: Path) -> None:
    handoff, url = Handoff(tmp_path), fleet.system.redis_url
    fleet.add_plan("streamed", {"a": "", "b": ""})
    fleet.model.syntheses["streamed"] = "reconcile"
    fleet.model.envelopes["streamed", "synthesizer"] = ENVELOPE | {
        "output": "The whole of it. " * 200
    }
    call = fleet.model.hold("streamed", "synthesizer")

    with handoff.started("run", "plan streamed", HANDOFF_REDIS_URL=url) as process:
        handoff.wait_for_text("The whole of it.", file="out")
        assert process.poll() is None, "it is still being written"
        call.release.set()
        assert process.wait(timeout=MAX_WAIT_S) == 0

    assert handoff.read("out").count("The whole of it.") == 200


def test_a_job_out_of_time_ends_instead_of_hanging(fleet: Fleet, tmp_path: Path) -> None:
    fleet.add_plan("late", {"a": ""})
    fleet.model.hold("late", "a")
    # A held refusal sends no text. With text, the job may end in time with a partial answer.
    fleet.model.refusals["late", "a", 1] = 8.0

    completed = Handoff(tmp_path).run(
        *("run", "plan late", "--timeout", "2", "--json"), HANDOFF_REDIS_URL=fleet.system.redis_url
    )

    assert completed.returncode == 1, completed.stderr
    assert json.loads(completed.stdout)["status"] == "failed"
    assert "failed:" in completed.stderr


def run_with_schema(
    folder: Path, system: RunningSystem, schema: Json, *options: str
) -> subprocess.CompletedProcess[str]:
    """Run the request on the shared system, with an answer in this schema."""
    (folder / "form.json").write_text(json.dumps(schema))
    return Handoff(folder).run(
        *("run", REQUEST, "--docs", str(DOCUMENTS), "--answer-schema", "form.json", *options),
        HANDOFF_REDIS_URL=system.redis_url,
    )


def test_an_answer_in_the_users_schema_is_alone_on_stdout_and_its_gaps_are_on_stderr(
    system: RunningSystem, tmp_path: Path
) -> None:
    properties = {
        "summary": {"type": "string"},
        "price_usd": {"type": "number"},
        "founded": {"type": ["integer", "null"]},
    }
    schema = {"type": "object", "properties": properties, "required": list(properties)}

    completed = run_with_schema(tmp_path, system, schema)

    assert completed.returncode == PARTIAL, completed.stderr
    form = json.loads(completed.stdout)
    assert (set(form), form["founded"]) == ({"summary", "founded"}, None)
    for text in (
        "no value was found for price_usd",
        "Made without a language model",
        "is partial",
        "Sources:",
    ):
        assert text in completed.stderr


def test_with_json_a_structured_answer_is_in_the_one_printed_object(
    system: RunningSystem, tmp_path: Path
) -> None:
    schema = {
        "type": "object",
        "properties": {"summary": {"type": "string"}},
        "required": ["summary"],
    }

    completed = run_with_schema(tmp_path, system, schema, "--json")

    assert completed.returncode == 0, completed.stderr
    printed = json.loads(completed.stdout)
    assert list(printed) == KEYS
    assert list(printed["answer"]) == ["summary"]


def test_an_answer_with_a_string_schema_is_a_json_string(
    system: RunningSystem, tmp_path: Path
) -> None:
    completed = run_with_schema(tmp_path, system, {"type": "string"})

    assert completed.returncode == 0, completed.stderr
    assert isinstance(json.loads(completed.stdout), str)
    assert "Sources:" in completed.stderr


SYNTHESIS = "synthes"
"""A word that only the synthesizer's instructions contain."""
TWO_VIEWS = {
    "steps": [
        {
            "id": side,
            "specialist": "generalist",
            "task": f"Look {side}.",
            "depends_on": [],
            "fallback": "-",
        }
        for side in ("left", "right")
    ],
    "synthesis": "reconcile",
    "why": "",
}


def envelope(output: str) -> Json:
    return {
        "status": "ok",
        "output": output,
        "claims": [],
        "confidence": 0.9,
        "needs": None,
        "problem": None,
    }


POET = """---
name: poet
description: Writes short verses about what earlier steps have found. Not for anything else.
tools: [rhymes]
---
You write verses of four lines about the facts that you are given, and nothing besides.
"""
RHYMES = '''
def rhymes(word: str) -> str:
    """Words that rhyme with a word."""
    return "none"
'''
