"""Journals that this version wrote: every later version must read them, and find the same job in them. Never change one; add another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from shared.wire.events import Event, Recorded, parse_event
from shared.wire.handoff import BlobRef
from shared.wire.ids import JobId
from supervisor.lifecycle.evolve import fold
from supervisor.lifecycle.state import JobState
from tests.doubles.handoffs import JOB

JOURNALS = sorted((Path(__file__).parent / "journals").glob("*.jsonl"))


def read(path: Path) -> list[Recorded]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [Recorded(line["version"], line["at"], parse_event(json.dumps(line["event"]))) for line in lines]


def shown(ref: BlobRef | None) -> str | None:
    return ref.digest if ref else None


def facts(state: JobState) -> dict[str, Any]:
    """What a journal says about its job, in words that outlive the state's fields."""
    return {
        "version": state.version,
        "status": state.status,
        "phase": state.phase,
        "steps": {
            name: {
                "status": step.status,
                "attempt": step.attempt,
                "result": step.result_status,
                "why": shown(step.trouble),
            }
            for name, step in state.steps.items()
        },
        "open": sorted(state.open),
        "rounds": len(state.rounds),
        "handoffs": state.handoffs,
        "tokens": state.usage.total_tokens,
        "turns": state.turns,
        "webhook": state.webhook_delivered,
    }


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.stem)
def test_a_journal_of_an_older_version_still_tells_the_same(path: Path) -> None:
    state = fold(JobId(JOB), None, read(path))

    assert state is not None
    assert facts(state) == json.loads(path.with_suffix(".json").read_text())


def test_every_kind_of_event_is_in_some_journal() -> None:
    assert {type(recorded.event) for path in JOURNALS for recorded in read(path)} == set(get_args(Event))
