"""Each job is one trace, from the submitting process through every handoff, turn and tool call,
over all processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from handoff_queue.shared.observability.trace_ids import handoff_span, job_span
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.submit import FLUSH_S
from handoff_queue.testing import MessagesServer
from tests.doubles.otel_collector import Collector, ReceivedSpan
from tests.e2e.fleet import QUICK, Fleet, Script
from tests.e2e.fleets import CANARY
from tests.running_system import DOCUMENTS, ROOT, SUPERVISOR, over, running_system
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

COLLECTORS_KEY = "collector-canary-77c2"
SAID = "mellifluous"
"""A word in the task of a step. Our own texts do not contain it."""


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a person does."""
    line = [sys.executable, "-m", "handoff_queue.supervisor.cli.main", *words]
    return subprocess.run(
        line,
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )


@dataclass(frozen=True)
class Seen:
    """A traced fleet."""

    fleet: Fleet
    collector: Collector
    environment: dict[str, str]

    def submitted(self, name: str) -> JobId:
        """Submit a job with the command line, in a separate process."""
        return JobId(command("submit", f"plan {name}", **self.environment).stdout.strip())

    def trace_of(self, job_id: JobId) -> list[ReceivedSpan]:
        """All spans of the trace that the job's own span is in, once that has come."""
        own = f"{job_span(job_id):016x}"
        found = wait_until(
            lambda: [span for span in self.collector.spans if span.span_id == own],
            what="the span of the job",
        )
        return self.collector.of_trace(found[0].trace_id)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """A supervisor and two workers of one slot each."""
    script = Script()
    with MessagesServer(script) as server, Collector() as collector:
        telling = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_HEADERS": f"x-key={COLLECTORS_KEY}",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        settings = over(server, **QUICK, **telling, ANTHROPIC_API_KEY=CANARY)
        with running_system(tmp_path_factory.mktemp("seen"), (SUPERVISOR,), settings) as system:
            for name in ("w1", "w2"):
                system.processes.start(
                    system.celery(
                        name,
                        "-A",
                        "handoff_queue.workers.app",
                        "worker",
                        "-n",
                        f"{name}@%h",
                        "-Q",
                        "generalist",
                        "-c",
                        "1",
                    )
                )
            system.processes.wait_until_ready()
            jobs = client.connect(system.redis_url, Settings(offline=True))
            yield Seen(Fleet(system, server, script, jobs), collector, system.environment)
            jobs.store.connection.close()


def planned(seen: Seen, name: str, *, turns: int = 1, **plan: str) -> JobId:
    model = seen.fleet.model
    model.plans[name], model.turns[name] = plan, turns
    model.tasks[name, "a"] = f"Be {SAID}."
    return seen.submitted(name)


def whole(seen: Seen, job_id: JobId, chats: int) -> list[ReceivedSpan]:
    """Return the trace when it has this number of model calls with all their parents. Processes
    export at any time.
    """

    def look() -> list[ReceivedSpan]:
        trace = seen.trace_of(job_id)
        is_told = sum(span.name.startswith("chat ") for span in trace) >= chats
        return trace if is_told and len(roots(trace)) == 1 else []

    return wait_until(look, what=f"{chats} model calls in a trace without loose ends")


def roots(trace: list[ReceivedSpan]) -> list[str]:
    """Return spans without their parent."""
    known = {span.span_id for span in trace}
    return [span.name for span in trace if span.parent_id not in known]


def test_one_trace_holds_the_command_every_handoff_every_turn_and_every_tool_call(
    seen: Seen,
) -> None:
    job_id = planned(seen, "trace-all", turns=2, a="", b="", c="a b")
    seen.fleet.ends_well(job_id)
    trace = whole(seen, job_id, 1 + 3 * 2 + 1)

    by_id = {span.span_id: span for span in trace}
    names = Counter(span.name.split(" ")[0] for span in trace)
    assert (
        names["chat"],
        names["execute_tool"],
        names["invoke_agent"],
        names["invoke_workflow"],
    ) == (8, 3, 5, 1)
    assert roots(trace) == ["submit"]
    assert {span.service for span in trace} == {"handoff", "handoff-supervisor", "handoff-worker"}
    for span in trace:
        if span.name.startswith(("chat", "execute_tool")):
            assert by_id[span.parent_id].name.startswith("invoke_agent"), span
        if span.name.startswith("invoke_agent"):
            assert by_id[span.parent_id].name.startswith("run/"), span
        if span.name.startswith("run/"):
            assert (span.attributes["celery.task_name"], by_id[span.parent_id].kind) == (
                span.name[4:],
                4,
            ), span
    handoffs = {
        span.attributes["handoff.id"] for span in trace if span.name.startswith("invoke_agent")
    }
    assert handoffs == {"planner.1", "a.1", "b.1", "c.1", "assessor.1"}


def test_a_job_that_does_a_step_of_another_is_in_its_trace(seen: Seen) -> None:
    seen.fleet.model.plans["trace-inner"] = {"x": ""}
    seen.fleet.model.teams["trace-outer", "t"] = "trace-inner"
    job_id = planned(seen, "trace-outer", t="")
    seen.fleet.ends_well(job_id)
    trace = whole(seen, job_id, 5)

    outer, inner = sorted(
        (span for span in trace if span.name.startswith("invoke_workflow")),
        key=lambda span: span.start_ns,
    )
    assert (outer.attributes["handoff.job.id"], inner.parent_id) == (job_id, outer.span_id)
    assert roots(trace) == ["submit"]
    agents = [span.attributes for span in trace if span.name.startswith("invoke_agent")]
    assert {one["handoff.id"] for one in agents if one["handoff.job.id"] != job_id} == {
        "planner.1",
        "x.1",
        "assessor.1",
    }


