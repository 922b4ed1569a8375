"""A message from Redis may remove an agent's tools but never add one."""

from __future__ import annotations

import pytest

from handoff_queue.shared.specialists.tool_grants import grant_limits, grant_spec
from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.specialist import Tier, unannounced_spec
from tests.doubles.handoffs import a_spec

OWN = a_spec().model_copy(
    update={"tools": ("now", "read_document"), "model": "own-model", "max_usd": 0.5, "max_turns": 4}
)


def test_a_tool_that_the_own_file_does_not_name_is_not_granted() -> None:
    pinned = OWN.model_copy(update={"tools": ("fetch_url", "now")})

    assert grant_spec(pinned, OWN).tools == ("now",)


def test_a_job_planned_before_its_worker_announced_itself_gets_the_workers_own_file() -> None:
    assert grant_spec(unannounced_spec(OWN.name), OWN) == OWN


def test_the_model_is_the_one_of_the_own_file() -> None:
    pinned = OWN.model_copy(update={"model": "dear-model", "tier": Tier.CAPABLE})

    granted = grant_spec(pinned, OWN)

    assert (granted.model, granted.tier) == ("own-model", OWN.tier)


def test_limits_can_be_lowered_and_not_raised() -> None:
    pinned = OWN.model_copy(
        update={"max_turns": 1_000, "max_output_tokens": 5, "max_usd": None, "max_seconds": 60}
    )

    granted = grant_spec(pinned, OWN)

    assert (granted.max_turns, granted.max_output_tokens) == (4, 5)
    assert (granted.max_usd, granted.max_seconds) == (0.5, 60)


def test_a_handoffs_limits_stay_within_the_own_file() -> None:
    own = OWN.model_copy(update={"max_seconds": 30})

    granted = grant_limits(HandoffLimits(max_turns=1_000, max_output_tokens=10**6), own)

    assert granted == HandoffLimits(
        max_turns=4, max_output_tokens=own.max_output_tokens, max_microusd=500_000, max_seconds=30
    )


def test_the_spec_of_another_specialist_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="the spec of writer came with a handoff for"):
        grant_spec(OWN.model_copy(update={"name": "writer"}), OWN)
