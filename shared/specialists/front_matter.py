"""Reader of a Markdown file with YAML front matter. It keeps line numbers, so that errors can
name a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from handoff_queue.shared.text.yaml_reader import YamlFault, compose
from handoff_queue.shared.types.errors import InvalidSpecialist

FENCE = "---"
MAX_FILE_BYTES = 200_000
"""Bytes of the largest file that is read: about three times the longest instructions of a spec."""


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """Fields and body of one file. Line numbers are those of the file, from 1."""

    fields: dict[str, Any]
    lines: dict[str, int]
    """Line number of each field."""
    body: str
    """Text below the front matter, without white space around it."""
    body_line: int
    """Line number of the first line below the front matter."""

    def line_of(self, field: str) -> int:
        """Return the line of a field. For a key that YAML converts (`yes` becomes true),
        return the line of the first field.
        """
        return self.lines.get(field, 2)


def parse(path: Path) -> FrontMatter:
    """Return the fields and the body of a file.

    Raises:
        InvalidSpecialist: the file cannot be read, has no front matter, has invalid YAML, or has a
            field twice.
    """
    lines = _text_of(path).split("\n")
    if not lines or lines[0].rstrip() != FENCE:
        raise InvalidSpecialist(
            f"{path}:1: no front matter; begin the file with a line `---`, the fields, and another `---`"
        )
    end = _end_of(lines)
    if end is None:
        raise InvalidSpecialist(
            f"{path}:1: the front matter does not end; close it with a line `---`"
        )
    fields, line_numbers = _fields_of(path, "\n".join(lines[1:end]))
    return FrontMatter(fields, line_numbers, "\n".join(lines[end + 1 :]).strip(), end + 2)


def _end_of(lines: Sequence[str]) -> int | None:
    """Return the index of the line that closes the front matter, or None."""
    for index, line in enumerate(lines[1:], start=1):
        if line.rstrip() == FENCE:
            return index
    return None


def _text_of(path: Path) -> str:
    """Return the text of a file.

    Raises:
        InvalidSpecialist: the file cannot be read, is too large, or is not UTF-8.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would never end
            raise InvalidSpecialist(f"{path}: is not a regular file; take it out of the folder")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidSpecialist(
                f"{path}:1: larger than {MAX_FILE_BYTES:,} bytes; shorten the instructions"
            )
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidSpecialist(
            f"{path}: cannot be read ({error.strerror}); check the path and its permissions"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidSpecialist(
            f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from error


def _fields_of(path: Path, text: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the fields of a front matter, and the line number of each field in the file.

    Raises:
        InvalidSpecialist: the text is not YAML, or has no fields.
    """
    try:
        root = compose(text)
    except YamlFault as error:
        raise InvalidSpecialist(f"{path}:{error.line + 1}: {error}") from error
    if not isinstance(root, yaml.MappingNode):
        raise InvalidSpecialist(
            f"{path}:2: the front matter holds no fields; write `name: ...`, one field a line"
        )
    try:
        values = yaml.constructor.SafeConstructor().construct_document(root)
    except (yaml.YAMLError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise InvalidSpecialist(
            f"{path}:2: the front matter has an invalid value ({problem:.100}); put it into quotes"
        ) from error
    line_numbers: dict[str, int] = {}
    for key, _ in root.value:
        line_numbers[str(key.value)] = key.start_mark.line + 2
    fields: dict[str, Any] = {}
    for name, value in values.items():
        fields[str(name)] = value
    return fields, line_numbers
