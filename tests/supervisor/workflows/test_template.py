"""Placeholders are replaced by name, once. All other text stays unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.supervisor.workflows.template import Template
from tests.machine_pace import measure


@given(st.text(), st.text())
def test_every_inserted_value_stays_verbatim(item: str, request_text: str) -> None:
    filled = Template.parse("<{item}|{request}|{item}>").fill(
        {"item": item, "request": request_text}
    )

    assert filled == f"<{item}|{request_text}|{item}>"


@given(st.text())
def test_any_text_can_be_written_with_doubled_opening_braces(text: str) -> None:
    template = Template.parse(text.replace("{", "{{"))

    assert template.names == ()
    assert not template.has_stray_brace
    assert template.fill({}) == text


@given(st.text())
def test_any_text_is_parsed_without_an_error(text: str) -> None:
    template = Template.parse(text)

    assert len(template.literals) == len(template.names) + 1


@pytest.mark.parametrize("name", ["item.__class__", "item[0]", "item!r", "item:>9", "0"])
def test_a_placeholder_is_a_name_and_no_expression(name: str) -> None:
    template = Template.parse(f"{{{name}}}")

    assert template.names == (name,)
    with pytest.raises(KeyError):
        template.fill({"item": "x"})


@pytest.mark.parametrize("text", ["{", "{}", "{ }", "{item", "{it\nem}", "a { b"])
def test_an_unmatched_brace_is_detected(text: str) -> None:
    assert Template.parse(text).has_stray_brace


def test_space_in_braces_does_not_count() -> None:
    assert Template.parse("{ Order no. }").fill({"Order no.": "7"}) == "7"


def test_a_brace_can_stand_before_a_placeholder() -> None:
    assert Template.parse('{{"id": {{{item}}}').fill({"item": "7"}) == '{"id": {7}}'


@pytest.mark.parametrize(
    "text",
    [
        "{" * 100_000,
        "{a" * 50_000,
        "{" + "a " * 50_000,
        "{" + " " * 100_000,
        "{a}" * 30_000,
        "{{" * 50_000,
    ],
)
def test_the_longest_task_is_parsed_fast(text: str) -> None:
    assert measure(lambda: Template.parse(text), limit_s=1) < 1
