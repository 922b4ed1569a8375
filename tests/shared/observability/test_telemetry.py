"""Telemetry is loaded and sent only on request. A missing package is an error of one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from handoff_queue.shared.observability.otel.variables import problems_of_exporter
from handoff_queue.shared.observability.telemetry import Telemetry, is_wanted, telemetry
from handoff_queue.shared.types.ids import JobId
from tests.running_system import ROOT

START = """
import json, os, sys
import handoff_queue.supervisor.app, handoff_queue.workers.app
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.observability.telemetry_start import start_telemetry
from handoff_queue.shared.observability.telemetry import telemetry

def start(missing):
    sys.modules.update(dict.fromkeys(missing))
    start_telemetry("handoff", Settings())
    start_telemetry("handoff", Settings())
    theirs = ("opentelemetry.sdk.trace", "opentelemetry.exporter", "opentelemetry.instrumentation")
    ours = ("handoff_queue.shared.observability.otel", "google.protobuf", *theirs)
    loaded = sorted(name for name in sys.modules if name.startswith(ours))
    print(telemetry().is_on, loaded, flush=True)

for name, environment, missing in json.loads(sys.argv[1]):
    if (child := os.fork()) == 0:
        for number, stream in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{name}.{stream}", os.O_WRONLY | os.O_CREAT), number)
        os.environ.update(environment)
        start(missing)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
"""
"""Script that starts telemetry in one process for each case. They are forked before the import of
OpenTelemetry, which reads its variables then. Their output goes to files.
"""
EXPORTER = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
REFUSED_BY_SDK = {
    "OTEL_PROPAGATORS": "b3",
    "OTEL_BSP_MAX_QUEUE_SIZE": "0",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "-1",
}
MISSING = ("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.instrumentation")
CASES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "no variable": ({}, ()),
    "no extra": (EXPORTER, MISSING),
    "on": ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9/v1/traces"}, ()),
    "bad endpoint": ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector.example"}, ()),
    **{name: ({**EXPORTER, name: value}, ()) for name, value in REFUSED_BY_SDK.items()},
}
"""Name -> variables, and packages that cannot be imported."""


@dataclass(frozen=True)
class StartedProcesses:
    """The output of a process for each case."""

    folder: Path

    def output_of(self, case: str) -> tuple[str, list[str]]:
        """Return the process's stdout and the lines of its stderr."""
        output, errors = (self.folder / f"{case}.{stream}" for stream in ("out", "err"))
        return output.read_text().strip(), errors.read_text().splitlines()


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> StartedProcesses:
    folder = tmp_path_factory.mktemp("started")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    cases = [(name, *case) for name, case in CASES.items()]
    subprocess.run(
        [sys.executable, "-c", START, json.dumps(cases)],
        env={**clean, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        timeout=90,
        check=True,
    )
    return StartedProcesses(folder)


@pytest.mark.slow
def test_without_the_variable_telemetry_is_not_loaded(started: StartedProcesses) -> None:
    assert started.output_of("no variable") == ("False []", [])


@pytest.mark.slow
def test_a_missing_telemetry_package_is_one_line_and_the_process_continues(
    started: StartedProcesses,
) -> None:
    output, lines = started.output_of("no extra")

    assert output.startswith("False")
    (line,) = lines
    assert line.startswith("OTEL_EXPORTER_OTLP_ENDPOINT is set, but no spans are sent")
    assert "install handoff-queue[otel]" in line


@pytest.mark.slow
def test_with_variable_and_extra_telemetry_is_on(started: StartedProcesses) -> None:
    output, lines = started.output_of("on")

    assert output.startswith("True")
    assert lines == []


@pytest.mark.slow
@pytest.mark.parametrize("refused", REFUSED_BY_SDK)
def test_an_error_of_the_sdk_is_one_line_and_the_process_continues(
    started: StartedProcesses, refused: str
) -> None:
    output, lines = started.output_of(refused)

    assert output.startswith("False")
    (line,) = lines
    assert line.startswith(
        "no spans are sent: OpenTelemetry's SDK refuses one of the variables OTEL_"
    )
    assert refused in line.partition("(ValueError: ")[0]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "canary"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:canary@host:port"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "canary"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "canary"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "nan"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "-1"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "1e9"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/canary"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "canary\x01"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "canary"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
    ],
)
def test_a_bad_value_of_the_exporter_is_named_by_its_variable_and_not_shown(
    variable: str, value: str
) -> None:
    (problem,) = problems_of_exporter({**EXPORTER, variable: value})

    assert problem.startswith(f"{variable}: ")
    assert "canary" not in problem


def test_values_that_the_exporter_can_use_are_no_problem() -> None:
    assert not [
        *problems_of_exporter(
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector.example:4318/otlp",
                "OTEL_EXPORTER_OTLP_TIMEOUT": "2.5",
                "OTEL_EXPORTER_OTLP_CERTIFICATE": __file__,
                "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            }
        )
    ]


@pytest.mark.slow
def test_a_process_with_a_bad_endpoint_logs_one_line_and_continues(
    started: StartedProcesses,
) -> None:
    output, lines = started.output_of("bad endpoint")

    assert output.startswith("False")
    assert lines == [
        "no spans are sent: OTEL_EXPORTER_OTLP_ENDPOINT: must begin with http:// or https://; it"
        " looks like https://host.example/path"
    ]


@pytest.mark.parametrize(
    "switch", [{"OTEL_SDK_DISABLED": "True"}, {"OTEL_TRACES_EXPORTER": "none"}]
)
def test_the_standard_variables_disable_telemetry(
    monkeypatch: pytest.MonkeyPatch, switch: dict[str, str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    assert is_wanted()
    for name, value in switch.items():
        monkeypatch.setenv(name, value)

    assert not is_wanted()


def test_disabled_telemetry_stores_no_span_and_adds_no_field_to_log_lines() -> None:
    assert type(telemetry()) is Telemetry
    with telemetry().submitting(JobId("j-000000000001")) as traceparent:
        assert traceparent is None
    assert telemetry().ids() == {}
