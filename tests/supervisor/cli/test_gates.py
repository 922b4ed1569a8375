"""A file of gates is taken whole, or refused in one line: a check that is dropped in silence is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shared.wire.errors import UserError
from shared.wire.gates import Gates
from supervisor.cli.asking import MOST_GATES_BYTES, gates_of

PAGE = Path(__file__).parents[3] / "docs" / "gates.md"


def read(tmp_path: Path, text: str) -> Gates | None:
    (tmp_path / "gates.yaml").write_text(text)
    return gates_of(tmp_path / "gates.yaml")


def test_the_gates_of_the_page_are_gates(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    gates = read(tmp_path, example)

    assert gates is not None
    assert set(gates.model_fields_set) == set(Gates.model_fields)
    assert gates.forbidden[1] == r"(?i)\bguarantee[sd]?\b"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("min_words: 3\n" + "# more\n" * MOST_GATES_BYTES, "larger than"),
        ("sections: &a [Risks]\nforbidden: *a\n", "alias"),
        ("[" * 20_000, "nested too deeply"),
        ("2024-01-01: x\n", "must be fields"),
        ("sections: {2024-01-01: x}\n", "sections"),
        ("min_words: [\n", "are not YAML"),
        ("", "must be fields"),
    ],
)
def test_what_cannot_be_taken_whole_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read(tmp_path, text)
