"""Check of a tool's name, description and schema, as the model gets them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from handoff_queue.shared.agent.json_schema_validation import BrokenSchema, check_schema
from handoff_queue.shared.agent.tool import check_parameter_names
from handoff_queue.shared.text.unicode_text import has_half_a_character
from handoff_queue.shared.types.errors import InvalidTool

_NOT_AT_THE_TOP = ("allOf", "anyOf", "oneOf")
"""Keywords that the Messages API does not take at the top of a tool's schema."""
MAX_DEFINITION_CHARS = 30_000
"""Characters of a tool's description and schema: about 8,000 tokens, paid in each turn."""


def _check_whole_characters(name: str, text: str) -> None:
    if has_half_a_character(text):
        raise InvalidTool(
            f"tool {name}: its docstring or types hold half of a character (a lone surrogate)"
        )


def check_definition(name: str, description: str, schema: Mapping[str, Any]) -> None:
    """Check a tool, because the Messages API would refuse each request with an invalid one.

    Raises:
        InvalidTool: the tool would be refused.
    """
    try:
        text = json.dumps([description, schema], ensure_ascii=False, allow_nan=False)
        _check_whole_characters(name, text)
        check_schema(schema)
    except BrokenSchema as error:
        raise InvalidTool(f"tool {name}: its schema {error}") from error
    except (TypeError, ValueError) as error:
        raise InvalidTool(
            f"tool {name}: a default, an example or a limit of its parameters is no JSON value"
            f" ({error})"
        ) from error
    if not description.strip():
        raise InvalidTool(
            f"tool {name}: its docstring describes only the parameters; describe the tool, too"
        )
    if len(text) > MAX_DEFINITION_CHARS:
        raise InvalidTool(
            f"tool {name}: its description and schema have {len(text):,} characters; "
            f"at most {MAX_DEFINITION_CHARS:,} are sent with each turn"
        )
    for keyword in _NOT_AT_THE_TOP:
        if keyword in schema:
            raise InvalidTool(
                f"tool {name}: its schema has {keyword} at the top; use plain parameters"
            )
    check_parameter_names(name, schema)
