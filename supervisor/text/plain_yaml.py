"""Bounded files of users as text, and YAML with the line of each value.

The nodes of the tree are read directly, so that a value is the typed text; only `value_of` converts
it to numbers and booleans.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from handoff_queue.shared.text.yaml_loader import PlainLoader, YamlRefused
from handoff_queue.shared.types.characters import has_half_a_character
from handoff_queue.shared.types.errors import UserError


def read_bounded(path: Path, most: int, mend: str) -> bytes:
    """Return the content.

    Args:
        mend: advice for a file of more than `most` bytes.

    Raises:
        UserError: missing, not a regular file (a pipe would never end), unreadable, or too large.
    """
    try:
        if path.exists() and not path.is_file():
            raise UserError(f"{path} is not a regular file; name a file")
        with path.open("rb") as stream:
            data = stream.read(most + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        else:
            reason = str(error)
        raise UserError(
            f"{str(path)!r:.200} cannot be read ({reason}); check the path and its permissions"
        ) from error
    if len(data) > most:
        raise UserError(f"{path} is larger than {most:,} bytes; {mend}")
    return data


_NULL = "tag:yaml.org,2002:null"
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class _Loader(PlainLoader):
    """Refuses anchors and tags, too."""

    def refused(self, event: Any) -> str | None:
        if event.anchor is not None:
            return f"anchors and aliases (&{event.anchor}, *{event.anchor}) are not supported"
        if tag := getattr(event, "tag", None):
            return f"tags ({tag}) are not supported"
        return None


def tree_in(path: Path, most: int, mend: str, such_as: str) -> yaml.Node:
    """Return the tree of a file with one document.

    Args:
        mend: advice for a file of more than `most` bytes.
        such_as: sample content for an empty file.

    Raises:
        UserError: the fault with file, line and correction.
    """
    try:
        text = read_bounded(path, most, mend).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from error
    root = _composed(path, text)
    if root is None:
        raise UserError(f"{path}: is empty; write {such_as}")
    return root


def _composed(path: Path, text: str) -> yaml.Node | None:
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_node()
        finally:
            loader.dispose()
    except YamlRefused as error:
        raise UserError(f"{path}:{error.line}: {error.problem}; {error.mend}") from error
    except yaml.MarkedYAMLError as error:
        hint = "put values that hold `: ` or `#` into quotes, or below a `|`"
        raise UserError(f"{path}:{_line(error)}: is not YAML ({error.problem}); {hint}") from error
    except yaml.YAMLError as error:
        raise UserError(
            f"{path}: is not YAML ({str(error).partition(chr(10))[0]}); remove the named part"
        ) from error
    except RecursionError as error:
        raise UserError(f"{path}: is nested too deeply; write it flatter") from error


def fields_of(where: str, node: yaml.Node) -> dict[str, yaml.Node]:
    """Return a mapping by its keys as they were typed, without keys that have no value (`key:`).

    Args:
        where: beginning of the error.

    Raises:
        UserError: not a mapping, or a key that is not a word.
    """
    if not isinstance(node, yaml.MappingNode):
        raise UserError(f"{where}: must hold fields; write `key: value`, one a line")
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise UserError(f"{where}: a key in line {line_of(key)} is no word; write `key: value`")
    return {key.value: value for key, value in node.value if value.tag != _NULL}


def text_of(where: str, node: yaml.Node) -> str:
    """Return a text without space around it; numbers, dates and booleans are returned as typed.

    Raises:
        UserError: the value is a list or a mapping, or has a lone surrogate.
    """
    if not isinstance(node, yaml.ScalarNode):
        raise UserError(f"{where} must be text; write it in one line, or below a `|`")
    text: str = node.value.strip()
    if has_half_a_character(text):
        raise UserError(
            f"{where} holds half a character (a lone surrogate); write the character itself"
        )
    return text


def texts_of(where: str, node: yaml.Node) -> tuple[str, ...]:
    """Return a list of texts; a single text is a list with one item.

    Raises:
        UserError: something else.
    """
    if isinstance(node, yaml.SequenceNode):
        texts: list[str] = []
        for each in node.value:
            texts.append(text_of(where, each))
        return tuple(texts)
    return (text_of(where, node),)


def truth_of(where: str, node: yaml.Node) -> bool:
    """Return a boolean.

    Raises:
        UserError: neither true nor false.
    """
    truth = None
    if isinstance(node, yaml.ScalarNode):
        truth = _BOOLEANS.get(node.value.lower())
    if truth is None:
        raise UserError(f"{where} must be true or false")
    return truth


def value_of(where: str, node: yaml.Node) -> Any:
    """Return the value of a tree in JSON's types, with numbers and booleans.

    Raises:
        UserError: text that looks like a date or a number but is not valid.
    """
    try:
        value = yaml.constructor.SafeConstructor().construct_document(node)
        return json.loads(json.dumps(value, default=str, skipkeys=True))
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(
            f"{where} has a value that is none ({' '.join(str(error).split()):.100}); put it into quotes"
        ) from error


def line_at(root: yaml.Node, place: Sequence[str]) -> int:
    """Return the line of the value at a place, or of the nearest value.

    Args:
        place: keys, and numbers from 0, from the outside inwards.
    """
    line, node = line_of(root), root
    for name in place:
        if isinstance(node, yaml.MappingNode) and (
            pairs := [pair for pair in node.value if getattr(pair[0], "value", None) == name]
        ):
            line, node = line_of(pairs[0][0]), pairs[0][1]
        elif (
            isinstance(node, yaml.SequenceNode) and name.isdecimal() and int(name) < len(node.value)
        ):
            node = node.value[int(name)]
            line = line_of(node)
        else:
            break
    return line


def line_of(node: yaml.Node) -> int:
    """Return the line, counted from 1."""
    return int(node.start_mark.line) + 1


def _line(error: yaml.MarkedYAMLError) -> int:
    if error.problem_mark:
        return error.problem_mark.line + 1
    return 1
