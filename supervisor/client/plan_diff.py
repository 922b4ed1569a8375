"""What a patch has made of a plan, for those who look at the job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handoff_queue.shared.types.events import PlanPatched
from handoff_queue.supervisor.lifecycle.result_texts import Words


def change_of(event: PlanPatched, words: Words) -> dict[str, Any]:
    """In the form of `JobResult.patches`."""
    patch = words.patch(event.result)
    return {
        "added": [{"id": step.id, "specialist": step.specialist} for step in event.added],
        "changed": [step.id for step in event.changed],
        "dropped": list(event.dropped),
        "too_late": list(event.too_late),
        "repeats": {one.step: one.earlier for one in event.repeats},
        "nothing_new": list(event.nothing_new),
        "final": event.is_final,
        "why": patch.why if patch else "",
        "problem": event.problem and (words.why(event.result) or event.problem),
    }


def in_words(change: Mapping[str, Any]) -> str:
    """`check_config (ops) added; draft dropped: the code is sound`."""
    done = [f"{step['id']} ({step['specialist']}) added" for step in change["added"]]
    done += [f"{step} {how}" for how in ("changed", "dropped") for step in change[how]]
    done += [
        f"{step} not run, for it is what {earlier} was asked"
        for step, earlier in change["repeats"].items()
    ]
    done += [f"{step} brought nothing new" for step in change["nothing_new"]]
    done += [f"{step} left, for it had begun" for step in change["too_late"]]
    done += ["nothing more is wanted"] if change["final"] else []
    why = change["problem"] or change["why"]
    return ("; ".join(done) or "as it was") + (f": {why}" if why else "")
