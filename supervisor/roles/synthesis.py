"""The synthesizer's answer is a specialist's: the envelope, whose output points to the claims of the steps it brings together.

A marker that no step's claim stands behind costs it a turn: that is how an invented statement shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.agent.envelope import EnvelopeReading, Sources
from shared.wire.handoff import Claim
from shared.wire.ids import StepId
from shared.wire.specialist import SpecialistSpec

STEP = StepId("synthesizer")
"""The step id of its handoffs."""


def synthesis_reading(
    known_claims: Mapping[str, Claim], sources: Sources, answer_schema: Mapping[str, Any] | None, spec: SpecialistSpec
) -> EnvelopeReading:
    """How to read its answer. `answer_schema` is the user's own format for the answer (`--answer-schema`), if there is one."""
    return EnvelopeReading(STEP, answer_schema or spec.output_schema, sources, known_claims)
