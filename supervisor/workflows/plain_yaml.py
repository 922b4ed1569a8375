"""YAML as people mean it: mappings, lists and texts, with their lines. No aliases, no tags, no key twice; `no` is a text where one is due.

Nothing is constructed: the tree of nodes is read as it stands, so that a value is what was typed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from shared.wire.errors import UserError
from shared.yaml_loading import PlainLoader, Refused

_NULL = "tag:yaml.org,2002:null"
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class _Loader(PlainLoader):
    """Refuses anchors and tags, too."""

    def refused(self, event: Any) -> str | None:
        if event.anchor is not None:
            return f"anchors and aliases (&{event.anchor}, *{event.anchor}) are not supported"
        return f"tags ({tag}) are not supported" if (tag := getattr(event, "tag", None)) else None


def compose(path: Path, text: str) -> yaml.Node:
    """The tree of one document.

    Raises:
        UserError: file, line, what is wrong, how to mend it.
    """
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
    except Refused as error:
        raise UserError(f"{path}:{_line(error)}: {error.problem}; write the value out") from error
    except yaml.MarkedYAMLError as error:
        hint = "put values that hold `: ` or `#` into quotes, or below a `|`"
        raise UserError(f"{path}:{_line(error)}: is not YAML ({error.problem}); {hint}") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path}: is not YAML ({str(error).partition(chr(10))[0]}); remove what it names") from error
    except RecursionError as error:
        raise UserError(f"{path}: is nested too deeply to be a workflow; write the steps as a flat list") from error
    if root is None:
        raise UserError(f"{path}: is empty; write `description: ...` and `steps: ...`")
    return root


def fields_of(where: str, node: yaml.Node) -> dict[str, yaml.Node]:
    """A mapping by its keys as they were typed; values that are left out (`key:`) are left out. `where` begins the error.

    Raises:
        UserError: no mapping, a key that is no word, a key twice.
    """
    if not isinstance(node, yaml.MappingNode):
        raise UserError(f"{where}: must hold fields; write `key: value`, one a line")
    found: dict[str, yaml.Node] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise UserError(f"{where}: a key in line {line_of(key)} is no word; write `key: value`")
        if key.value in found:
            raise UserError(f"{where}: {key.value!r:.80} is given twice (again in line {line_of(key)}); remove one")
        found[key.value] = value
    return {key: value for key, value in found.items() if value.tag != _NULL}


def text_of(where: str, node: yaml.Node) -> str:
    """A text, without space around it; numbers, dates and booleans are what was typed.

    Raises:
        UserError: a list or a mapping, or half a character.
    """
    if not isinstance(node, yaml.ScalarNode):
        raise UserError(f"{where} must be text; write it in one line, or below a `|`")
    text: str = node.value.strip()
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise UserError(f"{where} holds half a character (a lone surrogate); write the character itself")
    return text


def texts_of(where: str, node: yaml.Node) -> tuple[str, ...]:
    """A list of texts; one text alone is a list of one.

    Raises:
        UserError: something else.
    """
    if isinstance(node, yaml.SequenceNode):
        return tuple(text_of(where, each) for each in node.value)
    return (text_of(where, node),)


def truth_of(where: str, node: yaml.Node) -> bool:
    """Raises: UserError: neither true nor false."""
    truth = _BOOLEANS.get(node.value.lower()) if isinstance(node, yaml.ScalarNode) else None
    if truth is None:
        raise UserError(f"{where} must be true or false")
    return truth


def line_of(node: yaml.Node) -> int:
    """Counted from 1."""
    return int(node.start_mark.line) + 1


def _line(error: yaml.MarkedYAMLError) -> int:
    return error.problem_mark.line + 1 if error.problem_mark else 1
