"""Small YAML files of fields, one a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.text.plain_yaml import line_at, tree_in, value_of

MOST_BYTES = 50_000
"""Most bytes of such a file. It usually has a few dozen lines."""
_TEXT = "tag:yaml.org,2002:str"


@dataclass(frozen=True, slots=True)
class FieldsFile:
    """Content of a file."""

    file: Path
    root: yaml.MappingNode
    values: dict[str, Any]
    """The values by field, in the types of JSON: a date is a text."""

    def where(self, place: Sequence[str]) -> str:
        """Return `FILE:LINE` of the value at a place.

        `place`: keys, and positions in lists from 0, from the outside inwards.
        """
        return f"{self.file}:{line_at(self.root, place)}"


def fields_in(file: Path, such_as: Sequence[str]) -> FieldsFile:
    """Read the fields of a file. `such_as`: the names of the fields, for errors.

    Raises:
        UserError: the file is missing, too large, or not plain YAML with fields. The message names
            the file and the line.
    """
    fields = f"lines of `field: value`, with the fields {', '.join(such_as)}"
    root = tree_in(
        file, MOST_BYTES, "an answer is compared with every line: keep the important lines", fields
    )
    if not isinstance(root, yaml.MappingNode):
        raise UserError(f"{file}:{line_at(root, ())}: must be {fields}")
    values: dict[str, Any] = {}
    for key, node in root.value:
        where = f"{file}:{line_at(key, ())}: "
        if key.tag != _TEXT:
            raise UserError(f"{where}must be {fields}")
        values[key.value] = value_of(f"{where}{key.value:.80}", node)
    return FieldsFile(file, root, values)
