"""Logging of every process: one line an event, with its job and handoff, and without secrets.

The lines are JSON, or readable text on a terminal. Records of standard-library loggers
(Celery's, kombu's) have the same form.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from types import MappingProxyType
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from handoff_queue.shared.observability.redaction import Redactor, find_secrets
from handoff_queue.shared.observability.telemetry import get_telemetry
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.settings.unknown_variables import build_unknown_variables_warning
from handoff_queue.shared.types.ids import JOB_ID_IN_TEXT

QUIET = (
    *("httpx", "httpx2", "httpcore", "httpcore2", "anthropic", "urllib3"),
    *("asyncio", "amqp", "uvicorn", "mcp"),
)
"""Loggers that write a line for each request or start. Only their warnings and errors are logged.
"""
COMMENTS = ("celery.worker.strategy", "celery.app.trace")
"""Loggers of Celery that report each message and each successful task. Our logs report the
result instead. At the level DEBUG these loggers write all their lines, else only warnings and
errors.
"""
_MESSAGE = re.compile(
    rf"(?P<job>{JOB_ID_IN_TEXT})(?::(?P<handoff>[a-z][a-z0-9_-]*\.[0-9]{{1,4}})(?= ))?"
)
"""Id of a job, and of a handoff if there is one, in the id and the arguments that Celery logs
for a message.
"""
_NO_BROKER = "consumer: Cannot connect to "
"""The beginning of Celery's line about a broker that cannot be reached. Celery repeats the line
with each try.
"""
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "exception": logging.ERROR,
}
_chain: list[Processor] = structlog.get_config()["processors"]
"""One shared list, so that existing loggers use the latest configuration."""


class _Logger(structlog.stdlib.BoundLogger):
    """A logger that does no work for a line below the level."""

    def _proxy_to_logger(
        self, method_name: str, event: str | None = None, *event_args: str, **event_kw: Any
    ) -> Any:
        if self.isEnabledFor(_LEVELS.get(method_name, logging.CRITICAL)):
            return super()._proxy_to_logger(method_name, event, *event_args, **event_kw)
        return None


def configure_logging(
    settings: Settings,
    *,
    stream: TextIO | None = None,
    as_json: bool | None = None,
    at_most: int | None = None,
    file: str | None = None,
) -> None:
    """Send every log record of this process to `file`, or to `stream`. A second call replaces
    the first configuration. The first one logs the unknown variables `HANDOFF_...`.

    Args:
        stream: None for standard error.
        as_json: None for JSON unless `stream` is a terminal.
        at_most: level from the command line. It has an effect only if it shows more than the level
            of the settings.
        file: path of a file to append to. It is opened again after log rotation has moved it, like
            the file of Celery's `--logfile`.
    """
    out = stream if stream is not None else sys.stderr
    level = logging.getLevelNamesMapping()[settings.log_level]
    if at_most:
        level = min(level, at_most)
    shared = _build_enriching_processors(Redactor(find_secrets(settings)))
    handler: logging.Handler = logging.StreamHandler(out)
    if file is not None:
        handler = logging.handlers.WatchedFileHandler(file, encoding="utf-8")
    is_terminal = file is None and out.isatty()
    in_colour = is_terminal and not os.environ.get("NO_COLOR")
    if as_json is None:
        as_json = not is_terminal
    handler.setFormatter(_build_formatter(shared, as_json=as_json, in_colour=in_colour))
    _set_root_handler(handler)
    _set_levels(level)
    logging.getLogger("celery.app.trace").addFilter(_is_no_requeue_warning)
    logging.captureWarnings(True)
    _chain[:] = [
        structlog.stdlib.filter_by_level,
        *shared,
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ]
    structlog.configure(
        processors=_chain,
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=_Logger,
        cache_logger_on_first_use=True,
    )
    _warn_of_unknown_variables()


def _set_root_handler(handler: logging.Handler) -> None:
    """Send all records to this handler only, and close the file of an earlier one."""
    root = logging.getLogger()
    for earlier in root.handlers:
        if isinstance(earlier, logging.handlers.WatchedFileHandler):
            earlier.close()
    root.handlers = [handler]


def _set_levels(level: int) -> None:
    """Set the level of all loggers. Loggers with many lines get a higher one."""
    quiet_level = max(level, logging.WARNING)
    logging.getLogger().setLevel(level)
    for name in QUIET:
        logging.getLogger(name).setLevel(quiet_level)
    for name in COMMENTS:
        logging.getLogger(name).setLevel(level if level <= logging.DEBUG else quiet_level)


@cache
def _warn_of_unknown_variables() -> None:
    """Log the variables `HANDOFF_...` that nothing reads, once in a process."""
    problem = build_unknown_variables_warning()
    if problem:
        get_log(__name__).warning(problem)


def _is_no_requeue_warning(record: logging.LogRecord) -> bool:
    """Return False for Celery's record of a message that was handed back (a logging filter).

    Our code has logged the hand-back in one line. Celery adds a traceback, as if the task had
    failed. The exception is compared by name, because a process that only reads jobs does not
    import Celery.
    """
    kind = None
    if record.exc_info:
        kind = record.exc_info[0]
    return kind is None or (kind.__module__, kind.__name__) != ("celery.exceptions", "Reject")


def get_log(name: str) -> structlog.stdlib.BoundLogger:
    """Return the logger of a module: `log = log_of(__name__)`, then `log.info("handoff
    claimed", fence=2)`. It follows the latest `configure_logging`, also a later one.
    """
    return _Logger(logging.getLogger(name), _chain, {})


_log_context: ContextVar[Mapping[str, str]] = ContextVar("whose", default=MappingProxyType({}))
"""Job and handoff of the current context, for its log lines. `structlog` has one context variable
for each name, and takes ten times as long to set them.
"""


class logged_as:  # noqa: N801 - read as a statement
    """Add job and handoff to each log line of the `with` block. The earlier values return
    after the block.
    """

    __slots__ = ("_bound", "_token")

    def __init__(self, *, job_id: str, handoff_id: str | None = None) -> None:
        if handoff_id is None:
            self._bound = {"job_id": job_id}
        else:
            self._bound = {"job_id": job_id, "handoff_id": handoff_id}

    def __enter__(self) -> None:
        self._token = _log_context.set({**_log_context.get(), **self._bound})

    def __exit__(self, *_: object) -> None:
        _log_context.reset(self._token)


def merge_log_context(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add job and handoff to a line without them (a structlog processor)."""
    return {**_log_context.get(), **event}


