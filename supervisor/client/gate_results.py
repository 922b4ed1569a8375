"""The gates of a job and their results, in the form of `JobResult.gates`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handoff_queue.shared.types.events import Event, FactsChecked, GatesChecked, JobSubmitted
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts


def build_gate_results(events: Sequence[Event], texts: ResultTexts) -> dict[str, Any] | None:
    """Return the gates and their results in the form of `JobResult.gates`, or None without gates.

    Args:
        events: the journal of a job, from its first event.
    """
    submitted = events[0]
    assert isinstance(submitted, JobSubmitted)
    if submitted.gates is None:
        return None
    answers: list[dict[str, Any]] = []
    fact_checks: list[dict[str, Any]] = []
    for event in events:
        if isinstance(event, GatesChecked):
            vetoes = list(texts.get_vetoes(event))
            answers.append({"vetoes": vetoes, "sent_back": event.is_sent_back})
        elif isinstance(event, FactsChecked):
            fact_checks.append(_build_fact_check(event, texts))
    gates_from = None
    if submitted.gates_from:
        gates_from = submitted.gates_from.value
    fact_count = 0
    if submitted.facts:
        fact_count = len(texts.get_facts(submitted.facts).facts)
    checks = {
        "from": gates_from,
        "checks": submitted.gates.model_dump(mode="json", exclude_defaults=True),
        "facts": fact_count,
        "answers": answers,
    }
    if submitted.fact_checker:
        checks["fact_checks"] = fact_checks
    return checks


def _build_fact_check(check: FactsChecked, texts: ResultTexts) -> dict[str, Any]:
    fact_check = None
    if check.result:
        fact_check = texts.get_fact_check(check.result)
    wrong: list[dict[str, Any]] = []
    if fact_check and check.wrong:
        wrong = [statement.model_dump() for statement in fact_check.wrong]
    return {
        "wrong": wrong,
        "why": fact_check.why if fact_check else None,
        "problem": check.problem,
        "sent_back": check.is_sent_back,
    }
