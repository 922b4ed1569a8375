"""A person who approves a tool call reads all characters of its arguments, also invisible ones."""

from __future__ import annotations

import json

import pytest

from handoff_queue.supervisor.serve.approval_questions import format_json, list_arguments
from handoff_queue.supervisor.serve.console.inbox_routes import format_arguments

HIDDEN = {
    "direction override": "\u202e",
    "direction isolate": "\u2066",
    "zero-width space": "\u200b",
    "zero-width joiner": "\u200d",
    "soft hyphen": "\u00ad",
    "no-break space": "\u00a0",
    "line separator": "\u2028",
    "tag letter": "\U000e0041",
    "terminal escape": "\x1b",
    "Hangul filler": "\u3164",
}


@pytest.fixture(params=HIDDEN)
def call(request: pytest.FixtureRequest) -> dict[str, object]:
    """Return a call with a hidden character in the name and in the value of an argument."""
    hidden = HIDDEN[request.param]
    return {"arguments": {f"to{hidden}": f"pay 47{hidden}11"}, "origins": {}}


def test_the_inbox_shows_a_hidden_character_as_an_escape(call: dict[str, object]) -> None:
    ((name, value, _),) = list_arguments(call)

    assert (name + value).isprintable()
    assert name.startswith("to\\u")
    assert value.startswith('"pay 47\\u')


def test_the_editor_has_the_same_arguments(call: dict[str, object]) -> None:
    text = format_arguments(call)

    assert text.replace("\n", "").isprintable()
    assert json.loads(text) == call["arguments"]


def test_words_of_other_languages_stay_readable() -> None:
    assert format_json("Größe 価格 цена") == '"Größe 価格 цена"'


@pytest.mark.parametrize("arguments", [None, [1], "text", 5])
def test_a_person_reads_that_the_arguments_of_a_call_cannot_be_read(arguments: object) -> None:
    """A worker that was taken over wrote them. The page of the job answered 500."""
    assert "cannot be read" in str(list_arguments({"arguments": arguments, "origins": {}}))
