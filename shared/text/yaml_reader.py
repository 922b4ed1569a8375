"""YAML with plain values only, as a tree of nodes with lines.

PyYAML stays. ruamel.yaml 0.19 would replace only the check for repeated keys, of 12 lines. PyYAML
is imported in 17 ms, and ruamel.yaml in 120 ms. The library ruamel.yaml needs 2.2 times the
processor time to parse the files of `workers/specialists/` and `examples/`. It reads `1.10` and
`010` as numbers, but a plan needs the typed text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml


class YamlFault(ValueError):
    """Text that is not plain YAML: `problem`, its `line` (counted from 1), and the correction
    (`advice`).
    """

    def __init__(self, problem: str, line: int, advice: str) -> None:
        super().__init__(f"{problem}; {advice}")
        self.line = line


def parse_tree(text: str) -> yaml.Node | None:
    """Return the tree of a text with one document, or None if the text is empty.

    Raises:
        YamlFault: not YAML, nested too deeply, a repeated key, an anchor, an alias or a tag.
    """
    try:
        loader = _PlainLoader(text)
        try:
            return loader.get_single_node()
        finally:
            loader.dispose()
    except YamlFault:
        raise
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = str(error.problem)
        advice = _find_advice(problem, text.split("\n")[line - 1 : line])
        raise YamlFault(f"is not YAML ({problem})", line, advice) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = str(error).partition("\n")[0]
        raise YamlFault(f"is not YAML ({problem})", line, "remove the named part") from error
    except RecursionError as error:
        raise YamlFault("is nested too deeply", 1, "write it flatter") from error
    except (ValueError, OverflowError) as error:  # PyYAML does not check `\U00110000`
        line = loader.line + 1
        raise YamlFault("has an escape of no character", line, "write a character") from error


_NO_TABS = "indent with spaces in place of tabs"
_ADVICE = {
    r"'\\t'": _NO_TABS,
    "another document": "write one document, without a line `---`",
    "unexpected end of stream": "close the quotes",
    "expected ',' or": "close the bracket, or put values that hold a bracket into quotes",
    "expected <block end>": "indent the lines of one list, or of its fields, by the same spaces",
    "could not find expected ':'": "write `key: value`",
}
"""Correction for a part of PyYAML's message."""


def _find_advice(problem: str, lines: Sequence[str]) -> str:
    """Return the correction of a text that is not YAML.

    Args:
        problem: PyYAML's message.
        lines: the faulty line; empty: the text has ended.
    """
    for line in lines:
        if "\t" in line[: len(line) - len(line.lstrip())]:
            return _NO_TABS
    for part, advice in _ADVICE.items():
        if part in problem:
            return advice
    return "put values that hold `: ` or `#` into quotes, or below a `|`"


class _PlainLoader(yaml.SafeLoader):
    """Refuses anchors, aliases, tags and repeated keys. A few lines of nested aliases expand
    to gigabytes, and YAML drops the first value of a repeated key.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        parser: Any = self
        event = parser.peek_event()
        tag = getattr(event, "tag", None)
        problem = None
        if event.anchor is not None:
            problem = f"anchors and aliases (&{event.anchor}, *{event.anchor}) are not supported"
        elif tag:
            problem = f"tags ({tag}) are not supported"
        if problem is not None:
            raise YamlFault(problem, event.start_mark.line + 1, "write the value out")
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        known: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in known:
                    problem = f"{key.value!r:.80} is given twice"
                    raise YamlFault(problem, key.start_mark.line + 1, "remove one")
                known.add(key.value)
        return node


def find_line(root: yaml.Node, place: Sequence[str]) -> int:
    """Return the line of the value at a place, or of the innermost existing part of the place.

    Args:
        place: keys of mappings and indices of lists (from 0), from the outside inwards.
    """
    line, node = get_line(root), root
    for name in place:
        mark_and_node = _find_child(node, name)
        if mark_and_node is None:
            break
        mark, node = mark_and_node
        line = get_line(mark)
    return line


def _find_child(node: yaml.Node, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the node with the line of a part of a node, and the part; None: there is none.

    Args:
        name: key of a mapping, or index of a list.
    """
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if getattr(key, "value", None) == name:
                return key, value
    if isinstance(node, yaml.SequenceNode) and name.isdecimal() and int(name) < len(node.value):
        item = node.value[int(name)]
        return item, item
    return None


def get_line(node: yaml.Node) -> int:
    """Return the line of a node, counted from 1."""
    return int(node.start_mark.line) + 1
