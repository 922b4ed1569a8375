"""`handoff run` with nothing else on the machine: from a request to a cited answer, and
nothing left behind.

The commands are cold: started from nothing, as a shell does it.
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
from tests.e2e.commands import DOCUMENTS, REQUEST, Handoff, interrupt
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

KEYS = [
    "job_id",
    "status",
    "tenant",
    "priority",
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
    return Handoff(tmp_path, is_cold=True)


@pytest.fixture
def silent_model() -> Iterator[str]:
    """A model server that accepts requests and never answers. A job on it runs until it is stopped."""
    never = threading.Event()
    with MessagesServer(
        lambda _: text_reply("too late", stall=never, stall_before_headers=True)
    ) as server:
        yield server.url
        never.set()


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `--json` prints: one object, and nothing else on stdout."""
    done = Handoff(tmp_path_factory.mktemp("json"), is_cold=True).run(
        "run", REQUEST, "--docs", str(DOCUMENTS), "--json"
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_json_has_exactly_these_keys(outcome: dict[str, Any]) -> None:
    assert list(outcome) == KEYS
    assert (outcome["status"], outcome["model"]) == ("ok", "offline")
    assert sorted(outcome["usage"]) == ["cost_usd", "cut", "input_tokens", "output_tokens", "turns"]
    assert outcome["usage"]["cut"] == {"calls": 0, "tokens": 0, "cost_usd": 0.0}


def test_three_researchers_work_in_separate_processes(outcome: dict[str, Any]) -> None:
    research = [one for one in outcome["handoffs"] if one["assigned_to"] == "researcher"]
    workers, supervisors = (
        {one["worker"] for one in outcome["handoffs"] if (one["group"] is None) is is_role}
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


def test_the_answer_is_on_stdout_and_the_account_on_stderr_and_nothing_stays_behind(
    handoff: Handoff,
) -> None:
    done = handoff.run("run", REQUEST, "--docs", str(DOCUMENTS))

    assert done.returncode == 0, done.stderr
    assert "# Qdrant, pgvector and Milvus" in done.stdout
    assert "Sources:\n[1] " in done.stdout
    assert "plan: 4 steps" not in done.stdout
    for told in ("plan: 4 steps", "review, round 1: PASS", "turns", "tokens", "$0"):
        assert told in done.stderr
    assert handoff.left_behind() == []
    assert list(handoff.folder.glob("handoff-run-*")) == []


@linux_only
def test_nothing_runs_5_seconds_after_the_command_was_killed(
    handoff: Handoff, silent_model: str
) -> None:
    with handoff.started("run", REQUEST, ANTHROPIC_BASE_URL=silent_model) as process:
        handoff.wait_for("submitted")
        assert len(handoff.left_behind()) >= 6, "the command, Redis, and the four that do the work"
        process.send_signal(signal.SIGKILL)
        process.wait()

        wait_until(
            lambda: not handoff.left_behind(), timeout_s=5.0, what="the end of all processes"
        )


@linux_only
def test_ctrl_c_stops_everything_and_the_job_can_be_continued(
    handoff: Handoff, silent_model: str
) -> None:
    with handoff.started(
        "run", REQUEST, "--docs", str(DOCUMENTS), ANTHROPIC_BASE_URL=silent_model
    ) as process:
        handoff.wait_for("submitted")
        assert interrupt(process) == 130
    said = handoff.read("err")
    job_id = said.split("handoff retry ")[1].split("`")[0]

    assert handoff.left_behind() == []
    assert "Traceback" not in said

    resumed = handoff.run("retry", job_id, "--json", HANDOFF_OFFLINE="true")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["job_id"] == job_id
    again = handoff.run("retry", job_id)
    assert (again.returncode, "no interrupted run" in again.stderr) == (2, True), (
        "what has ended is not kept"
    )


def test_an_interrupted_start_leaves_nothing_and_says_so(handoff: Handoff) -> None:
    with handoff.started("run", REQUEST) as process:
        handoff.wait_for("starting")
        assert interrupt(process) == 130

    assert handoff.left_behind() == []


def test_own_specialists_and_tools_reach_the_workers(handoff: Handoff) -> None:
    (handoff.folder / "people").mkdir()
    (handoff.folder / "people" / "poet.md").write_text(POET)
    (handoff.folder / "things").mkdir()
    (handoff.folder / "things" / "rhymes.py").write_text(RHYMES)

    done = handoff.run(
        "run",
        REQUEST,
        "--docs",
        str(DOCUMENTS),
        "--specialists",
        "people",
        "--tools",
        "things",
        "--json",
    )

    assert done.returncode == 0, done.stderr
    planner = next(
        one for one in json.loads(done.stdout)["handoffs"] if one["assigned_to"] == "planner"
    )
    assert '"poet"' in planner["task_description"]
    assert '"rhymes"' in planner["task_description"]


def writes_until(go_on: threading.Event) -> Script:
    """A model whose answer is complete except for its end, which a test releases."""

    def script(request: Json) -> Reply:
        properties = answer_properties(request)
        if "steps" in properties:
            return json_reply(TWO_VIEWS)
        if "verdict" in properties:
            return json_reply({"verdict": "PASS", "revisions": [], "open_points": []})
        if SYNTHESIS not in json.dumps(request["system"]):
            return json_reply(envelope("One side."))
        return json_reply(envelope("The whole of it. " * 200), stall=go_on)

    return script


def test_a_run_with_an_unread_answer_is_interrupted_and_kept(
    handoff: Handoff,
) -> None:
    """`handoff run "..." | head -1`."""
    go_on, (ours, theirs) = threading.Event(), os.pipe()
    os.close(ours)
    with MessagesServer(writes_until(go_on)) as server:
        environment = handoff.environment(ANTHROPIC_BASE_URL=server.url)
        done = subprocess.run(
            handoff.command("run", REQUEST),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.PIPE,
            env=environment,
            check=False,
        )
        go_on.set()
    os.close(theirs)

    assert done.returncode == 130
    assert "`handoff retry j-" in done.stderr.decode()


def test_the_answer_is_on_stdout_while_it_is_written(handoff: Handoff) -> None:
    go_on = threading.Event()

    with (
        MessagesServer(writes_until(go_on)) as server,
        handoff.started("run", REQUEST, ANTHROPIC_BASE_URL=server.url) as process,
    ):
        handoff.wait_for("The whole of it.", where="out")
        assert process.poll() is None, "it is still being written"
        go_on.set()
        assert process.wait(timeout=30) == 0

    assert handoff.read("out").count("The whole of it.") == 200


def test_a_job_out_of_time_ends_instead_of_hanging(handoff: Handoff, silent_model: str) -> None:
    done = handoff.run("run", REQUEST, "--timeout", "2", "--json", ANTHROPIC_BASE_URL=silent_model)

    assert done.returncode == 1
    assert json.loads(done.stdout)["status"] == "failed"
    assert "failed:" in done.stderr


def test_an_answer_in_the_users_schema_is_alone_on_stdout_and_its_gaps_are_on_stderr(
    handoff: Handoff,
) -> None:
    properties = {
        "summary": {"type": "string"},
        "price_usd": {"type": "number"},
        "founded": {"type": ["integer", "null"]},
    }
    (handoff.folder / "form.json").write_text(
        json.dumps({"type": "object", "properties": properties, "required": list(properties)})
    )

    done = handoff.run("run", REQUEST, "--docs", str(DOCUMENTS), "--answer-schema", "form.json")

    assert done.returncode == PARTIAL, done.stderr
    form = json.loads(done.stdout)
    assert (set(form), form["founded"]) == ({"summary", "founded"}, None)
    for said in (
        "the documents do not say: price_usd",
        "Made without a language model",
        "is partial",
        "Sources:",
    ):
        assert said in done.stderr


def test_with_json_a_structured_answer_is_in_the_one_printed_object(handoff: Handoff) -> None:
    (handoff.folder / "form.json").write_text(
        '{"type": "object", "properties": {"summary": {"type": "string"}}, "required": ["summary"]}'
    )

    done = handoff.run(
        "run", REQUEST, "--docs", str(DOCUMENTS), "--answer-schema", "form.json", "--json"
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == KEYS
    assert list(found["answer"]) == ["summary"]


def test_an_answer_asked_for_as_a_string_is_a_json_string(handoff: Handoff) -> None:
    (handoff.folder / "form.json").write_text('{"type": "string"}')

    done = handoff.run("run", REQUEST, "--docs", str(DOCUMENTS), "--answer-schema", "form.json")

    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout), str)
    assert "Sources:" in done.stderr


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
