"""A specialist file with `managed_by: provider` lets the provider shorten the requests of a real
worker. The answer cites results from before the summary, and a kill after a summary does not pay
for it again.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from handoff_queue.shared.types.context_edits import CLEARING_BETA, COMPACTION_BETA
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import (
    Json,
    MessagesServer,
    Reply,
    claim,
    error_reply,
    result_reply,
    text_reply,
    tool_call_reply,
)
from handoff_queue.testing.context_edits import count_tokens
from tests.e2e.commands import Handoff
from tests.e2e.fleet import SHORT_LEASES
from tests.running_system import SUPERVISOR, model_environment, running_system
from tests.waiting import MAX_WAIT_S

pytestmark = pytest.mark.slow

RECORDS = 12
WINDOW = 12_000
SPECIALIST = """---
name: reader
description: Reads records and cites them. Not for writing.
tools: [records]
max_turns: 30
context: {managed_by: provider, clear_tools_at: 6000, keep: 1, compact_at: 9000}
---
Read all records, and cite each one.
"""
TOOL = '''from handoff_queue import tool


@tool()
def records(number: int) -> str:
    """Return a record.

    Args:
        number: number of the record.
    """
    return f"The code of record {number} is K{number * 7}. " + "Nothing else is known. " * 300
'''
NAMED = re.compile(r"\[source: (tool:[^]]+)\]\\n(The code of record (\d+) is K\d+\.)")
KEPT = re.compile(r'"source": "(tool:[^"]+)", "quote": "(The code of record (\d+) is K\d+\.)"')


def reader(request: Json) -> Reply:
    """Read one record after another, and cite all that the request shows."""
    tokens = count_tokens(request)
    if tokens > WINDOW:
        return error_reply(400, f"prompt is too long: {tokens} tokens > {WINDOW} maximum")
    usage = {"input_tokens": tokens, "output_tokens": 300}
    shown = json.dumps(request["messages"], ensure_ascii=False)
    quotes = {}
    for source, quote, number in NAMED.findall(shown) + KEPT.findall(shown.replace('\\"', '"')):
        quotes[int(number)] = (source, quote)
    done = max(quotes, default=0)
    if "compaction" in request:
        return text_reply(f"I have read {done} records.", usage=usage)
    if done < RECORDS:
        source, quote = quotes.get(done, ("", ""))
        pair = json.dumps({"source": source, "quote": quote})
        notes = f"{pair} {'This record belongs to the list. ' * 60}"
        return tool_call_reply(("records", {"number": done + 1}), text=notes, usage=usage)
    claims = []
    for number, (source, quote) in sorted(quotes.items()):
        claims.append(claim(f"c{number}", quote, source=source, quote=quote))
    output = " ".join(f"{item['text']} [{item['id']}]" for item in claims)
    return result_reply(output, claims=claims, usage=usage)


@dataclass(slots=True)
class Model:
    """The reader. It holds the reply to the first request with a signed summary."""

    arrived: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)
    has_held: bool = False

    def __call__(self, request: Json) -> Reply:
        reply = reader(request)
        first = request["messages"][0]["content"][0]
        if first["type"] == "compaction" and not self.has_held:
            self.has_held = True
            self.arrived.set()
            return replace(reply, stall=self.release, stall_before_headers=True)
        return reply


def folders_of_the_reader(folder: Path) -> dict[str, str]:
    """Write the files of the reader, and return the settings with their folders."""
    settings: dict[str, str] = {}
    for kind, name, text in (("specialists", "reader.md", SPECIALIST), ("tools", "t.py", TOOL)):
        (folder / kind).mkdir()
        (folder / kind / name).write_text(text)
        settings[f"HANDOFF_{kind.upper()}_DIRS"] = str(folder / kind)
    return settings


def test_a_worker_killed_after_a_summary_repeats_only_the_call_in_flight(
    tmp_path: Path, handoff: Handoff
) -> None:
    model = Model()
    with MessagesServer(model) as server:
        settings = {
            **model_environment(server),
            **folders_of_the_reader(tmp_path),
            **SHORT_LEASES,
            "HANDOFF_KEEP_TURNS": "true",
        }
        workers = [(name, "handoff_queue.workers.app", "reader") for name in ("one", "other")]
        with running_system(tmp_path, (SUPERVISOR, *workers), settings) as system:
            jobs = system.jobs()
            job_id = jobs.submit(
                Request("Read the records.", mode=Mode.SINGLE, specialists=("reader",))
            )
            assert model.arrived.wait(MAX_WAIT_S)
            pid = worker_of(jobs, job_id)
            assert pid in system.processes.get_pids().values()
            os.kill(pid, signal.SIGKILL)
            result = jobs.result(job_id, wait_s=MAX_WAIT_S)
            model.release.set()
            shown = handoff.run(
                "show", job_id, "--handoff", "answer.1", HANDOFF_REDIS_URL=system.redis_url
            ).stdout
            jobs.store.connection.close()
    assert result.status == "ok"
    assert len(result.citations) == RECORDS
    bodies = [json.dumps(request, sort_keys=True) for request in server.requests]
    repeated = [body for body in set(bodies) if bodies.count(body) > 1]
    assert len(repeated) == 1
    assert bodies.count(repeated[0]) == 2
    assert "compaction" not in json.loads(repeated[0]), "the summary is paid once"
    assert result.usage["cut"]["calls"] == 1
    betas = {header.get("anthropic-beta") for header in server.headers}
    assert betas == {CLEARING_BETA, COMPACTION_BETA, f"{CLEARING_BETA},{COMPACTION_BETA}"}
    assert re.search(r"\d+ results cleared.* by the provider, about", shown)
    assert re.search(r"summar.* of earlier turns by the provider, about", shown)


def worker_of(jobs: Client, job_id: JobId) -> int:
    """Return the id of the process that runs the handoff."""
    name = HandoffId("answer.1")
    return int(jobs.store.jobs.read_handoffs(job_id, [name])[name].worker.rpartition(":")[2])
