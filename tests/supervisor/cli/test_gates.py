"""A file of gates is used completely, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.gates import Gates
from handoff_queue.supervisor.cli.request_options import read_gates_option
from handoff_queue.supervisor.gates.gates_file import MAX_BYTES, GateSet
from tests.docs.pages import blocks, text_of

DOCS_PAGE = text_of("how-to/gates")


def read_gate_file(tmp_path: Path, text: str) -> GateSet | None:
    (tmp_path / "gates.yaml").write_text(text)
    return read_gates_option(tmp_path / "gates.yaml")


def test_the_gates_of_the_docs_are_valid(tmp_path: Path) -> None:
    (example,) = blocks(DOCS_PAGE, "yaml")
    (tmp_path / "prices.csv").write_text("product,property,figure\nPro,price,10 USD\n")
    parsed = read_gate_file(tmp_path, example)

    assert parsed is not None
    assert parsed.facts is not None
    assert parsed.facts.facts[0].source == "prices.csv:2"
    gates = parsed.gates
    assert set(gates.model_fields_set) == set(Gates.model_fields)
    assert gates.forbidden[1] == r"(?i)\bguarantee[sd]?\b"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("min_words: abc\n", r"gates\.yaml:1: min_words: must be a whole number, not 'abc'$"),
        ("min_words: 3\n" + "# more\n" * MAX_BYTES, "larger than"),
        ("sections: &a [Risks]\nforbidden: *a\n", "alias"),
        (
            "min_words: 9\nmax_words: 3\n",
            r"gates\.yaml:1: min_words is more than max_words: no answer could pass$",
        ),
        (
            "fact_checker: planner\n",
            r"gates\.yaml:1: fact_checker: planner is reserved for the supervisor",
        ),
        (
            'forbidden: ["(a{1000}){1000}"]\n',
            (
                r"not a regular expression of RE2: it repeats more than 1,000 times, repetitions in"
                r" one another multiplied"
            ),
        ),
        ('forbidden: ["("]\n', r"not a regular expression of RE2: missing \)"),
        (
            "min_words: 9999\nmin_words: 1\n",
            r"gates\.yaml:2: 'min_words' is given twice; remove one",
        ),
        (
            "facts:\n  file: a.csv\n  file: b.csv\n",
            r"gates\.yaml:3: 'file' is given twice; remove one",
        ),
        ("[" * 1_000, "nested too deeply"),
        (
            "2024-01-01: x\n",
            r"gates\.yaml:1: must be lines of `field: value`, with the fields min_words, ",
        ),
        ("sections: {2024-01-01: x}\n", r"gates\.yaml:1: sections: must be a list$"),
        ("min_words: [\n", r"gates\.yaml:2: is not YAML"),
        (
            "# none\n",
            r"gates\.yaml: is empty; write lines of `field: value`, with the fields min_words, ",
        ),
        ("- a\n", r"gates\.yaml:1: must be lines of `field: value`"),
        ("cited: \xe4", "must be true or false"),
        (
            "cited: true\nsections: [2024-13-45]\n",
            r"gates\.yaml:2: sections has an invalid value",
        ),
        (f"min_words: 0x{'f' * 5_000}\n", r"gates\.yaml:1: min_words has an invalid value"),
        ("facts: {table: x}\n", r"gates\.yaml:1: facts\.file: is missing: add it$"),
        ("facts: {file: nope.csv}\n", r"gates\.yaml:1: the facts .*nope\.csv cannot be read"),
    ],
)
def test_an_invalid_file_of_gates_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_gate_file(tmp_path, text)


def test_each_problem_names_its_file_and_line_in_our_words(tmp_path: Path) -> None:
    path = tmp_path / "gates.yaml"
    with pytest.raises(UserError) as raised:
        read_gate_file(tmp_path, "min_words: 3\ncited: perhaps\nnumbers:\n- 1\n- many\nleast: 3\n")

    problems = [
        "2: cited: must be true or false, not 'perhaps'",
        "5: numbers.1: must be a number, not 'many'",
        "6: least: there is no such field: use one of min_words, max_words, sections, forbidden,"
        " required, numbers, cited, fact_checker",
    ]
    assert sorted(str(raised.value).split("; ")) == [f"{path}:{message}" for message in problems]


def test_the_first_problems_of_many_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"; and 15 more$") as raised:
        read_gate_file(tmp_path, "".join(f"gate{n}: 1\n" for n in range(20)))
    assert "\n" not in str(raised.value)
