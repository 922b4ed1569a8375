"""Files that say what an answer is measured by: gates, which code checks, and rubrics, which a reviewer scores. Small YAML, taken whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from handoff_queue.shared.types.errors import MalformedMessage, UserError
from handoff_queue.shared.types.rubric import DEFAULT_RUBRIC, Rubric
from handoff_queue.supervisor.gates.fields_file import fields_in
from handoff_queue.supervisor.gates.gates_file import GateSet, gates_in_file


def gates_of(file: Path | None) -> GateSet | None:
    """Raises: UserError: not there, too large, no plain YAML, gates that nothing could pass, or facts that cannot be read."""
    return None if file is None else gates_in_file(file)


def rubric_of(file: Path | None) -> Rubric | None:
    """Raises: UserError: not there, too large, no plain YAML, or no criteria, one a line."""
    if file is None:
        return None
    said = fields_in(file, DEFAULT_RUBRIC.names)
    try:
        return rubric_in(said.values)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error


def rubric_in(fields: dict[str, Any]) -> Rubric:
    """Raises: UserError: which criterion cannot be used, and why."""
    try:
        return Rubric.of_fields(fields)
    except MalformedMessage as error:
        raise UserError(str(error).removeprefix("Rubric: ")) from error
