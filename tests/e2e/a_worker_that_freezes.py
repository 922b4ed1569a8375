"""Celery app of a worker whose tool `now` holds the interpreter lock without end."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from importlib import import_module
from typing import Any

from handoff_queue.shared.agent.tool import Tool, ToolContext
from handoff_queue.shared.settings.settings import load_settings
from handoff_queue.workers.assembly import make_workers_app
from handoff_queue.workers.tools.current_time import now_tool

FOR_EVER_S = 600


def freeze(_arguments: dict[str, Any], _context: ToolContext) -> str:
    ctypes.PyDLL(None).usleep(FOR_EVER_S * 1_000_000)  # PyDLL keeps the interpreter lock.
    return "never"


def freezing_tool() -> Tool:
    return replace(now_tool(), run=freeze)


vars(import_module("handoff_queue.workers.tools.registry"))["now_tool"] = freezing_tool
app = make_workers_app(load_settings())
