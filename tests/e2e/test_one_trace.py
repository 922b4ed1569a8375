"""Each job is one OpenTelemetry trace with every handoff, turn and tool call of all processes."""

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

from handoff_queue.shared.local.child_process_restarts import Processes
from handoff_queue.shared.local.fork_server import ForkServer
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.observability.trace_ids import derive_handoff_span, derive_job_span
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.client.submission import FLUSH_S
from handoff_queue.testing import MessagesServer
from tests import forked_processes
from tests.doubles.otel_collector import Collector, ReceivedSpan
from tests.e2e.fleet import SHORT_LEASES, Fleet, Script
from tests.e2e.fleets import CANARY
from tests.running_system import DOCUMENTS, ROOT, SUPERVISOR, model_environment, system_on
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow

COLLECTORS_KEY = "collector-canary-77c2"
WORD = "mellifluous"
"""A word in the task of a step that no text of the product contains."""


TELEMETRY_MODULES = (
    "handoff_queue.shared.observability.otel.export",
    "handoff_queue.shared.observability.otel.spans",
)


def run_command(
    *arguments: str, fork_server: ForkServer | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the `handoff` command. A fork server with the same variables forks its processes."""
    line = [sys.executable, "-P", "-m", "handoff_queue.supervisor.cli.main", *arguments]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    if fork_server is None:
        completed = forked_processes.run_cold(line, variables, ROOT, "", 90)
    else:
        line = forked_processes.with_forked_children(line, fork_server)
        completed = forked_processes.run(line, variables, ROOT, "", 90, fork_server)
    assert completed.returncode == 0, completed.stderr
    return completed


@dataclass(frozen=True)
class TracedFleet:
    """A fleet that exports its spans to a collector."""

    fleet: Fleet
    collector: Collector
    environment: dict[str, str]
    fork_server: ForkServer

    def submitted(self, name: str) -> JobId:
        """Submit a job with the command line, in a separate process."""
        completed = run_command(
            "submit",
            f"plan {name}",
            fork_server=self.fork_server,
            **self.environment,
        )
        return JobId(completed.stdout.strip())

    def trace_of(self, job_id: JobId) -> list[ReceivedSpan]:
        """Wait for the job's span, and return all received spans of its trace."""
        span_id = f"{derive_job_span(job_id):016x}"
        job_spans = wait_until(
            lambda: [span for span in self.collector.spans if span.span_id == span_id],
            expected="the span of the job",
        )
        return self.collector.of_trace(job_spans[0].trace_id)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TracedFleet]:
    """Start a supervisor and two workers with one slot each.

    Its processes and commands are forked from a server with the variables of the exporter.
    """
    script, folder = Script(), tmp_path_factory.mktemp("seen")
    with MessagesServer(script) as server, Collector() as collector:
        exporter = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_HEADERS": f"x-key={COLLECTORS_KEY}",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        settings = model_environment(server, **SHORT_LEASES, **exporter, ANTHROPIC_API_KEY=CANARY)
        with (
            forked_processes.fork_server_with(exporter, TELEMETRY_MODULES) as fork_server,
            Processes(folder, fork_server) as processes,
            system_on(
                PrivateRedis(processes, folder, append_only=False).start(),
                processes,
                folder,
                (SUPERVISOR,),
                settings,
            ) as system,
        ):
            for name in ("w1", "w2"):
                system.start_worker(name, "handoff_queue.workers.app", "generalist", 1)
            system.processes.wait_until_ready()
            jobs = client.connect(system.redis_url, Settings(offline=True))
            fleet = Fleet(system, server, script, jobs)
            yield TracedFleet(fleet, collector, system.environment, fork_server)
            jobs.store.connection.close()


def submit_plan(traced: TracedFleet, name: str, *, turns: int = 1, **plan: str) -> JobId:
    model = traced.fleet.model
    traced.fleet.add_plan(name, plan, turns=turns)
    model.tasks[name, "a"] = f"Be {WORD}."
    return traced.submitted(name)