def test_spans_follow_the_semantic_conventions(seen: Seen) -> None:
    job_id = planned(seen, "trace-words", turns=2, a="")
    seen.fleet.ends_well(job_id)
    trace = whole(seen, job_id, 4)

    own = f"{handoff_span(job_id, HandoffId('a.1')):016x}"
    agent = next(span for span in trace if span.span_id == own)
    assert agent.name == "invoke_agent generalist"
    expected = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.agent.name": "generalist",
        "gen_ai.request.model": Settings().specialist_model,
        "gen_ai.response.finish_reasons": ["finished"],
        "gen_ai.usage.input_tokens": 200,
        "gen_ai.usage.output_tokens": 40,
        "handoff.job.id": job_id,
    }
    assert {name: agent.attributes.get(name) for name in expected} == expected
    first, last = sorted(
        (span for span in trace if span.parent_id == own and span.kind == 3),
        key=lambda span: span.start_ns,
    )
    assert first.name == f"chat {Settings().specialist_model}"
    assert (
        first.attributes["gen_ai.response.finish_reasons"],
        last.attributes["gen_ai.response.finish_reasons"],
    ) == (
        ["tool_use"],
        ["end_turn"],
    )
    (tool,) = (span for span in trace if span.parent_id == own and span.kind == 1)
    assert (tool.name, tool.attributes["gen_ai.tool.name"], tool.is_error) == (
        "execute_tool now",
        "now",
        False,
    )
    job = next(span for span in trace if span.name.startswith("invoke_workflow"))
    assert job.attributes["handoff.job.status"] == "ok"
    assert job.start_ns <= agent.start_ns <= agent.end_ns <= job.end_ns


def test_a_worker_that_is_killed_leaves_one_trace_without_loose_ends(seen: Seen) -> None:
    held = seen.fleet.model.hold("trace-kill", "a", turn=2)
    job_id = planned(seen, "trace-kill", turns=2, a="")
    assert held.arrived.wait(30)
    own = f"{handoff_span(job_id, HandoffId('a.1')):016x}"
    wait_until(
        lambda: [span for span in seen.collector.spans if span.parent_id == own],
        what="the first turn's spans",
    )
    seen.fleet.kill(seen.fleet.pid_of(job_id, "a.1"))
    seen.fleet.ends_well(job_id)
    held.go.set()
    trace = whole(seen, job_id, 4)

    assert roots(trace) == ["submit"]
    assert [span.span_id for span in trace if span.attributes.get("handoff.id") == "a.1"] == [
        own
    ], "told once, by who ended it"
    assert sum(span.parent_id == own and span.name.startswith("chat") for span in trace) == 2, (
        "one turn by each of the two"
    )


def test_no_prompt_text_and_no_secret_is_exported(seen: Seen) -> None:
    job_id = planned(seen, "trace-silent", turns=2, a="")
    seen.fleet.ends_well(job_id)
    whole(seen, job_id, 4)

    sent = b"".join(seen.collector.raw)
    for word in (CANARY, COLLECTORS_KEY, SAID, "So it is.", "plan trace-silent", "Do a of"):
        assert word.encode() not in sent
    assert all(headers["x-key"] == COLLECTORS_KEY for headers in seen.collector.headers), (
        "the collector itself is told its key"
    )


def test_lines_of_the_log_say_which_trace_they_belong_to(seen: Seen) -> None:
    job_id = planned(seen, "trace-logs", a="")
    seen.fleet.ends_well(job_id)
    trace_id = whole(seen, job_id, 3)[0].trace_id

    logs = [
        seen.fleet.system.processes.log_of(name).read_text()
        for name in seen.fleet.system.processes.pids()
        if name != "redis"
    ]
    said = [
        line
        for log in logs
        for line in log.splitlines()
        if job_id in line and '"event": "handoff finished"' in line
    ]
    assert [json.loads(line)["trace_id"] for line in said] == [trace_id] * 3
    assert {json.loads(line)["handoff_id"] for line in said} == {"planner.1", "a.1", "assessor.1"}


def test_an_absent_collector_delays_no_process(seen: Seen) -> None:
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "60"}
    seen.fleet.model.plans["trace-away"] = {"a": ""}
    before = time.monotonic()
    done = command("submit", "plan trace-away", **seen.environment | away)

    assert time.monotonic() - before < FLUSH_S + 18, "the SDK would wait for 30 s"
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "the OpenTelemetry collector " in done.stderr
    seen.fleet.ends_well(JobId(done.stdout.strip()))


def test_a_job_submitted_without_tracing_is_still_one_trace(
    seen: Seen,
) -> None:
    seen.fleet.model.plans["trace-late"] = {"a": ""}
    job_id = seen.fleet.jobs.submit(client.Request("plan trace-late"))
    seen.fleet.ends_well(job_id)
    trace = whole(seen, job_id, 3)

    assert roots(trace) == ["invoke_workflow team"]
    assert (
        len(
            {
                span.trace_id
                for span in seen.collector.spans
                if span.attributes.get("handoff.job.id") == job_id
            }
        )
        == 1
    )


def test_a_run_exports_all_spans_before_its_processes_end() -> None:
    with Collector() as collector:
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "HANDOFF_OFFLINE": "true",
            "HANDOFF_MODE": "team",
        }
        command(
            "run", "Compare Qdrant and Milvus", "--docs", str(DOCUMENTS), "--json", **environment
        )

    assert roots(collector.spans) == ["submit"]
    assert {"handoff", "handoff-supervisor", "handoff-worker"} == {
        span.service for span in collector.spans
    }
    assert (
        len(collector.named("invoke_workflow team"))
        == len(collector.named("invoke_agent assessor"))
        == 1
    )
