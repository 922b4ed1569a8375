"""Reading of users' files up to a size, and of YAML with the line of each value.

The functions read the nodes of the YAML tree, so that a value is the text that the user typed.
Only `build_value` and `parse_boolean` convert it to numbers and booleans.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml

from handoff_queue.shared.text.unicode_text import has_lone_surrogate
from handoff_queue.shared.text.yaml_reader import YamlFault, get_line, parse_tree
from handoff_queue.shared.types.errors import UserError

_NULL = "tag:yaml.org,2002:null"
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def convert_path(path: object) -> Path:
    """Return the path that a program gave, as a `Path` or as a text.

    Raises:
        UserError: the value is neither, or no file can have this name.
    """
    if not isinstance(path, str | Path):
        raise UserError(f"the file must be a pathlib.Path or a text, not {type(path).__name__}")
    try:
        has_null = b"\0" in os.fsencode(path)
    except UnicodeEncodeError:
        has_null = True
    if has_null:
        raise UserError(f"no file can be called {str(path)!r:.80}: correct its path")
    return Path(path)


def read_bounded(path: Path, limit: int, advice: str) -> bytes:
    """Return the content of a file.

    Args:
        limit: most bytes of the file.
        advice: advice for a larger file.

    Raises:
        UserError: the file is missing, unreadable, too large, or not a regular file. A pipe would
            never end.
    """
    try:
        if path.exists() and not path.is_file():
            raise UserError(f"{path} is not a regular file; name a file")
        with path.open("rb") as stream:
            data = stream.read(limit + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        else:
            reason = str(error)
        raise UserError(
            f"{str(path)!r:.200} cannot be read ({reason}); check the path and its permissions"
        ) from error
    if len(data) > limit:
        raise UserError(f"{path} is larger than {limit:,} bytes; {advice}")
    return data


def read_tree(path: Path, limit: int, advice: str, such_as: str) -> yaml.Node:
    """Return the tree of a file with one document.

    Args:
        limit: most bytes of the file.
        advice: advice for a larger file.
        such_as: sample content, for the message about an empty file.

    Raises:
        UserError: as `read_bounded`; or the file is empty, not UTF-8, or not plain YAML. The
            message names the line of a fault in YAML.
    """
    try:
        text = read_bounded(path, limit, advice).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from error
    return parse_document(path, text, such_as)


def parse_document(place: Path | str, text: str, such_as: str) -> yaml.Node:
    """Return the tree of a text with one document.

    Args:
        place: name of the text in errors, such as the path of its file.
        such_as: sample content, for the message about an empty text.

    Raises:
        UserError: the text is empty or not plain YAML. The message names the line of a fault.
    """
    try:
        root = parse_tree(text)
    except YamlFault as error:
        raise UserError(f"{place}:{error.line}: {error}") from error
    if root is None:
        raise UserError(f"{place}: is empty; write {such_as}")
    return root


def get_fields(where: str, node: yaml.Node) -> dict[str, yaml.Node]:
    """Return the values of a mapping by key, without keys that have no value (`key:`).

    Args:
        where: place of the node, for the message.

    Raises:
        UserError: the node is not a mapping, or a key is a list or a mapping.
    """
    if not isinstance(node, yaml.MappingNode):
        raise UserError(f"{where}: must hold fields; write `key: value`, one a line")
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise UserError(
                f"{where}: a key in line {get_line(key)} is not a word; write `key: value`"
            )
    return {key.value: value for key, value in node.value if value.tag != _NULL}


def get_text(where: str, node: yaml.Node) -> str:
    """Return a text without outer blanks. Numbers, dates and booleans are returned as typed.

    Raises:
        UserError: the value is a list or a mapping, or has a lone surrogate.
    """
    if not isinstance(node, yaml.ScalarNode):
        raise UserError(f"{where} must be text; write it in one line, or below a `|`")
    text: str = node.value.strip()
    if has_lone_surrogate(text):
        raise UserError(
            f"{where} holds half a character (a lone surrogate); write the character itself"
        )
    return text


def get_texts(where: str, node: yaml.Node) -> tuple[str, ...]:
    """Return the texts of a list. A single text counts as a list with one item.

    Raises:
        UserError: the node is neither a text nor a list of texts.
    """
    if isinstance(node, yaml.SequenceNode):
        texts = [get_text(where, each) for each in node.value]
        return tuple(texts)
    return (get_text(where, node),)


def parse_boolean(where: str, node: yaml.Node) -> bool:
    """Return a boolean: true, yes or on; false, no or off.

    Raises:
        UserError: the value is something else.
    """
    value_text = "a list or a mapping"
    truth = None
    if isinstance(node, yaml.ScalarNode):
        value_text = f"{node.value!r:.40}"
        truth = _BOOLEANS.get(node.value.lower())
    if truth is None:
        raise UserError(f"{where} must be true or false, not {value_text}")
    return truth


def build_value(where: str, node: yaml.Node) -> Any:
    """Return the value of a tree in the types of JSON. Dates become strings.

    Raises:
        UserError: a value looks like a date or a number but is invalid.
    """
    try:
        value = yaml.constructor.SafeConstructor().construct_document(node)
        return json.loads(json.dumps(value, default=str, skipkeys=True))
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(
            f"{where} has an invalid value ({' '.join(str(error).split()):.100}); put it into"
            " quotes"
        ) from error
