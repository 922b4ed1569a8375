"""YAML without what is no plain value: refused while its tree is made, so that nothing is read twice and nothing grows."""

from __future__ import annotations

from typing import Any

import yaml


class Refused(yaml.MarkedYAMLError):
    """What YAML allows and we do not."""


class PlainLoader(yaml.SafeLoader):
    """Refuses aliases: a few lines of aliases to aliases grow to gigabytes as soon as somebody walks the value."""

    def refused(self, event: Any) -> str | None:
        """What is not supported of this event, for a sentence."""
        return f"the YAML alias *{event.anchor} is not supported" if isinstance(event, yaml.AliasEvent) else None

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        parser: Any = self
        event = parser.peek_event()
        if problem := self.refused(event):
            raise Refused(problem=problem, problem_mark=event.start_mark)
        return super().compose_node(parent, index)
