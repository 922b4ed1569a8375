"""A golden set is read completely, or refused with the line number of each error."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.evaluation.golden_set import GoldenCase, read_golden
from handoff_queue.supervisor.lifecycle.gates import find_vetoes

EXAMPLE = Path(__file__).parents[3] / "examples" / "golden.jsonl"
CASES = read_golden(EXAMPLE)
VALID_CASE = {"id": "a", "request": "What?", "gates": {"min_words": 1}}


def read_lines(tmp_path: Path, *lines: object) -> tuple[GoldenCase, ...]:
    path = tmp_path / "golden.jsonl"
    path.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    )
    return read_golden(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"golden\.jsonl:2: must be JSON .*; write one JSON object a line"),
        ({**VALID_CASE, "id": "a"}, r"golden\.jsonl:2: the id a is the id of line 1, too"),
        (
            '{"id": "b", "request": "What?", "gates": {"min_words": 9}, "gates": {}}',
            r"golden\.jsonl:2: 'gates' is given twice; remove one",
        ),
        ({**VALID_CASE, "id": "B C"}, "id: must be lower-case letters"),
        ("[]", r"golden\.jsonl:2: .*; write one JSON object a line, such as"),
        (
            {"id": "b", "request": "What?"},
            r"golden\.jsonl:2: it has neither gates nor a rubric, .*: add .* \{.min_words.: 50\}$",
        ),
        (
            {"id": "b", "request": "What?", "gates": {}},
            r"golden\.jsonl:2: it has neither gates nor a rubric",
        ),
        ({**VALID_CASE, "id": "b", "gate": {}}, r"gate: there is no such field[^{]*$"),
        ({**VALID_CASE, "id": "b", "gates": {"required": ["("]}}, "not a regular expression"),
        (
            {**VALID_CASE, "id": "b", "gates": {"fact_checker": "legal"}},
            "a fact-checker checks an answer while its job runs",
        ),
        ({**VALID_CASE, "id": "b", "rubric": {}}, r"has 1 to 12 criteria, not 0"),
        ({**VALID_CASE, "id": "b", "rubric": {"Tone": "It is."}}, "criteria.0.name"),
        ({**VALID_CASE, "id": "b", "rubric": "tone"}, "rubric: must hold fields"),
        (
            {**VALID_CASE, "id": "b", "request": ""},
            "request: must have at least 1 character",
        ),
    ],
)
def test_an_invalid_line_is_reported_with_its_number(
    tmp_path: Path, line: object, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        read_lines(tmp_path, VALID_CASE, line)


@pytest.mark.parametrize("line", ["{", "[]"])
def test_the_line_that_an_error_proposes_is_valid(tmp_path: Path, line: str) -> None:
    with pytest.raises(UserError) as refused:
        read_lines(tmp_path, line)

    (case,) = read_lines(tmp_path, str(refused.value).partition("such as ")[2])

    assert case.gates is not None


def test_an_empty_golden_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no request"):
        read_lines(tmp_path, "", "  ")


def test_document_paths_are_relative_to_the_golden_set(tmp_path: Path) -> None:
    (case,) = read_lines(tmp_path, {**VALID_CASE, "docs": "notes"})
    assert case.docs == str(tmp_path / "notes")


@pytest.mark.parametrize(
    "docs",
    ["/etc/passwd", "/proc/self/environ", "..", "notes/../..", "./../x", "a\0"],
)
def test_documents_outside_of_the_folder_of_the_golden_set_are_refused(
    docs: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="is outside of the folder of the golden set") as refused:
        read_lines(tmp_path, {**VALID_CASE, "docs": docs})
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("docs", ["link", "link/notes", "file.md", "loop", "up/private"])
def test_documents_behind_a_link_out_of_the_folder_of_the_golden_set_are_refused(
    docs: str, tmp_path: Path
) -> None:
    golden, private = tmp_path / "golden", tmp_path / "private"
    (private / "notes").mkdir(parents=True)
    (private / "key.md").write_text("A private text.")
    golden.mkdir()
    (golden / "link").symlink_to(private)
    (golden / "up").symlink_to(tmp_path)
    (golden / "file.md").symlink_to(private / "key.md")
    (golden / "loop").symlink_to(golden / "loop")

    with pytest.raises(UserError, match="is outside of the folder of the golden set"):
        read_lines(golden, {**VALID_CASE, "docs": docs})


@pytest.mark.parametrize("docs", [".", "notes/..", "a/../notes", "..notes"])
def test_documents_in_the_folder_of_the_golden_set_are_accepted(docs: str, tmp_path: Path) -> None:
    (case,) = read_lines(tmp_path, {**VALID_CASE, "docs": docs})
    assert case.docs == str(tmp_path / docs)


def test_the_example_has_at_least_twenty_requests_of_every_kind() -> None:
    assert len(CASES) >= 20
    kinds = Counter(case.kind for case in CASES)
    assert set(kinds) == {"lookup", "two steps", "comparison", "conflict", "unanswerable"}
    assert min(kinds.values()) >= 3


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_correct_example_answer_passes_and_an_empty_answer_fails(
    case: GoldenCase,
) -> None:
    assert case.gates is not None
    if case.reference is not None:
        in_words = case.gates.model_copy(
            update={"cited": False}
        )  # a reference answer has no sources
        assert find_vetoes(in_words, case.reference, 1) == ()
    assert find_vetoes(case.gates, "I don't want to commit myself.", 1) != ()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_documents_of_an_example_exist(case: GoldenCase) -> None:
    assert case.docs is not None
    assert list(Path(case.docs).glob("*.md"))
