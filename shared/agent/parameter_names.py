"""The names that the Messages API takes for the parameters of a tool."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from handoff_queue.shared.types.errors import InvalidTool

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""The API answers 400 to a request with any other name: "Property keys should match pattern ...". It checks top-level names only."""


def check_parameter_names(tool: str, schema: Mapping[str, Any]) -> None:
    """Raise InvalidTool if the provider would refuse every request with this tool because of a parameter's name."""
    for name in schema.get("properties", {}):
        if not _NAME.fullmatch(name):
            raise InvalidTool(
                f"tool {tool}: rename parameter {name[:80]!r}: the provider takes 1 to 64 of the characters "
                "a-z, A-Z, 0-9, '_', '.' and '-'"
            )
