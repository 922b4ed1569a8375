"""Control sequences for a terminal or a browser are shown as text and have no effect."""

from __future__ import annotations

import json

import pytest

from handoff_queue.supervisor.text.sanitizing import escape_unsafe_in_json, replace_unsafe

CONTROL_SEQUENCES = ["\x1b[31m", "\x9b31m", "\x00", "\u202e", "\u2066", "\u2028", "\u2029"]
"""Two sequences for colours, NUL, two characters that change the text direction, and two that end
a line.
"""


@pytest.mark.parametrize("text", CONTROL_SEQUENCES)
def test_the_character_is_shown_and_nothing_else_changes(text: str) -> None:
    assert replace_unsafe(f"é {text} b\n\tc") == f"é \ufffd{text[1:]} b\n\tc"


@pytest.mark.parametrize("text", CONTROL_SEQUENCES)
def test_in_json_the_character_is_an_escape_for_the_same_value(text: str) -> None:
    shown = escape_unsafe_in_json(json.dumps({"é": text}, ensure_ascii=False, indent=1))

    assert text[0] not in shown
    assert json.loads(shown) == {"é": text}
