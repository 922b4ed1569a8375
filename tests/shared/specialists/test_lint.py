"""The lint warns about weak specialists. Its threshold separates reworded descriptions from
different ones.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.specialists import load_specialists
from handoff_queue.shared.specialists.lint import (
    MAX_DESCRIPTION_CHARS,
    MAX_INSTRUCTIONS_CHARS,
    OVERLAP,
    LintRule,
    compute_similarity,
    lint,
)
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.workers.specialists import BUILT_IN

SECTIONS = (
    "## What good looks like\nx\n## How to work\nx\n## When it cannot be done\nx\n## Output\nx\n"
)


def spec(
    name: str = "counter",
    description: str = "Counts the words of a text. Not for writing.",
    **fields: object,
) -> SpecialistSpec:
    return SpecialistSpec.model_validate(
        {"name": name, "description": description, "instructions": SECTIONS, **fields}
    )


def rules(*specs: SpecialistSpec) -> list[LintRule]:
    return [remark.rule for remark in lint(specs)]


def test_a_complete_specialist_gets_no_remark() -> None:
    assert rules(spec()) == []


def test_two_specialists_with_reworded_descriptions_overlap_once() -> None:
    remarks = lint(
        [spec(), spec("tally", "Counting words in any text, and letters. Not for essays.")]
    )
    assert [(remark.specialist, remark.rule) for remark in remarks] == [
        ("counter", LintRule.OVERLAP)
    ]
    assert "overlaps with tally's" in str(remarks[0])


def test_exclusions_in_a_description_do_not_count_as_overlap() -> None:
    other = spec(
        "poet", "Composes verse in any metre. Not for counting the words of a text (counter)."
    )
    assert rules(spec(), other) == []


def test_a_description_must_name_its_exclusions() -> None:
    assert rules(spec(description="Counts the words of a text.")) == [LintRule.NO_BOUNDARY]


def test_a_missing_section_is_named() -> None:
    remarks = lint([spec(instructions=SECTIONS.replace("## When it cannot be done", "## Also"))])
    assert [str(remark) for remark in remarks] == [
        "counter: no section says what to do when it cannot be done; add one (`## ...`)"
        " [missing-section]"
    ]


def test_too_long_texts_are_remarked_on() -> None:
    long = spec(
        description="Counts words. Not for writing. " + "x" * MAX_DESCRIPTION_CHARS,
        instructions=SECTIONS + "x" * MAX_INSTRUCTIONS_CHARS,
    )
    assert rules(long) == [LintRule.LONG_DESCRIPTION, LintRule.LONG_INSTRUCTIONS]


def test_a_tool_named_in_the_instructions_must_be_granted() -> None:
    assert rules(spec(instructions=SECTIONS + "Begin with `web_search`.", tools=("now",))) == [
        LintRule.TOOL_NOT_GRANTED,
        LintRule.TOOL_NOT_USED,
    ]


def test_instructions_without_tools_cannot_ask_for_a_search() -> None:
    assert rules(spec(instructions=SECTIONS + "Search for the newest version.")) == [
        LintRule.TOOL_NOT_GRANTED
    ]
    assert rules(spec(instructions=SECTIONS + "Do not search for anything.")) == []


def test_a_granted_tool_that_the_instructions_never_mention_is_superfluous() -> None:
    assert rules(spec(tools=("fetch_url",))) == [LintRule.TOOL_NOT_USED]


BUILT_INS = load_specialists(BUILT_IN)


def nearest(description: str) -> tuple[float, str]:
    """Return the similarity and the name of the most similar built-in specialist."""
    known = list(BUILT_INS.values())
    cosines = compute_similarity([*(specialist.description for specialist in known), description])
    return max((cosine, known[a].name) for (a, b), cosine in cosines.items() if b == len(known))


@pytest.mark.parametrize(
    ("description", "original"),
    [
        (
            "Finds facts about a topic in documents and web pages and reports them with quotes.",
            "researcher",
        ),
        (
            (
                "Looks up what sources say on a topic, and lists the quoted facts it found. Not for"
                " conclusions."
            ),
            "researcher",
        ),
        ("Writes functions, scripts and queries in any language, with tests.", "coder"),
        ("Examines code or drafts and lists defects by severity.", "reviewer"),
        (
            (
                "Compares options: trade-offs, rankings and calculations from the facts of earlier"
                " steps."
            ),
            "analyst",
        ),
        (
            (
                "Writes the report, article or letter out of results of earlier steps, in the right"
                " tone and length."
            ),
            "writer",
        ),
        ("Reads contracts and licences and explains obligations and risks.", "legal"),
        ("Explains conditions and drugs with evidence from trials and guidelines.", "medical"),
    ],
)
def test_a_reworded_built_in_is_caught(description: str, original: str) -> None:
    cosine, name = nearest(description)
    assert (name, cosine >= OVERLAP + 0.05) == (original, True)


@pytest.mark.parametrize(
    "description",
    [
        (
            "Translates a text from one language into another, keeping its tone and terms. Not for"
            " summaries."
        ),
        (
            "Answers questions about the sales database by writing and running SQL queries. Not for"
            " charts."
        ),
        (
            "Answers a customer's ticket from the help pages and past tickets, in our tone. Not for"
            " refunds."
        ),
        "Finds places, routes and travel times on maps. Not for weather.",
    ],
)
def test_another_trade_is_not_held_for_an_overlap(description: str) -> None:
    assert nearest(description)[0] <= OVERLAP - 0.05
