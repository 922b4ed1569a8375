"""A text that is not plain YAML is refused with its line and the right correction."""

from __future__ import annotations

import pytest

from handoff_queue.shared.text.yaml_reader import YamlFault, parse_tree


@pytest.mark.parametrize(
    ("text", "line", "advice"),
    [
        ("a:\n\tb: c\n", 2, "indent with spaces in place of tabs"),
        ("a:\n  b: c\n\td: e\n", 3, "indent with spaces in place of tabs"),
        ("a: b\n \tc: d\n", 2, "indent with spaces in place of tabs"),
        ("a: b\n---\nc: d\n", 2, "write one document, without a line `---`"),
        ("a: 'b\n", 2, "close the quotes"),
        ('a: "b\n', 2, "close the quotes"),
        ("a: [b\n", 2, "close the bracket, or put values that hold a bracket into quotes"),
        ("a: {b: c\n", 2, "close the bracket, or put values that hold a bracket into quotes"),
        ("a:\n  - b\n c: d\n", 3, "indent the lines of one list, or of its fields, by the same"),
        ("a: b\nc\n", 3, "write `key: value`"),
        ("a: b: c\n", 1, "put values that hold `: ` or `#` into quotes, or below a `|`"),
        ("a: @b\n", 1, "put values that hold `: ` or `#` into quotes, or below a `|`"),
    ],
)
def test_a_text_that_is_not_yaml_gets_the_correction_of_its_fault(
    text: str, line: int, advice: str
) -> None:
    with pytest.raises(YamlFault, match="is not YAML") as refused:
        parse_tree(text)

    assert refused.value.line == line
    assert advice in str(refused.value)
