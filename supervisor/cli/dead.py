"""`handoff dead`: list, show, requeue and drop dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, assert_never

import typer

from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.cli.connection import connect_to_broker
from handoff_queue.supervisor.cli.display.terminal import (
    format_clock,
    get_stdout,
    print_message,
    shorten,
    write_as_json,
    write_line,
)
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.cli.options import AsJson
from handoff_queue.supervisor.client.json_forms import convert_letter

if TYPE_CHECKING:
    from handoff_queue.shared.store.dead_letters import DeadLetter


LISTED = 20
"""Dead letters that `list` prints without `-n`."""


class DeadLetterAction(StrEnum):
    """Actions of `handoff dead`."""

    LIST = "list"
    SHOW = "show"
    REQUEUE = "requeue"
    DROP = "drop"


def dead(
    action: Annotated[
        DeadLetterAction, typer.Argument(metavar="ACTION", help="What to do.")
    ] = DeadLetterAction.LIST,
    letter: Annotated[
        str | None, typer.Argument(metavar="ID", help="The id of a dead letter, from `list`.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Drop all dead letters.")] = False,
    as_json: AsJson = False,
    count: Annotated[
        int | None,
        typer.Option(
            "-n",
            metavar="N",
            min=1,
            max=10_000,
            show_default=str(LISTED),
            help="Number of letters to list.",
        ),
    ] = None,
) -> int:
    """List, show, requeue or drop dead letters.

    A dead letter is a message that no process could read or handle.

    handoff dead show 1f0c2a9e

    handoff dead requeue 1f0c2a9e

    handoff dead drop --all
    """
    _check(action, letter, everything=everything)
    if count is not None and action is not DeadLetterAction.LIST:
        raise UserError("only `handoff dead list` takes -n: leave it out")
    if as_json and action in (DeadLetterAction.REQUEUE, DeadLetterAction.DROP):
        raise UserError("only `handoff dead list` and `show` take --json: leave it out")
    jobs = connect_to_broker()
    letters = jobs.store.dead_letters
    match action:
        case DeadLetterAction.LIST:
            _print_list(letters.list_newest(count or LISTED), as_json=as_json)
        case DeadLetterAction.SHOW:
            _show(letters.find(str(letter)), as_json=as_json)
        case DeadLetterAction.REQUEUE:
            dead_letter = letters.find(str(letter))
            jobs.requeue_dead(dead_letter)
            write_line(f"letter {dead_letter.id} is back in its queue")
        case DeadLetterAction.DROP:
            if letter is None:
                dropped_count = jobs.drop_all_dead()
            else:
                dropped_count = int(jobs.drop_dead(letters.find(letter)))
            write_line(f"{format_count(dropped_count, 'dead letter')} dropped")
        case _:
            assert_never(action)
    return OK


def _check(action: DeadLetterAction, letter: str | None, *, everything: bool) -> None:
    """Refuse an action without its letter, and a letter or `--all` that the action does not take.

    Raises:
        UserError: the first fault.
    """
    problem = None
    if everything and action is not DeadLetterAction.DROP:
        problem = "only `handoff dead drop` takes --all: leave it out"
    elif everything and letter is not None:
        problem = "name one dead letter, or use --all, but not both"
    elif action is DeadLetterAction.LIST and letter is not None:
        problem = "`handoff dead list` takes no ID: use `handoff dead show ID` for one letter"
    elif action is DeadLetterAction.DROP and letter is None and not everything:
        problem = "`handoff dead drop` needs an ID (see `handoff dead`) or --all"
    elif action in (DeadLetterAction.SHOW, DeadLetterAction.REQUEUE) and letter is None:
        problem = f"`handoff dead {action}` needs an ID (see `handoff dead`)"
    if problem:
        raise UserError(problem)


def _print_list(letters: Sequence[DeadLetter], *, as_json: bool) -> None:
    if as_json:
        write_as_json([convert_letter(letter) for letter in letters])
        return
    for letter in letters:
        write_line(
            f"{letter.id}  {format_clock(letter.at)}  {shorten(letter.queue, 60)}:"
            f" {shorten(letter.reason, 200)}"
        )
        write_line(f"    {shorten(letter.body, 400)}")
    if not letters:
        print_message("there are no dead letters")


def _show(letter: DeadLetter, *, as_json: bool) -> None:
    from handoff_queue.supervisor.cli.display.job_report import format_readable

    if as_json:
        write_as_json(convert_letter(letter))
    else:
        write_line(format_readable(convert_letter(letter), get_stdout().width).rstrip())
