"""Which gates a job has: its own, or else its workflow's, or else those of the settings. The most specific ones, alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handoff_queue.shared.types.errors import ManyProblems, UserError
from handoff_queue.shared.types.events import Event, FactsChecked, GatesChecked, JobSubmitted
from handoff_queue.shared.types.gates import Gates, GatesFrom
from handoff_queue.shared.types.handoff import ref
from handoff_queue.supervisor.gates.gates_file import GateSet, gates_in_file

if TYPE_CHECKING:
    from handoff_queue.supervisor.lifecycle.result_texts import Words


@dataclass(frozen=True, slots=True)
class Gating:
    """What an answer is held against by code, and who said so."""

    gates: Gates | None = None
    """None: nothing is checked."""
    facts: str | None = None
    """A FactTable, as JSON."""
    said_by: GatesFrom | None = None

    @classmethod
    def of(cls, found: GateSet, said_by: GatesFrom) -> Gating:
        return cls(found.gates, found.facts.to_json() if found.facts else None, said_by)

    @property
    def fields(self) -> dict[str, Any]:
        """Of the job's submission."""
        return {
            "gates": self.gates,
            "gates_from": self.said_by,
            "facts": ref(self.facts) if self.facts else None,
        }


def gating_of(own: GateSet | None, of_workflow: GateSet | None, of_settings: Path | None) -> Gating:
    """The gates that hold.

    Raises:
        UserError: what is wrong with the file of the settings.
    """
    if own is not None:
        return Gating.of(own, GatesFrom.JOB)
    if of_workflow is not None:
        return Gating.of(of_workflow, GatesFrom.WORKFLOW)
    return (
        Gating()
        if of_settings is None
        else Gating.of(_default_gates(of_settings), GatesFrom.SETTINGS)
    )


@lru_cache(maxsize=1)
def _default_gates(file: Path) -> GateSet:
    """Read once, as every setting is."""
    try:
        return gates_in_file(file)
    except ManyProblems:
        raise
    except UserError as error:
        raise UserError(f"HANDOFF_GATES: {error}") from error


def checks_of(events: Sequence[Event], words: Words) -> dict[str, Any] | None:
    """The gates of a job and what came of them, in the form of `JobResult.gates`. `words`: of its journal."""
    submitted = next(event for event in events if isinstance(event, JobSubmitted))
    if submitted.gates is None:
        return None
    looks = [event for event in events if isinstance(event, GatesChecked)]
    checks = [event for event in events if isinstance(event, FactsChecked)]
    return {
        "from": submitted.gates_from.value if submitted.gates_from else None,
        "checks": submitted.gates.model_dump(mode="json", exclude_defaults=True),
        "facts": len(words.facts(submitted.facts).facts) if submitted.facts else 0,
        "looks": [
            {"vetoes": list(words.vetoes(look)), "sent_back": look.is_sent_back} for look in looks
        ],
        **(
            {"fact_checks": [_fact_check(check, words) for check in checks]}
            if submitted.fact_checker
            else {}
        ),
    }


def _fact_check(check: FactsChecked, words: Words) -> dict[str, Any]:
    said = words.fact_check(check.result) if check.result else None
    return {
        "wrong": [one.model_dump() for one in said.wrong] if said and check.wrong else [],
        "why": said.why if said else None,
        "problem": check.problem,
        "sent_back": check.is_sent_back,
    }
