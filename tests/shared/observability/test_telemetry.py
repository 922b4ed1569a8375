"""Telemetry is loaded and sent only on request. A missing package is an error of one line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Protocol

import pytest

from handoff_queue.shared.observability.telemetry import (
    Telemetry,
    get_telemetry,
    is_telemetry_wanted,
)
from handoff_queue.shared.observability.telemetry_factory import find_exporter_problems
from handoff_queue.shared.types.ids import JobId
from tests.running_system import ROOT
from tests.warm_interpreter import WarmInterpreter

APPS = """
import sys
import handoff_queue.supervisor.app, handoff_queue.workers.app
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.observability.telemetry_factory import start_telemetry
from handoff_queue.shared.observability.telemetry import get_telemetry
"""
START = """
start_telemetry("handoff", Settings())
start_telemetry("handoff", Settings())
theirs = ("opentelemetry.sdk.trace", "opentelemetry.exporter", "opentelemetry.instrumentation")
ours = ("handoff_queue.shared.observability.otel", "google.protobuf", *theirs)
loaded = sorted(name for name in sys.modules if name.startswith(ours))
print(get_telemetry().is_on, loaded)
"""
WITHOUT_THE_EXTRA = (
    "sys.modules.update({'opentelemetry.sdk': None, 'opentelemetry.exporter': None,"
    " 'opentelemetry.instrumentation': None})"
)
EXPORTER = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}


class RunProcess(Protocol):
    """Start telemetry in a process. Return its stdout and the lines of its stderr."""

    def __call__(self, first: str = "", **environment: str) -> tuple[str, list[str]]: ...


@pytest.fixture(scope="module")
def apps() -> Iterator[WarmInterpreter]:
    """Yield a process that has imported the apps, but not OpenTelemetry: it reads its variables
    during its import.
    """
    with WarmInterpreter(APPS, ROOT) as interpreter:
        yield interpreter


@pytest.fixture
def run_process(apps: WarmInterpreter, monkeypatch: pytest.MonkeyPatch) -> RunProcess:
    for name in os.environ:
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)

    def run(first: str = "", **environment: str) -> tuple[str, list[str]]:
        process = apps.run(first + START, **environment)
        assert process.returncode == 0, process.stderr
        return process.stdout.strip(), process.stderr.splitlines()

    return run


@pytest.mark.slow
def test_without_the_variable_telemetry_is_not_loaded(run_process: RunProcess) -> None:
    assert run_process() == ("False []", [])


@pytest.mark.slow
def test_a_missing_telemetry_package_is_one_line_and_the_process_continues(
    run_process: RunProcess,
) -> None:
    output, lines = run_process(WITHOUT_THE_EXTRA, **EXPORTER)

    assert output.startswith("False")
    (line,) = lines
    assert line.startswith("OTEL_EXPORTER_OTLP_ENDPOINT is set, but no spans are sent")
    assert "install the extra otel of handoff-queue" in line


@pytest.mark.slow
def test_with_variable_and_extra_telemetry_is_on(run_process: RunProcess) -> None:
    output, lines = run_process(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="http://127.0.0.1:9/v1/traces")

    assert output.startswith("True")
    assert lines == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "refused",
    [
        {"OTEL_PROPAGATORS": "b3"},
        {"OTEL_BSP_MAX_QUEUE_SIZE": "0"},
        {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "-1"},
    ],
    ids=lambda refused: next(iter(refused)),
)
def test_an_error_of_the_sdk_is_one_line_and_the_process_continues(
    run_process: RunProcess, refused: dict[str, str]
) -> None:
    output, lines = run_process(**EXPORTER, **refused)

    assert output.startswith("False")
    (line,) = lines
    assert line.startswith(
        "no spans are sent: OpenTelemetry's SDK refuses one of the variables OTEL_"
    )
    assert next(iter(refused)) in line.partition("(ValueError: ")[0]


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
    (problem,) = find_exporter_problems({**EXPORTER, variable: value})

    assert problem.startswith(f"{variable}: ")
    assert "canary" not in problem


def test_values_that_the_exporter_can_use_are_not_a_problem() -> None:
    assert not [
        *find_exporter_problems(
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
    run_process: RunProcess,
) -> None:
    output, lines = run_process(OTEL_EXPORTER_OTLP_ENDPOINT="collector.example")

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
    assert is_telemetry_wanted()
    for name, value in switch.items():
        monkeypatch.setenv(name, value)

    assert not is_telemetry_wanted()


def test_disabled_telemetry_stores_no_span_and_adds_no_field_to_log_lines() -> None:
    assert type(get_telemetry()) is Telemetry
    with get_telemetry().submitting(JobId("j-000000000001")) as traceparent:
        assert traceparent is None
    assert get_telemetry().get_ids() == {}
