"""YAML with plain values only. Other values are refused while the tree is built, so that no value
is read twice, lost or expanded.
"""

from __future__ import annotations

from typing import Any

import yaml


class YamlRefused(yaml.MarkedYAMLError):
    """A YAML text has a feature that is not supported.

    `problem` is the fault, `line` its line, and `mend` the correction.
    """

    def __init__(self, problem: str, mark: yaml.Mark, mend: str) -> None:
        super().__init__(problem=problem, problem_mark=mark)
        self.line = int(mark.line) + 1
        """Counted from 1."""
        self.mend = mend


class PlainLoader(yaml.SafeLoader):
    """Loader that refuses aliases and repeated keys. A few lines of nested aliases can expand to
    gigabytes, and PyYAML drops the first value of a repeated key.
    """

    def refused(self, event: Any) -> str | None:
        """Return the unsupported feature of this event, as part of a sentence, or None."""
        if isinstance(event, yaml.AliasEvent):
            return f"the YAML alias *{event.anchor} is not supported"
        return None

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        parser: Any = self
        event = parser.peek_event()
        if problem := self.refused(event):
            raise YamlRefused(problem, event.start_mark, "write the value out")
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        known: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in known:
                    raise YamlRefused(
                        f"{key.value!r:.80} is given twice", key.start_mark, "remove one"
                    )
                known.add(key.value)
        return node
