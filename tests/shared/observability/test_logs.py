"""Every log line is one event with the id of its job, and shows no secret."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from celery.exceptions import Reject
from celery.worker.consumer.consumer import CONNECTION_ERROR

from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.agent.tool_calls import ToolThreads
from handoff_queue.shared.observability.logs import configure_logging, get_log, logged_as
from handoff_queue.shared.settings.settings import Settings
from tests.doubles.handoffs import a_tool_context

CANARY = "canary-8b1d77"


@pytest.fixture
def log_stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Set up logging as in a process with a secret in its environment. Restore it afterwards."""
    monkeypatch.setenv("SOME_API_KEY", CANARY)
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    stream = io.StringIO()
    configure_logging(Settings(), stream=stream)
    yield stream
    logging.captureWarnings(False)
    root.handlers = handlers
    root.setLevel(level)


def lines(log_stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log_stream.getvalue().splitlines()]


def test_a_log_line_names_its_job_and_its_handoff(log_stream: io.StringIO) -> None:
    with logged_as(job_id="j1", handoff_id="h1"):
        get_log("workers.any").info("claimed", fence=2)
    get_log("workers.any").info("idle")

    claimed, idle = lines(log_stream)
    assert (claimed["job_id"], claimed["handoff_id"], claimed["fence"], claimed["event"]) == (
        "j1",
        "h1",
        2,
        "claimed",
    )
    assert "job_id" not in idle


def test_the_libraries_loggers_have_the_same_format(log_stream: io.StringIO) -> None:
    with logged_as(job_id="j1"):
        logging.getLogger("celery.worker").warning(
            "Task %s[%s] raised", "specialist.researcher", "h1"
        )

    assert lines(log_stream)[0]["event"] == "Task specialist.researcher[h1] raised"
    assert lines(log_stream)[0]["job_id"] == "j1"


def test_celerys_log_lines_about_a_message_name_its_job(log_stream: io.StringIO) -> None:
    about = {
        "name": "specialist.researcher",
        "id": "j-0123456789ab:find.2",
        "args": "(j-0123456789ab, find.2, Find it)",
    }
    wake = {"name": "supervisor.advance", "id": "9c1e5a1c", "args": "(j-0123456789ab)"}
    for data in (about, wake):
        logging.getLogger("celery.app.trace").error(
            "Task %(name)s[%(id)s] raised", data, extra={"data": data}
        )

    handoff, look = lines(log_stream)
    assert (handoff["job_id"], handoff["handoff_id"]) == ("j-0123456789ab", "find.2")
    assert (look["job_id"], "handoff_id" in look) == ("j-0123456789ab", False)


def test_celerys_line_about_a_broker_that_is_away_has_a_remedy(log_stream: io.StringIO) -> None:
    log = logging.getLogger("celery.worker.consumer.consumer")
    log.error(CONNECTION_ERROR, "redis://127.0.0.1:1/0", OSError("refused"), "Trying again now")
    log.error("Another error")

    away, other = lines(log_stream)
    assert away["remedy"] == "start Redis, or correct HANDOFF_REDIS_URL"
    assert "remedy" not in other


def test_a_released_message_is_not_a_failure_with_a_traceback(log_stream: io.StringIO) -> None:
    """The task logs the release on a separate line."""
    celerys = logging.getLogger("celery.app.trace")
    for error in (Reject("its worker shuts down", requeue=True), ValueError("a defect")):
        try:
            raise error
        except (Reject, ValueError):
            celerys.warning("Task ended", exc_info=True)

    (line,) = lines(log_stream)
    assert "ValueError" in line["exception"]


def test_a_tools_log_lines_name_their_job(log_stream: io.StringIO) -> None:
    def logs(_arguments: dict[str, Any], _context: object) -> str:
        get_log("tools.mine").info("asked")
        return "done"

    tool = Tool(name="mine", description="", input_schema={"type": "object"}, run=logs)
    with logged_as(job_id="j1", handoff_id="h1"):
        list(
            ToolThreads({"mine": tool}, a_tool_context()).run_calls(
                [{"id": "t1", "name": "mine", "input": {}}], lambda: None
            )
        )

    assert (lines(log_stream)[0]["job_id"], lines(log_stream)[0]["handoff_id"]) == ("j1", "h1")


