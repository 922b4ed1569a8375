"""A rubric file is used completely, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.review import MAX_CRITERIA, Rubric
from handoff_queue.supervisor.cli.request_options import read_rubric
from tests.docs.pages import blocks, text_of

DOCS_PAGE = text_of("how-to/evaluation")


def read_rubric_file(tmp_path: Path, text: str) -> Rubric | None:
    (tmp_path / "rubric.yaml").write_text(text)
    return read_rubric(tmp_path / "rubric.yaml")


def test_the_rubric_of_the_docs_is_valid(tmp_path: Path) -> None:
    example = blocks(DOCS_PAGE, "yaml")[0]
    rubric = read_rubric_file(tmp_path, example)

    assert rubric is not None
    assert rubric.names == ("accuracy", "decision", "brevity")


def test_a_rubric_may_be_json(tmp_path: Path) -> None:
    assert read_rubric_file(tmp_path, '{"tone": "It is friendly."}') == Rubric.of_fields(
        {"tone": "It is friendly."}
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            (
                r"rubric\.yaml: is empty; write lines of `field: value`, with the fields accuracy,"
                r" coverage, clarity"
            ),
        ),
        ("{}", r"rubric\.yaml: has 1 to 12 criteria, not 0$"),
        (
            "accuracy: 5\n",
            "rubric.yaml: accuracy: must be a text that describes a good answer, not 5",
        ),
        ("Good Tone: It is friendly.\n", "criteria.0.name"),
        (
            "".join(f"c{n}: It is good.\n" for n in range(MAX_CRITERIA + 1)),
            f"has 1 to {MAX_CRITERIA} criteria, not {MAX_CRITERIA + 1}$",
        ),
        ("a: &x It is good.\nb: *x\n", "alias"),
        (
            'tone: "It is \\ud83d friendly."\n',
            r"rubric\.yaml: it has half a character \(a lone surrogate\)",
        ),
        (
            "tone: It is friendly.\ntone: It is not.\n",
            r"rubric\.yaml:2: 'tone' is given twice; remove one",
        ),
    ],
)
def test_an_invalid_rubric_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_rubric_file(tmp_path, text)


def test_without_a_rubric_file_the_rubric_is_none(tmp_path: Path) -> None:
    assert read_rubric(None) is None
    with pytest.raises(UserError, match=r"nope\.yaml"):
        read_rubric(tmp_path / "nope.yaml")
