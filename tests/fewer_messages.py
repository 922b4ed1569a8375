"""Fewer messages from the test processes of pytest-xdist to the process that starts them.

For each test, xdist sends five messages that change nothing in the summary. They take a quarter of
the processor time that pytest itself needs for a test.
"""

from __future__ import annotations

from typing import Any

import pytest

UNUSED = ("logstart", "logfinish")
"""Messages that only show the name of a test before its end."""


def send_fewer_messages(config: pytest.Config) -> None:
    """Let this test process send only the messages that the summary needs.

    An option that shows durations or writes a file with results needs all messages.
    """
    if config.option.durations or config.option.xmlpath:
        return
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            _drop_unused(plugin)


def _drop_unused(sender: Any) -> None:
    send = sender.sendevent

    def send_if_needed(name: str, **content: Any) -> None:
        if name not in UNUSED and not _is_ordinary(name, content):
            send(name, **content)

    sender.sendevent = send_if_needed


def _is_ordinary(name: str, content: dict[str, Any]) -> bool:
    """Return whether a message says that the fixtures of a test were set up or torn down."""
    if name != "testreport":
        return False
    report = content["data"]
    return bool(report["when"] != "call" and report["outcome"] == "passed")