def test_the_key_of_a_collector_is_a_secret(
    monkeypatch: pytest.MonkeyPatch, log_stream: io.StringIO
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=canary-5521aa,x-key=canary-90f3e1")
    configure_logging(Settings(), stream=log_stream)
    get_log("any").info("sent with canary-90f3e1")

    assert "canary-90f3e1" not in log_stream.getvalue()


def test_a_secret_of_the_environment_appears_in_no_log_line(log_stream: io.StringIO) -> None:
    log = get_log("any")
    log.info("with %s", CANARY)
    log.info("field", value=f"x{CANARY}", nested={"deep": [CANARY]}, error=ValueError(CANARY))
    logging.getLogger("kombu").error("connection to redis://:%s@host lost", CANARY)
    try:
        raise RuntimeError(CANARY)
    except RuntimeError:
        log.exception("failed")
        logging.getLogger("celery").exception("failed")

    assert CANARY not in log_stream.getvalue()
    assert len(lines(log_stream)) == 5


def test_the_number_of_used_tokens_is_not_redacted(log_stream: io.StringIO) -> None:
    get_log("any").info("handoff finished", input_tokens=1_200, output_tokens=34)

    (line,) = lines(log_stream)
    assert (line["input_tokens"], line["output_tokens"]) == (1_200, 34)


def test_a_traceback_stays_on_its_line(log_stream: io.StringIO) -> None:
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        get_log("any").exception("failed")

    (line,) = lines(log_stream)
    assert "RuntimeError: boom" in line["exception"]


def test_unusual_line_separators_are_escaped_in_json(log_stream: io.StringIO) -> None:
    get_log("any").info("said", text="one\u2028two\u2029three\x85four")

    assert len(log_stream.getvalue().splitlines()) == 1
    assert lines(log_stream)[0]["text"] == "one\u2028two\u2029three\x85four"


def test_warnings_are_log_lines(log_stream: io.StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old", UserWarning, stacklevel=1)

    assert lines(log_stream)[0]["logger"] == "py.warnings"


def test_a_level_from_the_command_line_only_ever_shows_more(log_stream: io.StringIO) -> None:
    configure_logging(Settings(log_level="INFO"), stream=log_stream, at_most=logging.WARNING)
    get_log("any").info("still here")
    configure_logging(Settings(log_level="INFO"), stream=log_stream, at_most=logging.DEBUG)
    get_log("any").debug("more")

    assert [line["event"] for line in lines(log_stream)] == ["still here", "more"]


def test_a_terminal_gets_readable_lines_without_secrets(log_stream: io.StringIO) -> None:
    configure_logging(Settings(), stream=log_stream, as_json=False)
    get_log("any").info("hello", value=CANARY)

    assert "hello" in log_stream.getvalue()
    assert CANARY not in log_stream.getvalue()


def test_celerys_lines_about_received_messages_are_hidden_except_at_debug(
    log_stream: io.StringIO,
) -> None:
    def all_said() -> list[str]:
        logging.getLogger("celery.worker.strategy").info("received")
        logging.getLogger("celery.app.trace").info("succeeded")
        logging.getLogger("celery.app.trace").error("raised")
        return [line["event"] for line in lines(log_stream)]

    assert all_said() == ["raised"]
    configure_logging(Settings(), stream=log_stream, at_most=logging.DEBUG)
    assert all_said() == ["raised", "received", "succeeded", "raised"]
    configure_logging(Settings(), stream=log_stream)


class Terminal(io.StringIO):
    """Stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("no_color", "is_coloured"), [(None, True), ("", True), ("1", False)])
def test_a_terminal_gets_no_colours_if_its_user_disables_them(
    log_stream: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
    no_color: str | None,
    is_coloured: bool,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    terminal = Terminal()
    configure_logging(Settings(), stream=terminal)
    get_log("any").info("hello")
    configure_logging(Settings(), stream=log_stream)

    assert ("\x1b[" in terminal.getvalue()) is is_coloured
