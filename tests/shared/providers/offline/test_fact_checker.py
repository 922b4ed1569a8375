"""Asked to check facts, the offline model looks for the figures of claims in their quotes, and
says that it judges nothing.
"""

from __future__ import annotations

import json

import jsonschema

from handoff_queue.supervisor.roles.fact_check import fact_check_schema, fact_check_task
from tests.shared.providers.offline.asking_the_model import as_result, ask, envelope_schema


def verdict_on(text: str, *quotes: str) -> tuple[str, list[dict[str, str]]]:
    form = dict(fact_check_schema())
    claim = {
        "id": "c1",
        "text": text,
        "sources": [{"source": "a.md", "quote": quote} for quote in quotes],
    }
    answer = as_result("write", {"output": f"{text} [c1]", "claims": [claim], "status": "ok"})
    task = f"<task>{fact_check_task('How high is it?')}</task>"
    envelope = ask(
        f"{task}\n\n{answer}\n\n<output_format>{json.dumps(form)}</output_format>",
        envelope_schema(form),
    )
    jsonschema.validate(envelope["output"], form)
    assert "not judged" in envelope["output"]["why"]
    return envelope["output"]["verdict"], envelope["output"]["wrong"]


def test_a_claim_whose_figures_stand_in_a_quote_passes() -> None:
    assert verdict_on("It was 330 m high in 2022.", "Since 2022 its height is 330 m.") == (
        "PASS",
        [],
    )


def test_a_claim_with_a_figure_that_no_quote_has_is_wrong() -> None:
    verdict, (wrong,) = verdict_on("It was 324 m high in 2022.", "Since 2022 its height is 330 m.")

    assert (verdict, wrong) == (
        "VETO",
        {"statement": "It was 324 m high in 2022.", "why": "no quote has 324"},
    )


def test_without_a_quote_it_cannot_say() -> None:
    assert verdict_on("It was 330 m high.") == ("CANNOT_SAY", [])
