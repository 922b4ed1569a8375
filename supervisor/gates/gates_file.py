"""Gates as they are written, in a file, a workflow or a line of jobs, with the facts that they
name. Taken whole or refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.facts import FactTable
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.message import each_problem
from handoff_queue.supervisor.gates.fields_file import fields_in

FACTS = "facts"
"""The one field that is not a gate itself: it names a table."""
_MOST_TOLD = 5
"""Problems, in one line."""


@dataclass(frozen=True, slots=True)
class GateSet:
    """All checks of an answer by code."""

    gates: Gates
    facts: FactTable | None = None


def gates_in_file(file: Path) -> GateSet:
    """Read gates from a file.

    Raises:
        UserError: the file is missing, too large, or not plain YAML; no answer could pass the
            gates; or
            the facts cannot be read.
    """
    content = fields_in(file, (*Gates.model_fields, FACTS))
    return gates_in(content.values, content.where, file.parent)


def gates_in(
    fields: Mapping[str, Any], where: Callable[[Sequence[str]], str], folder: Path
) -> GateSet:
    """Return the gates in the fields of a file.

    Args:
        where: returns the beginning of an error message for a place among the fields.
        folder: folder that paths of tables are relative to.

    Raises:
        UserError: a field is invalid; the message names its place and the reason.
    """
    from handoff_queue.supervisor.gates.facts import FactsFile, read_facts

    place: tuple[str, ...] = ()
    kind: type[BaseModel] = Gates
    try:
        gates = Gates.model_validate_json(
            json.dumps({name: value for name, value in fields.items() if name != FACTS})
        )
        place, kind = (FACTS,), FactsFile
        written = None
        if FACTS in fields:
            written = FactsFile.model_validate_json(json.dumps(fields[FACTS]))
    except ValidationError as error:
        raise UserError(
            _told(
                where,
                [((*place, *inside), problem) for inside, problem in each_problem(error, kind)],
            )
        ) from error
    return GateSet(
        gates,
        read_facts(folder / written.file, written.columns, written.table) if written else None,
    )


def _told(
    where: Callable[[Sequence[str]], str], problems: Sequence[tuple[Sequence[str], str]]
) -> str:
    lines: list[str] = []
    for place, problem in problems:
        lines.append(f"{where(place)}: {'.'.join(place)}{': ' if place else ''}{problem}")
    return "; ".join(
        [
            *lines[:_MOST_TOLD],
            *([f"and {len(lines) - _MOST_TOLD} more"] if len(lines) > _MOST_TOLD else []),
        ]
    )
