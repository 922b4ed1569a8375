"""Celery app of a supervisor that freezes when it evaluates a marked job that has a plan."""

from __future__ import annotations

import ctypes
from importlib import import_module

from handoff_queue.shared.settings.settings import load_settings
from handoff_queue.supervisor.assembly import make_supervisor_app
from handoff_queue.supervisor.lifecycle.commands import Command
from handoff_queue.supervisor.lifecycle.decide import decide
from handoff_queue.supervisor.lifecycle.observations import Observations
from handoff_queue.supervisor.lifecycle.state import JobState

FREEZES = "freezing"
"""A job freezes the supervisor if its request contains this word."""
FOR_EVER_S = 600


def decide_or_freeze(
    state: JobState, observations: Observations, now: float
) -> tuple[Command, ...]:
    if state.plan is not None and not state.ended and FREEZES in state.submitted.title:
        ctypes.PyDLL(None).usleep(FOR_EVER_S * 1_000_000)  # PyDLL keeps the interpreter lock.
    return decide(state, observations, now)


vars(import_module("handoff_queue.supervisor.engine.decision_maker"))["decide"] = decide_or_freeze
app = make_supervisor_app(load_settings())
