"""A Markdown file with YAML front matter, taken apart with line numbers: an error must point
at a line.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from handoff_queue.shared.text.yaml_loader import PlainLoader, YamlRefused
from handoff_queue.shared.types.errors import InvalidSpecialist

FENCE = "---"
MAX_FILE_BYTES = 200_000
"""Three times the longest instructions that a spec can hold: more is not a specialist."""


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """Fields and body of one file. Lines count from 1, in the file."""

    fields: dict[str, Any]
    lines: dict[str, int]
    """Line number of each field."""
    body: str
    body_line: int

    def line_of(self, field: str) -> int:
        """Return the line of a field, or the first field's line for a key that YAML changed (`yes`
        is true).
        """
        return self.lines.get(field, 2)


def parse(path: Path) -> FrontMatter:
    """Take the file apart.

    Raises:
        InvalidSpecialist: unreadable, no front matter, broken YAML, or a field twice.
    """
    lines = _text_of(path).split("\n")
    if not lines or lines[0].rstrip() != FENCE:
        raise InvalidSpecialist(
            f"{path}:1: no front matter; begin the file with a line `---`, the fields, and another `---`"
        )
    end = None
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() == FENCE:
            end = number
            break
    if end is None:
        raise InvalidSpecialist(
            f"{path}:1: the front matter does not end; close it with a line `---`"
        )
    fields, at = _fields_of(path, "\n".join(lines[1:end]))
    return FrontMatter(fields, at, "\n".join(lines[end + 1 :]).strip(), end + 2)


def _text_of(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():  # a pipe would never end
            raise InvalidSpecialist(f"{path}: is no regular file; take it out of the folder")
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
    try:
        root, fields = _composed(text)
    except YamlRefused as error:
        raise InvalidSpecialist(f"{path}:{_line(error)}: {error.problem}; {error.mend}") from error
    except yaml.MarkedYAMLError as error:
        hint = "put values that hold `: ` or `#` into quotes"
        raise InvalidSpecialist(
            f"{path}:{_line(error)}: the front matter is not YAML ({error.problem}); {hint}"
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = str(error).partition("\n")[0] or type(error).__name__
        raise InvalidSpecialist(
            f"{path}:2: the front matter is not YAML ({problem}); fix or remove the named part"
        ) from error
    if not isinstance(root, yaml.MappingNode):
        raise InvalidSpecialist(
            f"{path}:2: the front matter holds no fields; write `name: ...`, one field a line"
        )
    at = {str(key.value): key.start_mark.line + 2 for key, _ in root.value}
    return {str(key): value for key, value in fields.items()}, at


def _composed(text: str) -> tuple[yaml.Node | None, Any]:
    """Return the tree and its value."""
    loader: Any = PlainLoader(text)
    try:
        root = loader.get_single_node()
        return root, None if root is None else loader.construct_document(root)
    finally:
        loader.dispose()


def _line(error: yaml.MarkedYAMLError) -> int:
    """Return the line in the file. The front matter begins in its second line."""
    if error.problem_mark:
        return error.problem_mark.line + 2
    return 1
