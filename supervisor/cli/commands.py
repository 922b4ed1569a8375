"""What there is to type, and where it is. A command is imported when it is typed, so that
help, a completion and a slip of the keyboard are
answered at once: all commands together import most of the project.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from handoff_queue.shared.settings.optional_packages import check_extra
from handoff_queue.shared.text.words import close_names

HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True, slots=True)
class Entry:
    """A command in the list of all."""

    place: str
    """Of its function: `module:name`, in this package."""
    line: str
    """The first of its help."""
    panel: str = ""


def _entries(panels: dict[str, dict[str, tuple[str, str]]]) -> dict[str, Entry]:
    return {
        name: Entry(place, line, panel)
        for panel, ours in panels.items()
        for name, (place, line) in ours.items()
    }


ENTRIES = _entries({
    "Jobs": {
        "run": ("run:run", "Submit a job and stay until its answer."),
        "submit": ("submit:submit", "Enqueue a job and print its id at once."),
        "watch": ("watch:watch", "Follow a job until its end, then print its answer."),
        "result": ("result:result", "Print a job's answer, its sources and what it took."),
        "show": ("show:show", "A job in brief: its status, its handoffs that matter most, its notes and its answer."),
        "list": ("list:list_jobs", "The newest jobs."),
        "export": ("export:export", "Write everything about a job into one self-contained JSON file."),
        "trace": ("trace:trace", "Write a job as one HTML page: who ran when, what made it last, and all that was asked and answered."),
    },
    "Decisions about a job": {
        "cancel": ("cancel:cancel", "Stop jobs everywhere; what they have done stays."),
        "approve": ("approve:approve", "Let a job go on that waits for an approval."),
        "reject": ("approve:reject", "Have what a job waits for an approval of made again, with your note as feedback."),
        "retry": ("retry:retry", "Continue a job: repeat failed steps, fill gaps, or go on with a run."),
        "delete": ("delete:delete", "Remove an ended job and everything of it."),
    },
    "Processes": {
        "up": (
            "up:up",
            "Start the whole system on this machine: Redis, supervisor, workers. Ctrl-C drains and stops it; jobs go on at the next start.",
        ),
        "supervisor": ("processes:supervisor", "Start a supervisor process: plans, reviews, answers, and looks after lost work."),
        "worker": ("processes:worker", "Start a worker process for one or more specialists."),
    },
    "Quotes and evaluation": {
        "quote": ("quote:quote", "Say what a job will likely cost and take, before anything but its plan is paid."),
        "eval": ("eval:evaluate", "Do a golden set of requests in several ways, and say how good each is and what it takes."),
        "compare": ("compare:compare", "Do one request in two ways, and say which to take."),
    },
    "Operations": {
        "specialists": ("specialists:specialists", "Who is served by live workers, how busy they are, and what tools each may use."),
        "doctor": (
            "doctor:doctor",
            "Check broker, persistence, supervisors, workers, dead letters and model access; say what is wrong and how to fix it.",
        ),
        "stats": ("stats:stats", "What the fleet has to do: slots, queues, quota, spending."),
        "top": ("top:top", "The fleet, live: roles, slots, queues, what is at work, spending, quota, dead letters."),
        "pause": ("pause:pause", "Stop a specialist or a role on all machines."),
        "unpause": ("pause:unpause", "Start a paused specialist or role again."),
        "dead": (
            "dead:dead",
            "Messages that no process could take, with the reason: list them, show one as a whole, try one again, drop one or all.",
        ),
        "chaos": ("chaos:chaos", "Run jobs while processes are killed, and say what was kept of the promises."),
    },
})  # fmt: skip
"""In the order of `handoff --help`."""
STARTS_PROCESSES = frozenset({"run", "up", "supervisor", "worker", "chaos"})
"""Commands that need all packages of a worker. The others work with those of the client."""


class OneCommand(TyperCommand):
    """A command that names itself in every error about its command line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Typer leaves its context out of some errors: it is added here."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if getattr(error, "ctx", ctx) is None:
                error.ctx = ctx  # type: ignore[attr-defined]
            raise


@cache
def load_command(name: str) -> Any:
    """Return the command itself, with all of its options and its help.

    Raises:
        UserError: the command starts processes, and a package that they need is not installed.
    """
    if name in STARTS_PROCESSES:
        check_extra("worker", f"handoff {name}")
    module, _, function = ENTRIES[name].place.partition(":")
    alone = typer.Typer(
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings=HELP_OPTIONS,
    )
    alone.command(name, cls=OneCommand)(getattr(import_module(f"{__package__}.{module}"), function))
    return typer.main.get_command(alone)


class Commands(TyperGroup):
    """All of them, each as a line until it is typed."""

    def __init__(self, **given: Any) -> None:
        lines = {
            name: TyperCommand(name, help=one.line, rich_help_panel=one.panel)
            for name, one in ENTRIES.items()
        }
        super().__init__(**{**given, "commands": lines})

    def resolve_command(self, *given: Any) -> Any:
        """Return the name, the command and the arguments for what was typed.

        Raises:
            UsageError: there is no such command. The message names the closest command.
        """
        context, arguments = given
        typed = arguments[0]
        if typed not in self.commands and not typed.startswith("-"):
            close = close_names(typed, self.commands)
            hint = f": did you mean {close[0]}?" if close else ""
            context.fail(f"there is no command {typed[:40]!r}{hint}")
        name, command, rest = super().resolve_command(*given)
        return name, command and load_command(command.name), rest