def _build_enriching_processors(redactor: Redactor) -> list[Processor]:
    """Return the processors that add fields to each log record, and that hide secrets last."""

    def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        # The two underscored keys are structlog's own, removed before rendering.
        by_key: dict[str, Any] = {}
        for key, value in event.items():
            if key in {"_record", "_from_structlog"}:
                by_key[key] = value
            else:
                by_key[key] = redactor.redact_value(value, key)
        return by_key

    return [
        merge_log_context,
        _add_place,
        _add_remedy,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,  # text, before redaction: a traceback quotes values
        redact,
    ]


def _add_place(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add job and handoff to Celery's own lines about a message (a structlog processor). Add the
    ids of the current trace and span to every line.
    """
    record = event.get("_record")
    data = getattr(record, "data", None)
    if isinstance(data, Mapping) and "job_id" not in event:
        match = _MESSAGE.search(f"{data.get('id')} {data.get('args')}")
        if match:
            event["job_id"] = match["job"]
            if match["handoff"]:
                event["handoff_id"] = match["handoff"]
    return {**get_telemetry().get_ids(), **event}


def _add_remedy(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the remedy to Celery's line about a broker that cannot be reached (a structlog
    processor).
    """
    if str(event.get("event")).startswith(_NO_BROKER):
        return {**event, "remedy": "start Redis, or correct HANDOFF_REDIS_URL"}
    return event


_IN_JSON = structlog.processors.JSONRenderer(ensure_ascii=False)
_LINE_ENDS = str.maketrans({"\x85": r"\u0085", "\u2028": r"\u2028", "\u2029": r"\u2029"})
"""Characters that JSON may contain in texts, and that some readers take for the end of a line."""


def _render_json_line(logger: WrappedLogger, method: str, event: EventDict) -> str:
    """Return the event as JSON without line breaks."""
    text = _IN_JSON(logger, method, event)
    if isinstance(text, bytes):
        text = text.decode()
    return text.translate(_LINE_ENDS)


def _build_formatter(
    shared: list[Processor], *, as_json: bool, in_colour: bool
) -> logging.Formatter:
    renderer: Processor = _render_json_line
    if not as_json:
        renderer = structlog.dev.ConsoleRenderer(
            colors=in_colour, exception_formatter=structlog.dev.plain_traceback, pad_event_to=0
        )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )
