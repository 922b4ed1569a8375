"""Tools of MCP servers, with real servers over stdio and HTTP. Some of the servers do harm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.agent.tool import Tool, ToolFailed
from handoff_queue.shared.agent.tool_calls import shorten_result
from handoff_queue.shared.settings.ports import find_free_port
from handoff_queue.shared.specialists.mcp_servers import AcceptedServer, Listing, McpServer
from handoff_queue.workers.tools.mcp.connections import McpConnections
from handoff_queue.workers.tools.mcp.tools import McpTools, make_mcp_tools
from tests import forked_processes
from tests.process_states import is_gone
from tests.running_system import ROOT
from tests.waiting import MAX_WAIT_S, wait_until
from tests.workers.tools.contexts import ToolHarness
from tests.workers.tools.mcp.a_hostile_server import TOOL

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
SERVER = "tests.workers.tools.mcp.a_server"
SECRET = "kV9-canary-2c41"
Served = Callable[..., dict[str, Tool]]


def a_config(*tools: str, **fields: Any) -> McpServer:
    """Return the configuration of `a_server.py` over stdio, in a forked process."""
    command = (forked_processes.python(), "-P", "-m", SERVER, "stdio")
    fixed = {"command": command, "timeout_s": MAX_WAIT_S, "tools": tools}
    return McpServer(**{**fixed, **fields})


@cache
def listing() -> Listing:
    """Return the listing of `a_server.py`."""
    connections = McpConnections()
    try:
        return connections.fetch_listing(
            AcceptedServer("weather", a_config("-"), {}, HERE / "someone.md")
        )
    finally:
        connections.close()


def listed(config: McpServer) -> AcceptedServer:
    """Return the server with the tools that a person has accepted."""
    return AcceptedServer("weather", config, listing(), HERE / "someone.md")


@pytest.fixture
def served() -> Iterator[Served]:
    """Return a function that makes the tools of servers. Their connections end with the test."""
    made: list[McpTools] = []

    def make(*servers: AcceptedServer) -> dict[str, Tool]:
        made.append(make_mcp_tools(servers))
        return dict(made[-1].tools)

    yield make
    for tools in made:
        tools.close()


@pytest.fixture
def harness() -> ToolHarness:
    return ToolHarness()


def hostile(harm: str, timeout_s: float = 20.0) -> AcceptedServer:
    command = (sys.executable, "-S", str(HERE / "a_hostile_server.py"), harm)
    config = McpServer(command=command, tools=("act",), timeout_s=timeout_s)
    return AcceptedServer("hostile", config, {"act": TOOL}, HERE / "someone.md")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    port = find_free_port()
    command = [forked_processes.python(), "-P", "-m", SERVER, "http", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: _answers(port), expected="the HTTP server")
        yield f"http://127.0.0.1:{port}/mcp"
        process.kill()


def _answers(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def over_http(url: str, *tools: str, **fields: Any) -> McpServer:
    return McpServer(url=url, tools=tools, allow_private=True, timeout_s=20.0, **fields)


def test_a_tool_has_the_accepted_description_and_schema_and_gives_a_result(
    served: Served, harness: ToolHarness
) -> None:
    server = listed(a_config("forecast", "measure"))
    tools = served(server)

    assert list(tools) == ["weather__forecast", "weather__measure"]
    forecast = tools["weather__forecast"]
    assert forecast.description == "The weather of a place."
    assert forecast.input_schema["required"] == ["place"]
    assert forecast.is_source
    assert harness.call(forecast, place="Bonn") == "Sunny in Bonn."
    assert '"degrees": 21.5' in harness.call(tools["weather__measure"], place="Bonn")


def test_a_server_over_http_gives_results(url: str, served: Served, harness: ToolHarness) -> None:
    tools = served(listed(over_http(url, "forecast")))

    assert harness.call(tools["weather__forecast"], place="Bonn") == "Sunny in Bonn."


@pytest.mark.parametrize(
    ("tool", "is_repeatable"), [("forecast", True), ("alert", False), ("measure", False)]
)
def test_hints_say_if_a_tool_is_repeatable(tool: str, is_repeatable: bool, served: Served) -> None:
    assert served(listed(a_config(tool)))[f"weather__{tool}"].repeatable is is_repeatable


def test_an_image_is_an_image(served: Served, harness: ToolHarness) -> None:
    output = harness.output(served(listed(a_config("draw")))["weather__draw"])

    assert output.text == "[image 1]"
    assert [image.media_type for image in output.images] == ["image/png"]


def test_an_error_of_the_server_is_a_failed_result(served: Served, harness: ToolHarness) -> None:
    failed = harness.failure(served(listed(a_config("fail")))["weather__fail"], place="Bonn")

    assert failed.startswith("weather__fail: ")


def test_a_long_result_is_cut(served: Served, harness: ToolHarness) -> None:
    text = harness.call(served(listed(a_config("flood")))["weather__flood"], size=100_000)

    assert len(shorten_result(text)) < 25_000


def test_a_connection_is_reused_and_ends_with_the_worker(harness: ToolHarness) -> None:
    tools = make_mcp_tools([hostile("pid")])
    first = harness.call(tools.tools["hostile__act"])
    second = harness.call(tools.tools["hostile__act"])
    runs_before = not is_gone(int(first))
    tools.close()

    assert first == second
    assert runs_before
    assert is_gone(int(first))


def test_a_server_ends_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    output = tmp_path / "output"
    command = [sys.executable, "-P", "-m", "tests.workers.tools.mcp.a_worker"]
    with output.open("wb") as written:
        worker = forked_processes.start(
            command,
            {**os.environ, "PYTHONPATH": str(ROOT)},
            ROOT,
            written.fileno(),
            written.fileno(),
        )
    server = int(wait_until(output.read_text, expected="the pid of the server"))
    assert not is_gone(server)
    worker.send_signal(signal.SIGKILL)
    worker.wait(MAX_WAIT_S)

    wait_until(lambda: is_gone(server), expected="the end of the server")


def test_a_server_gets_only_the_named_variables(
    served: Served, harness: ToolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEATHER_PLACE", "Bonn")
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    monkeypatch.setenv("HANDOFF_REDIS_URL", f"redis://:{SECRET}@redis/0")
    command = (sys.executable, str(HERE / "a_server.py"), "stdio")
    server = listed(a_config("environment", command=command, env=("WEATHER_PLACE",)))
    shown = harness.call(served(server)["weather__environment"])
    names = {line.partition("=")[0] for line in shown.splitlines()}

    assert names - {"LC_CTYPE"} == {"PATH", "WEATHER_PLACE"}
    assert SECRET not in shown


def test_a_secret_is_removed_from_results_and_errors(
    served: Served, harness: ToolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEATHER_TOKEN", SECRET)
    tools = served(listed(a_config("environment", "fail", env=("WEATHER_TOKEN",))))

    assert "WEATHER_TOKEN=[WEATHER_TOKEN]" in harness.call(tools["weather__environment"])
    assert SECRET not in harness.failure(tools["weather__fail"], place=SECRET)


def test_a_missing_secret_is_named(
    served: Served, harness: ToolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEATHER_TOKEN", SECRET)
    server = listed(a_config("forecast", env=("WEATHER_TOKEN",)))
    monkeypatch.delenv("WEATHER_TOKEN")

    failed = harness.failure(served(server)["weather__forecast"], place="Bonn")

    assert failed == "weather is not set up: the worker's environment lacks WEATHER_TOKEN"


def test_a_missing_command_is_a_failed_result(served: Served, harness: ToolHarness) -> None:
    config = McpServer(command=("no-such-command",), tools=("act",), timeout_s=20)
    server = AcceptedServer("absent", config, {"act": TOOL}, HERE / "someone.md")

    assert harness.failure(served(server)["absent__act"]).startswith("absent: the server has ")


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        ("die", "hostile: the server has ended; the call may have run"),
        ("long-line", "hostile: the server has sent too much, and was stopped; the call may have"),
        ("notifications", "hostile: the server has sent too much, and was stopped; the call may"),
        ("structure", "hostile__act: the result does not match its schema: "),
        ("no-structure", "hostile__act: the result does not match its schema: "),
        ("no-result", "hostile: the server has failed (ValidationError); the call may have run"),
        ("asks", "hostile: the server has failed (ValidationError); the call may have run"),
        ("endless-list", "hostile: the server has failed (OSError)"),
    ],
)
def test_harm_costs_one_failed_result(
    harm: str, expected: str, served: Served, harness: ToolHarness
) -> None:
    tool = served(hostile(harm))["hostile__act"]

    assert harness.failure(tool).startswith(expected)
    assert harness.failure(tool).startswith(expected), "the next call has a new connection"


@pytest.mark.parametrize("harm", ["hang", "silent-list"])
def test_a_server_that_hangs_costs_one_failed_result(
    harm: str, served: Served, harness: ToolHarness
) -> None:
    tool = served(hostile(harm, timeout_s=1.0))["hostile__act"]

    assert harness.failure(tool).startswith("hostile: the server did not answer within 1 s")


def test_lines_that_are_not_messages_are_ignored(served: Served, harness: ToolHarness) -> None:
    assert harness.call(served(hostile("garbage"))["hostile__act"]) == "done"


def test_content_of_other_kinds_is_named_and_left_out(served: Served, harness: ToolHarness) -> None:
    assert harness.call(served(hostile("kinds"))["hostile__act"]).splitlines() == [
        "a",
        "[audio: left out]",
        "[an image of an unknown kind: left out]",
        "[an image of an unknown kind: left out]",
        "[a resource: file:///etc/passwd]",
        "b",
    ]


def test_a_server_that_died_has_a_new_process_for_the_next_call(
    served: Served, harness: ToolHarness
) -> None:
    tool = served(hostile("pid"))["hostile__act"]
    first = harness.call(tool)
    harness.failure(tool, is_over=True)

    assert harness.call(tool) != first


def test_a_changed_tool_is_not_called_and_the_others_are(
    served: Served, harness: ToolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIES", "description")
    tools = served(listed(a_config("forecast", "measure", env=("LIES",))))

    failed = harness.failure(tools["weather__forecast"], place="Bonn")
    assert failed.startswith("weather: forecast is not called: the server has changed its ")
    assert "degrees" in harness.call(tools["weather__measure"], place="Bonn")


def test_a_tool_that_changes_after_the_first_call_is_not_called_again(
    served: Served, harness: ToolHarness
) -> None:
    tool = served(hostile("changes"))["hostile__act"]

    assert harness.call(tool) == "done"
    assert "has changed its description" in wait_until(
        lambda: _failure_of(harness, tool), expected="the refusal"
    )


def _failure_of(harness: ToolHarness, tool: Tool) -> str:
    try:
        harness.call(tool)
    except ToolFailed as error:
        return str(error)
    return ""


def test_a_tool_that_is_gone_is_not_called(served: Served, harness: ToolHarness) -> None:
    server = hostile("nothing")
    config = server.config.model_copy(update={"tools": ("other",)})
    tool = served(replace(server, config=config, listing={"other": {**TOOL, "name": "other"}}))

    assert "does not list it any more" in harness.failure(tool["hostile__other"])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "[::1]"])
def test_a_private_address_is_refused(
    host: str, url: str, served: Served, harness: ToolHarness
) -> None:
    config = McpServer(url=url.replace("127.0.0.1", host), tools=("act",), timeout_s=20)
    server = AcceptedServer("inside", config, {"act": TOOL}, HERE / "someone.md")

    failed = harness.failure(served(server)["inside__act"])
    assert failed.endswith("is not on the public internet")


def test_calls_of_several_threads_share_a_connection(served: Served, harness: ToolHarness) -> None:
    from concurrent.futures import ThreadPoolExecutor

    tool = served(listed(a_config("forecast")))["weather__forecast"]
    places = [f"place {number}" for number in range(20)]
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda place: harness.call(tool, place=place), places))

    assert results == [f"Sunny in {place}." for place in places]
