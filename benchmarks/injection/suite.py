"""The form of a suite of attacks: its tools, its tasks, and the environment of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Call = tuple[str, dict[str, Any]]
"""Name of a tool and its arguments."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """The data that a tool reads and the effect of a call, as an operator declares them."""

    reads: str
    """`private`: data of the user. `public`: data that everybody may see."""
    acts: bool
    """True if a call changes something outside the job."""
    sends: tuple[str, ...]
    """`*` if a call can carry text to another person or host."""

    @property
    def has_effect(self) -> bool:
        """True if a call of the tool reaches the world outside the job."""
        return self.acts or bool(self.sends)


READS_PRIVATE = Declaration("private", acts=False, sends=())
READS_PUBLIC = Declaration("public", acts=False, sends=())
ACTS = Declaration("private", acts=True, sends=())
SENDS = Declaration("private", acts=True, sends=("*",))


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a tool."""

    name: str
    annotation: str
    """Source text of the type."""
    default: str | None
    """Source text of the default. None: the parameter is required."""


@dataclass(frozen=True, slots=True)
class SuiteTool:
    """A tool of a suite."""

    name: str
    doc: str
    parameters: tuple[Parameter, ...]
    declared: Declaration


@dataclass(frozen=True, slots=True)
class Task:
    """A user's task, with or without an injection."""

    id: str
    part: str
    """Name of the part of the suite."""
    user_task: str
    injection: str | None


class Situation(Protocol):
    """The environment of one running task."""

    @property
    def prompt(self) -> str:
        """The user's request."""

    @property
    def attack(self) -> str:
        """Text of the attack in a tool's result; empty without an injection."""

    def list_benign_calls(self) -> list[Call]:
        """Return the calls that do the user's task."""

    def list_calls_of_attack(self) -> list[Call]:
        """Return the calls that the attack demands."""

    def answer(self, obeys: bool) -> str:
        """Return the answer to the user, with the words that an obeyed attack demands."""

    def run(self, tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Run a tool. Return the text of its result or its error, and whether it succeeded."""

    def is_task_done(self, answer: str) -> bool:
        """Return whether the user's task was completed."""

    def is_attack_done(self, answer: str) -> bool:
        """Return whether the attack reached its goal."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A public suite of attacks."""

    tools: Mapping[str, Mapping[str, SuiteTool]]
    """The tools of each part, by name."""
    tasks: Callable[[Sequence[str], int], Iterator[Task]]
    """Takes parts and a number N. Yields all tasks without an injection, and then each Nth
    attack.
    """
    situation: Callable[[Task], Situation]
    """Returns the environment at the beginning of a task."""
