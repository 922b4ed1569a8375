"""The built-in specialists are complete, pass the lint, and have only the tools that they need."""

from __future__ import annotations

import pytest

from handoff_queue.shared.specialists import load_specialists
from handoff_queue.shared.specialists.lint import OVERLAP, compute_similarity, lint
from handoff_queue.workers.specialists import BUILT_IN

TOOLS = {"search_documents", "read_document", "now", "web_search", "fetch_url"}
SPECS = load_specialists(BUILT_IN, tools=TOOLS)
DOMAINS = {"legal", "medical", "technical", "financial", "ops"}
ADVISERS = ("legal", "medical", "financial")


def test_the_built_in_specialists_match_the_manual() -> None:
    assert (
        set(SPECS)
        == {"researcher", "analyst", "writer", "coder", "reviewer", "generalist"} | DOMAINS
    )


def test_the_lint_has_no_findings() -> None:
    assert [str(finding) for finding in lint(SPECS.values())] == []


def test_descriptions_do_not_overlap() -> None:
    assert (
        max(compute_similarity([spec.description for spec in SPECS.values()]).values())
        < OVERLAP - 0.05
    )


def test_a_specialist_that_works_only_on_its_input_cannot_reach_the_web() -> None:
    for name in ("analyst", "writer", "coder", "reviewer", "ops"):
        assert not {"web_search", "fetch_url"} & set(SPECS[name].tools)
    assert SPECS["writer"].tools == ()


def test_every_file_is_named_after_its_specialist() -> None:
    assert {path.stem for path in BUILT_IN.glob("*.md")} == set(SPECS)


@pytest.mark.parametrize("name", ADVISERS)
def test_specialists_in_advisory_fields_state_that_they_give_no_advice(name: str) -> None:
    assert (
        "not legal advice" in SPECS[name].description
        or "no investment advice" in SPECS[name].description
        or "Never diagnoses" in SPECS[name].description
    )
    assert "## Not advice" in SPECS[name].instructions
