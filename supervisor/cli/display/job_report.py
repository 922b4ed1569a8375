"""`handoff show`: a job taken apart, so that a person sees what each agent was told and what it said."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import yaml

from handoff_queue.supervisor.cli.display.answer import answer_text, cut_remark, sources_of, took
from handoff_queue.supervisor.cli.display.terminal import stdout, write_line
from handoff_queue.supervisor.text.sanitizing import plain

if TYPE_CHECKING:
    from handoff_queue.shared.store.dead_letters import DeadLetter
    from handoff_queue.supervisor.client.report import JobResult

_MOST_COLUMNS = 120
_LAST_WORD_CHARS = 12
"""YAML folds after the word that passes the width."""


_SET_BY = {
    "job": "set by the job",
    "workflow": "set by its workflow",
    "settings": "set by HANDOFF_GATES",
    None: "set by the job",
}


class _Readable(yaml.SafeDumper):
    """YAML as people write it: long texts as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    clean = "\n".join(line.rstrip() for line in plain(text).splitlines())
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", clean, style="|" if "\n" in clean else None
    )


_Readable.add_representer(str, _text)


def readable(value: Any, columns: int) -> str:
    """Any JSON value, for the eye. `columns`: of the screen."""
    width = min(_MOST_COLUMNS, columns) - _LAST_WORD_CHARS
    return yaml.dump(value, Dumper=_Readable, sort_keys=False, allow_unicode=True, width=width)


def print_everything(result: JobResult, letters: Sequence[DeadLetter]) -> None:
    """To stdout, in the order in which it happened."""
    shown = partial(readable, columns=stdout().width)
    outcomes = {one["handoff_id"]: one for one in result.results}
    whose = f"mode {result.mode.value}, tenant {plain(result.tenant)}, {result.priority.value}"
    about = (whose, took(result), cut_remark(result), *result.waits_for)
    section(f"{result.job_id}  {result.status.value}", "\n".join(line for line in about if line))
    if result.route:
        section("route", shown(result.route))
    if result.plan:
        section("plan", shown(result.plan))
    for handoff in result.handoffs:
        print_handoff(handoff, outcomes.get(handoff["handoff_id"]))
    if result.gates:
        section(f"gates, {_SET_BY[result.gates['from']]}", shown(result.gates))
    for conflict in result.conflicts:
        section(
            f"conflict {conflict['id']}, {'settled' if conflict['stands'] else 'disputed'}",
            shown(conflict),
        )
    for verdict in result.verdicts:
        section(f"review, round {verdict['round']}", shown(verdict))
    for asked in result.approvals:
        undecided = "never decided" if result.status.ended else "it waits"
        section(f"approval of the {asked['what']}: {asked['decision'] or undecided}", shown(asked))
    for letter in letters:
        section("dead letter", shown(letter.model_dump()))
    if result.notes:
        section("notes", shown(list(result.notes)))
    if result.answer is not None:
        section(
            "answer",
            "\n\n".join(part for part in (answer_text(result), sources_of(result)) if part),
        )


def print_handoff(handoff: dict[str, Any], outcome: dict[str, Any] | None) -> None:
    """In full, with its result."""
    name, shown = handoff["handoff_id"], partial(readable, columns=stdout().width)
    section(
        f"handoff {name} to {handoff['assigned_to']}, {handoff.get('state') or 'issued'}",
        shown(handoff),
    )
    section(f"result of {name}", shown(outcome) if outcome is not None else "none yet")


def section(title: str, body: str) -> None:
    """One part of what is shown."""
    write_line(f"=== {title}")
    if body:
        write_line(body.rstrip())
    write_line()