def complete_trace(traced: TracedFleet, job_id: JobId, chats: int) -> list[ReceivedSpan]:
    """Wait until the trace has this number of model calls and all parent spans, and return it.

    Processes export their spans at different times.
    """

    def received() -> list[ReceivedSpan]:
        trace = traced.trace_of(job_id)
        has_calls = sum(span.name.startswith("chat ") for span in trace) >= chats
        return trace if has_calls and len(roots(trace)) == 1 else []

    return wait_until(received, expected=f"{chats} model calls in a trace without loose ends")


def roots(trace: list[ReceivedSpan]) -> list[str]:
    """Return the names of the spans whose parent is not in the trace."""
    known = {span.span_id for span in trace}
    return [span.name for span in trace if span.parent_id not in known]


@dataclass(frozen=True)
class TracedJob:
    """A job of three steps with two turns each, and its trace."""

    job_id: JobId
    trace: list[ReceivedSpan]


@pytest.fixture(scope="module")
def job(traced: TracedFleet) -> TracedJob:
    job_id = submit_plan(traced, "trace-all", turns=2, a="", b="", c="a b")
    traced.fleet.wait_for_success(job_id)
    return TracedJob(job_id, complete_trace(traced, job_id, 1 + 3 * 2 + 1))


def test_one_trace_holds_the_command_every_handoff_every_turn_and_every_tool_call(
    job: TracedJob,
) -> None:
    trace = job.trace

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


def test_the_trace_of_a_job_contains_its_child_jobs(traced: TracedFleet) -> None:
    traced.fleet.add_plan("trace-inner", {"x": ""})
    traced.fleet.model.teams["trace-outer", "t"] = "trace-inner"
    job_id = submit_plan(traced, "trace-outer", t="")
    traced.fleet.wait_for_success(job_id)
    trace = complete_trace(traced, job_id, 5)

    outer, inner = sorted(
        (span for span in trace if span.name.startswith("invoke_workflow")),
        key=lambda span: span.start_ns,
    )
    assert (outer.attributes["handoff.job.id"], inner.parent_id) == (job_id, outer.span_id)
    assert roots(trace) == ["submit"]
    agents = [span.attributes for span in trace if span.name.startswith("invoke_agent")]
    assert {agent["handoff.id"] for agent in agents if agent["handoff.job.id"] != job_id} == {
        "planner.1",
        "x.1",
        "assessor.1",
    }


def test_spans_follow_the_semantic_conventions(job: TracedJob) -> None:
    job_id, trace = job.job_id, job.trace

    agent_span_id = f"{derive_handoff_span(job_id, HandoffId('a.1')):016x}"
    agent = next(span for span in trace if span.span_id == agent_span_id)
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
        (span for span in trace if span.parent_id == agent_span_id and span.kind == 3),
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
    (tool,) = (span for span in trace if span.parent_id == agent_span_id and span.kind == 1)
    assert (tool.name, tool.attributes["gen_ai.tool.name"], tool.is_error) == (
        "execute_tool now",
        "now",
        False,
    )
    workflow = next(span for span in trace if span.name.startswith("invoke_workflow"))
    assert workflow.attributes["handoff.job.status"] == "ok"
    assert workflow.start_ns <= agent.start_ns <= agent.end_ns <= workflow.end_ns


def test_the_trace_is_complete_after_a_kill_of_a_worker(traced: TracedFleet) -> None:
    held = traced.fleet.model.hold("trace-kill", "a", turn=2)
    job_id = submit_plan(traced, "trace-kill", turns=2, a="")
    assert held.arrived.wait(MAX_WAIT_S)
    agent_span_id = f"{derive_handoff_span(job_id, HandoffId('a.1')):016x}"
    wait_until(
        lambda: [span for span in traced.collector.spans if span.parent_id == agent_span_id],
        expected="the first turn's spans",
    )
    traced.fleet.kill(traced.fleet.pid_of(job_id, "a.1"))
    traced.fleet.wait_for_success(job_id)
    held.release.set()
    trace = complete_trace(traced, job_id, 4)

    assert roots(trace) == ["submit"]
    assert [span.span_id for span in trace if span.attributes.get("handoff.id") == "a.1"] == [
        agent_span_id
    ], "only the worker that ended the handoff exports its span"
    assert (
        sum(span.parent_id == agent_span_id and span.name.startswith("chat") for span in trace) == 2
    ), "one turn of each worker"


