"""The gates, the changes of the plan and the use of the context, in the form of `JobResult`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from handoff_queue.shared.text.word_forms import count_of
from handoff_queue.shared.types.checkpoints import (
    Checkpoint,
    ContextCleared,
    ContextCompacted,
    ModelCallFailed,
    ModelReplied,
)
from handoff_queue.shared.types.events import (
    Event,
    FactsChecked,
    GatesChecked,
    JobSubmitted,
    PlanPatched,
)
from handoff_queue.shared.types.handoff import SharedRun
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts


def checks_of(events: Sequence[Event], texts: ResultTexts) -> dict[str, Any] | None:
    """Return the gates and their results in the form of `JobResult.gates`, or None without
    gates.

    `events`: the journal of a job, from its first event.
    """
    submitted = events[0]
    assert isinstance(submitted, JobSubmitted)
    if submitted.gates is None:
        return None
    answers: list[dict[str, Any]] = []
    fact_checks: list[dict[str, Any]] = []
    for event in events:
        if isinstance(event, GatesChecked):
            vetoes = list(texts.vetoes(event))
            answers.append({"vetoes": vetoes, "sent_back": event.is_sent_back})
        elif isinstance(event, FactsChecked):
            fact_checks.append(_fact_check(event, texts))
    gates_from = None
    if submitted.gates_from:
        gates_from = submitted.gates_from.value
    fact_count = 0
    if submitted.facts:
        fact_count = len(texts.facts(submitted.facts).facts)
    checks = {
        "from": gates_from,
        "checks": submitted.gates.model_dump(mode="json", exclude_defaults=True),
        "facts": fact_count,
        "answers": answers,
    }
    if submitted.fact_checker:
        checks["fact_checks"] = fact_checks
    return checks


def describe_shared_run(shared: SharedRun | None) -> str:
    """Return the origin of a copied result in words; '' for a result of its own run."""
    if shared is None:
        return ""
    return f"shared with {shared.job_id} {shared.handoff_id}, paid there"


def _fact_check(check: FactsChecked, texts: ResultTexts) -> dict[str, Any]:
    fact_check = None
    if check.result:
        fact_check = texts.fact_check(check.result)
    wrong: list[dict[str, Any]] = []
    if fact_check and check.wrong:
        wrong = [statement.model_dump() for statement in fact_check.wrong]
    return {
        "wrong": wrong,
        "why": fact_check.why if fact_check else None,
        "problem": check.problem,
        "sent_back": check.is_sent_back,
    }


def change_of(event: PlanPatched, texts: ResultTexts) -> dict[str, Any]:
    """Return a change of the plan in the form of `JobResult.patches`."""
    patch = texts.patch(event.result)
    added: list[dict[str, str]] = []
    for step in event.added:
        added.append({"id": step.id, "specialist": step.specialist})
    repeats: dict[str, str] = {}
    for repeat in event.repeats:
        repeats[repeat.step] = repeat.earlier
    problem = event.problem
    if problem:
        problem = texts.why(event.result) or problem
    return {
        "added": added,
        "changed": [step.id for step in event.changed],
        "dropped": list(event.dropped),
        "too_late": list(event.too_late),
        "repeats": repeats,
        "final": event.is_final,
        "why": patch.why if patch else "",
        "problem": problem,
    }


def change_in_words(change: Mapping[str, Any]) -> str:
    """Return an entry of `JobResult.patches` in words, such as `check_config (ops) added;
    draft dropped: the code is sound`.
    """
    text = "; ".join(_clauses(change)) or "as it was"
    why = change["problem"] or change["why"]
    if why:
        text += f": {why}"
    return text


def _clauses(change: Mapping[str, Any]) -> Iterator[str]:
    """Yield one clause for each part of a change."""
    for added in change["added"]:
        yield f"{added['id']} ({added['specialist']}) added"
    for step in change["changed"]:
        yield f"{step} changed"
    for step in change["dropped"]:
        yield f"{step} dropped"
    for step, earlier in change["repeats"].items():
        yield f"{step} not run, because {earlier} has the same task"
    for step in change["too_late"]:
        yield f"{step} unchanged, because it had begun"
    if change["final"]:
        yield "no further work is needed"


def context_use(turns: Iterable[Checkpoint]) -> str:
    """Return the number of cleared results, of summaries in place of earlier turns, and of tokens
    that the provider caches for one hour. A result or a summary of the provider is marked. Return
    "" if all numbers are 0.

    Example: `12 results cleared, about 48,000 tokens; 1 summary of earlier turns, about 30,000
    tokens; 9,000 tokens cached for one hour`.
    """
    cleared = cleared_tokens = summaries = summarized_tokens = cached_tokens = 0
    cleared_there = summaries_there = 0
    for turn in turns:
        match turn:
            case ContextCleared():
                cleared += len(turn.tool_use_ids)
                cleared_tokens += turn.tokens
                cleared_there += len(turn.tool_use_ids) if turn.by_provider else 0
            case ContextCompacted():
                summaries += 1
                summarized_tokens += turn.tokens
                summaries_there += bool(turn.by_provider)
            case ModelReplied() | ModelCallFailed():
                cached_tokens += turn.usage.cache_write_1h_tokens
    parts: list[str] = []
    if cleared:
        there = _by_provider(cleared_there, cleared)
        counted = f"{count_of(cleared, 'result')} cleared{there}"
        parts.append(f"{counted}, about {cleared_tokens:,} tokens")
    if summaries:
        counted = "1 summary" if summaries == 1 else f"{summaries} summaries"
        there = _by_provider(summaries_there, summaries)
        parts.append(f"{counted} of earlier turns{there}, about {summarized_tokens:,} tokens")
    if cached_tokens:
        parts.append(f"{cached_tokens:,} tokens cached for one hour")
    return "; ".join(parts)


def _by_provider(number: int, total: int) -> str:
    """Return the words for the part that the provider has made."""
    if not number:
        return ""
    if number == total:
        return " by the provider"
    return f", {number} by the provider"
