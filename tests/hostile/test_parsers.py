"""The parsers of foreign data keep their promises for changed valid inputs and for any bytes.

`python -m tests.fuzz` runs the same targets for a long time, with atheris.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from handoff_queue.shared.documents.media_types import DocumentRefused
from handoff_queue.shared.store.journal import parse_entry
from handoff_queue.supervisor.workflows.parser import parse_workflow
from tests.fuzz.targets import (
    ANSWER,
    EVENTS,
    FLOWER_EVENT,
    SPECIALIST,
    TARGETS,
    WORKFLOW,
    plain_text,
)
from tests.property_settings import draws

WORDS = (
    *(b"\0", b"\xff", b"\xed\xa0\xbd", b"{", b"[", b'"', b"\\", b"\n", b"- ", b": ", b"&a ", b"*a"),
    *(b"!!python/object:os.system ", b"<<", b"1e999", b"NaN", b"-0", b"0x", b"1:1", b"\x1b[2J"),
    *("\u202e".encode(), b"$ref", b"#/", b"null", b"</data>", b"{item}", b"%PDF-", b"9" * 4_400),
    *(b"[" * 300, b" " * 300),
)
"""Bytes with a meaning for some parser."""
CASES = 60


@some.composite
def changed(draw: some.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """Draw a valid input with up to four changes: a cut, an insertion, or a repeated part."""
    data = draw(some.sampled_from(seeds))
    for _ in range(draw(some.integers(0, 4))):
        start = draw(some.integers(0, len(data)))
        end = draw(some.integers(start, min(len(data), start + 40)))
        put = draw(some.sampled_from(WORDS) | some.binary(max_size=8) | some.just(data[start:end]))
        data = data[:start] + put + data[draw(some.sampled_from((start, end))) :]
    return data


@pytest.mark.hypothesis
@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_keeps_its_promise_for_any_bytes(name: str) -> None:
    target = TARGETS[name]

    @draws(CASES)
    @given(changed(target.seeds) | some.binary(max_size=200))
    def keep_promise(data: bytes) -> None:
        target.run(data)

    keep_promise()


def test_the_seeds_are_valid() -> None:
    for event in EVENTS:
        assert parse_entry(7, b"1 " + json.dumps(event).encode())
    assert len(parse_workflow(WORKFLOW).steps) == 2
    assert json.loads(json.dumps(ANSWER)) == ANSWER
    assert FLOWER_EVENT["type"] == "task-received"
    assert SPECIALIST.startswith("---\nname:")


def test_a_target_sees_a_broken_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> str:
        raise DocumentRefused("no")

    def keep(*_arguments: object) -> str:
        return "\x00"

    monkeypatch.setattr("tests.fuzz.targets.extract", refuse)
    plain_text(b"x")
    monkeypatch.setattr("tests.fuzz.targets.extract", keep)
    with pytest.raises(AssertionError, match="control characters"):
        plain_text(b"x")
