"""A change of the plan, in the form of `JobResult.patches` and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from handoff_queue.shared.types.events import PlanPatched
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts


def build_change(event: PlanPatched, texts: ResultTexts) -> dict[str, Any]:
    """Return a change of the plan in the form of `JobResult.patches`."""
    patch = texts.get_patch(event.result)
    added_steps = [{"id": step.id, "specialist": step.specialist} for step in event.added]
    repeats = {repeat.step: repeat.earlier for repeat in event.repeats}
    problem = event.problem
    if problem:
        problem = texts.explain(event.result) or problem
    return {
        "added": added_steps,
        "changed": [step.id for step in event.changed],
        "dropped": list(event.dropped),
        "too_late": list(event.too_late),
        "repeats": repeats,
        "final": event.is_final,
        "why": patch.why if patch else "",
        "problem": problem,
    }


def describe_change(change: Mapping[str, Any]) -> str:
    """Return an entry of `JobResult.patches` in words, such as `check_config (ops) added;
    draft dropped: the code is sound`.
    """
    text = "; ".join(_iterate_clauses(change)) or "as it was"
    why = change["problem"] or change["why"]
    if why:
        text += f": {why}"
    return text


def _iterate_clauses(change: Mapping[str, Any]) -> Iterator[str]:
    """Yield one clause for each part of a change."""
    for added_step in change["added"]:
        yield f"{added_step['id']} ({added_step['specialist']}) added"
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
