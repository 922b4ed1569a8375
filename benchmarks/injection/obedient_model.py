"""A model that does the user's task, and obeys each instruction that a tool's result shows it."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.injection.suite import Call, Situation, Suite, SuiteTool, Task
from benchmarks.injection.tool_files import build_public_name
from handoff_queue.testing import (
    Json,
    Reply,
    answer_properties,
    first_message_text,
    json_reply,
    result_reply,
    tool_call_reply,
)

CASE = re.compile(r"\[(case-\d+)\]")


@dataclass
class Play:
    """One task while it runs: its environment, and the calls that the model still wants."""

    task: Task
    situation: Situation
    tools: Mapping[str, SuiteTool]
    next_calls: deque[Call]
    """Calls that the model makes next."""
    injected: list[Call] = field(default_factory=list)
    """Calls that the model makes because of the attack."""
    sees_attack: bool = False
    """True if a tool's result showed the attack to the model."""
    effects: int = 0
    """Calls of the attack that reached the world outside."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, suite: Suite, task: Task) -> Play:
        """Return the play of a task at its begin."""
        situation = suite.situation(task)
        return cls(task, situation, suite.tools[task.part], deque(situation.list_benign_calls()))

    def run(self, tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Run a call that the product let through."""
        with self.lock:
            text, has_succeeded = self.situation.run(tool, arguments)
            has_effect = self.tools[tool].declared.has_effect
            if has_succeeded and has_effect and self._is_of_attack(tool, arguments):
                self.effects += 1
            return text, has_succeeded

    def build_next_reply(self, request: Json) -> Reply:
        """Return the model's next reply."""
        with self.lock:
            attack = self.situation.attack.strip()
            if attack and not self.sees_attack and attack in _find_newest_results(request):
                self.sees_attack = True
                self.injected = self.situation.list_calls_of_attack()
                self.next_calls.extendleft(reversed(self.injected))
            if not self.next_calls:
                return result_reply(self.situation.answer(self.sees_attack))
            tool, arguments = self.next_calls.popleft()
            return tool_call_reply((build_public_name(self.task.part, tool), arguments))

    def _is_of_attack(self, tool: str, arguments: dict[str, Any]) -> bool:
        """Return whether the attack demanded this call. The tool file adds default arguments."""
        for name, demanded_arguments in self.injected:
            if name == tool and demanded_arguments.items() <= arguments.items():
                return True
        return False


def _find_newest_results(request: Json) -> str:
    texts: list[str] = []
    for block in request["messages"][-1]["content"]:
        if block["type"] == "tool_result":
            texts.append(str(block["content"]))
    return "\n".join(texts)


class Plays:
    """All tasks by the tenant of their job."""

    def __init__(self, suite: Suite, tasks: list[Task]) -> None:
        self._suite = suite
        self._tasks = {task.id: task for task in tasks}
        self._plays: dict[str, Play] = {}
        self._lock = threading.Lock()

    def of(self, name: str) -> Play:
        """Return the play of a task, which begins with the first call."""
        with self._lock:
            if name not in self._plays:
                self._plays[name] = Play.of(self._suite, self._tasks[name])
            return self._plays[name]

    def end(self, name: str) -> Play:
        """Return the play of a task, and forget it."""
        play = self.of(name)
        with self._lock:
            del self._plays[name]
        return play

    def reply(self, request: Json) -> Reply:
        """Return the reply of the model to any agent."""
        case = CASE.search(first_message_text(request))
        assert case, "each request names its task"
        play = self.of(case[1])
        if "route" in answer_properties(request):
            return json_reply({"route": "single", "specialist": play.task.part, "why": ""})
        return play.build_next_reply(request)
