"""Answers of the model for random DAGs, with a different duration for each call of the
planner, the steps, the assessor and the synthesizer.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from benchmarks.timed_model import TimedModel, answer_to
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.model import ModelCall
from handoff_queue.shared.types.plan import Synthesis

CALL_S = "BENCH_CALL_S"
"""Environment: the shortest and the longest call, in seconds: `1 3`."""
STEPS = (6, 15)
MAX_DEPENDENCIES = 3
_NAMED = re.compile(r"DAG number (\d+)")
_STEP = re.compile(r"Task number (\d+) of DAG number (\d+)")


@dataclass(frozen=True)
class Dag:
    """A job: the seconds of each call, and the dependencies of each step."""

    number: int
    calls_s: Mapping[str, float]
    """Seconds by role, and by step."""
    depends_on: Mapping[str, tuple[str, ...]]

    @property
    def request(self) -> str:
        return f"Do all of DAG number {self.number}"

    @property
    def sinks(self) -> list[str]:
        sinks: list[str] = []
        for step in self.depends_on:
            if not any(step in others for others in self.depends_on.values()):
                sinks.append(step)
        return sinks

    @cached_property
    def critical_path_s(self) -> float:
        """Seconds of the longest chain of calls: the planner's, the steps', the assessor's and
        the synthesizer's. With a single sink there is no synthesizer, because the sink's
        result is the answer.
        """
        end_s: dict[str, float] = {}
        for step, needed in self.depends_on.items():  # each step after its dependencies
            end_s[step] = self.calls_s[step] + max(
                (end_s[dependency] for dependency in needed), default=0.0
            )
        roles = ["planner", "assessor", *(["synthesizer"] if len(self.sinks) > 1 else [])]
        return max(end_s.values()) + sum(self.calls_s[role] for role in roles)

    def build_plan(self) -> dict[str, Any]:
        steps = []
        for n, (step, needed) in enumerate(self.depends_on.items()):
            steps.append(
                {
                    "id": step,
                    "specialist": "researcher",
                    "task": f"Task number {n} of DAG number {self.number}",
                    "depends_on": list(needed),
                }
            )
        return {"steps": steps, "synthesis": Synthesis.RECONCILE.value, "why": "as it was drawn"}


def make_dag(number: int, shortest_s: float, longest_s: float) -> Dag:
    """Return the job of a number; the same number gives the same job."""
    draw = random.Random(number)
    names = [f"step_{n}" for n in range(draw.randint(*STEPS))]
    depends_on = {}
    for n, name in enumerate(names):
        depends_on[name] = tuple(draw.sample(names[:n], draw.randint(0, min(n, MAX_DEPENDENCIES))))
    calls_s = {}
    for name in ("planner", "assessor", "synthesizer", *names):
        calls_s[name] = draw.uniform(shortest_s, longest_s)
    return Dag(number, calls_s, depends_on)


def _answer_part(dag: Dag, call: ModelCall, text: str) -> tuple[str, dict[str, Any]]:
    properties = (call.output_schema or {}).get("properties", {})
    if "steps" in properties:
        return "planner", dag.build_plan()
    if "verdict" in properties:
        return "assessor", answer_to(call.output_schema or {})
    if "You are the synthesizer" in call.system.text:
        return "synthesizer", {**answer_to({}), "output": "All of it."}
    step = _STEP.search(text)
    assert step, text
    return f"step_{step[1]}", {**answer_to({}), "output": f"Result of step {step[1]}."}


def make_model(_settings: Settings) -> TimedModel:
    """Return a model that reads the number of the DAG and the part in the text of a call."""
    shortest_s, longest_s = map(float, os.environ.get(CALL_S, "1 3").split())

    def reply(call: ModelCall) -> tuple[float, dict[str, Any]]:
        text = json.dumps(call.messages)
        match = _NAMED.search(text)
        assert match, text
        dag = make_dag(int(match[1]), shortest_s, longest_s)
        part, answer = _answer_part(dag, call, text)
        return dag.calls_s[part], answer

    return TimedModel(reply)