@pytest.mark.usefixtures("job")
def test_no_prompt_text_and_no_secret_is_exported(traced: TracedFleet) -> None:
    exported = b"".join(traced.collector.raw)
    for word in (CANARY, COLLECTORS_KEY, WORD, "So it is.", "plan trace-all", "Do b of"):
        assert word.encode() not in exported
    assert all(headers["x-key"] == COLLECTORS_KEY for headers in traced.collector.headers), (
        "only the collector gets its key"
    )


def test_log_lines_have_the_id_of_their_trace(traced: TracedFleet, job: TracedJob) -> None:
    trace_id = job.trace[0].trace_id

    logs = [
        traced.fleet.system.processes.get_log_path(name).read_text()
        for name in traced.fleet.system.processes.get_pids()
        if name != "redis"
    ]
    lines = [
        line
        for log in logs
        for line in log.splitlines()
        if job.job_id in line and '"event": "handoff finished"' in line
    ]
    assert [json.loads(line)["trace_id"] for line in lines] == [trace_id] * 5
    handoff_ids = {json.loads(line)["handoff_id"] for line in lines}
    assert handoff_ids == {"planner.1", "a.1", "b.1", "c.1", "assessor.1"}


def test_an_absent_collector_delays_no_process(traced: TracedFleet) -> None:
    absent = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "60",
    }
    traced.fleet.add_plan("trace-away", {"a": ""})

    def submit(variables: dict[str, str]) -> tuple[subprocess.CompletedProcess[str], float]:
        """Submit a job, and return the outcome and the seconds that the command took."""
        began = time.monotonic()
        completed = run_command(
            "submit",
            "plan trace-away",
            **traced.environment | variables,  # type: ignore[arg-type]
        )
        return completed, time.monotonic() - began

    _, usual_s = submit({})
    completed, took_s = submit(absent)

    assert took_s < usual_s + FLUSH_S + 18, "the SDK would wait for 30 s"
    assert len(completed.stderr.splitlines()) == 1, completed.stderr
    assert "the OpenTelemetry collector " in completed.stderr
    traced.fleet.wait_for_success(JobId(completed.stdout.strip()))


def test_a_job_submitted_without_tracing_is_still_one_trace(
    traced: TracedFleet,
) -> None:
    traced.fleet.add_plan("trace-late", {"a": ""})
    job_id = traced.fleet.jobs.submit(Request("plan trace-late"))
    traced.fleet.wait_for_success(job_id)
    trace = complete_trace(traced, job_id, 3)

    assert roots(trace) == ["invoke_workflow team"]
    assert (
        len(
            {
                span.trace_id
                for span in traced.collector.spans
                if span.attributes.get("handoff.job.id") == job_id
            }
        )
        == 1
    )


def test_a_run_exports_all_spans_before_its_processes_end(traced: TracedFleet) -> None:
    exporter = {
        name: value for name, value in traced.environment.items() if name.startswith("OTEL_")
    }
    completed = run_command(
        *("run", "Compare Qdrant and Milvus", "--docs", str(DOCUMENTS), "--json"),
        fork_server=traced.fork_server,
        HANDOFF_OFFLINE="true",
        HANDOFF_MODE="team",
        **exporter,
    )

    spans = traced.collector.spans
    job_id = json.loads(completed.stdout)["job_id"]
    (workflow,) = (
        span
        for span in spans
        if span.name == "invoke_workflow team" and span.attributes["handoff.job.id"] == job_id
    )
    trace = traced.collector.of_trace(workflow.trace_id)
    assert roots(trace) == ["submit"]
    assert {span.service for span in trace} == {"handoff", "handoff-supervisor", "handoff-worker"}
    assert [span.name for span in trace].count("invoke_agent assessor") == 1
