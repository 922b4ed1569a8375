"""Parse gates from a file, a workflow or a line of a file of jobs, and read the table of facts
that they name.

The module also reads other small YAML files of fields, one a line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from handoff_queue.shared.text.unicode_text import replace_unprintable
from handoff_queue.shared.text.yaml_reader import find_line
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.gates import FactTable, Gates
from handoff_queue.shared.types.message import iterate_problems
from handoff_queue.supervisor.text.plain_yaml import build_value, read_tree

MAX_BYTES = 50_000
"""Most bytes of such a file. It usually has a few dozen lines."""
_TEXT = "tag:yaml.org,2002:str"


@dataclass(frozen=True, slots=True)
class FieldsFile:
    """Content of a file."""

    file: Path
    root: yaml.MappingNode
    values: dict[str, Any]
    """The values by field, in the types of JSON: a date is a text."""

    def describe_place(self, place: Sequence[str]) -> str:
        """Return `FILE:LINE` of the value at a place.

        Args:
            place: keys, and positions in lists from 0, from the outside inwards.
        """
        return f"{self.file}:{find_line(self.root, place)}"


def read_fields(file: Path, such_as: Sequence[str]) -> FieldsFile:
    """Read the fields of a file.

    Args:
        such_as: the names of the fields, for errors.

    Raises:
        UserError: the file is missing, too large, or not plain YAML with fields. The message names
            the file and the line.
    """
    fields = f"lines of `field: value`, with the fields {', '.join(such_as)}"
    root = read_tree(
        file, MAX_BYTES, "an answer is compared with every line: keep the important lines", fields
    )
    if not isinstance(root, yaml.MappingNode):
        raise UserError(f"{file}:{find_line(root, ())}: must be {fields}")
    values: dict[str, Any] = {}
    for key, node in root.value:
        where = f"{file}:{find_line(key, ())}: "
        if key.tag != _TEXT:
            raise UserError(f"{where}must be {fields}")
        values[key.value] = build_value(f"{where}{key.value:.80}", node)
    return FieldsFile(file, root, values)


FACTS = "facts"
"""The field that names a table of facts. All other fields are gates."""
_MAX_PROBLEMS = 5
"""Most problems in one error."""


@dataclass(frozen=True, slots=True)
class GateSet:
    """All checks of an answer by code."""

    gates: Gates
    facts: FactTable | None = None


def read_gates(file: Path) -> GateSet:
    """Read gates from a file.

    Raises:
        UserError: the file is missing, too large, or not plain YAML; a field is not valid; or the
            facts cannot be read.
    """
    content = read_fields(file, (*Gates.model_fields, FACTS))
    return build_gates(content.values, content.describe_place, file.parent)


def build_gates(
    fields: Mapping[str, Any], where: Callable[[Sequence[str]], str], folder: Path | None
) -> GateSet:
    """Return the gates in the fields of a file.

    Args:
        where: returns the beginning of an error message for a place among the fields.
        folder: folder that paths of tables are relative to. None: no file may be named, because
            the fields come over the network.

    Raises:
        UserError: a field is not valid, with its place and the reason; or the facts cannot be read.
    """
    from handoff_queue.supervisor.gates.facts import FactsFile, read_facts

    gate_fields = dict(fields)
    gate_fields.pop(FACTS, None)
    try:
        gates = Gates.model_validate_json(json.dumps(gate_fields))
    except ValidationError as error:
        raise UserError(_describe_problems(where, (), error, Gates)) from error
    if FACTS not in fields:
        return GateSet(gates)
    if folder is None:
        raise UserError(
            f"{where((FACTS,))}: facts cannot name a file here: send the facts in the request"
        )
    try:
        source = FactsFile.model_validate_json(json.dumps(fields[FACTS]))
    except ValidationError as error:
        raise UserError(_describe_problems(where, (FACTS,), error, FactsFile)) from error
    try:
        facts = read_facts(folder / source.file, source.columns, source.table)
    except UserError as error:
        raise UserError(f"{where((FACTS,))}: {error}") from error
    return GateSet(gates, facts)


def _describe_problems(
    where: Callable[[Sequence[str]], str],
    parent: tuple[str, ...],
    error: ValidationError,
    kind: type[BaseModel],
) -> str:
    """Return the problems of a value, each with its place.

    Args:
        parent: the place of the value.
    """
    lines: list[str] = []
    for inner_place, problem in iterate_problems(error, kind, shows_values=True):
        place = (*parent, *inner_place)
        name = ""
        if place:
            name = f"{replace_unprintable('.'.join(place))}: "
        lines.append(f"{where(place)}: {name}{problem}")
    more = len(lines) - _MAX_PROBLEMS
    lines = lines[:_MAX_PROBLEMS]
    if more > 0:
        lines.append(f"and {more} more")
    return "; ".join(lines)
