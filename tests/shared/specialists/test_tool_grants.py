"""A message from Redis may remove an agent's tools but never add one."""

from __future__ import annotations

import pytest

from handoff_queue.shared.specialists.tool_grants import grant_limits, grant_spec
from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.specialist import SpecialistSpec, Tier, build_placeholder_spec
from handoff_queue.shared.types.usage import MICROUSD
from tests.doubles.handoffs import a_spec

OWN = a_spec().model_copy(
    update={"tools": ("now", "read_document"), "model": "own-model", "max_usd": 0.5, "max_turns": 4}
)


def test_a_tool_that_the_own_file_does_not_name_is_not_granted() -> None:
    pinned = OWN.model_copy(update={"tools": ("fetch_url", "now")})

    assert grant_spec(pinned, OWN).tools == ("now",)


def test_a_call_needs_an_approval_if_either_file_says_so() -> None:
    pinned = OWN.model_copy(update={"ask": ("now",)})
    own = OWN.model_copy(update={"ask": ("read_document",)})

    assert grant_spec(pinned, own).ask == ("now", "read_document")
    assert grant_spec(OWN, OWN).ask is None


def test_a_job_planned_before_its_worker_announced_itself_gets_the_workers_own_file() -> None:
    assert grant_spec(build_placeholder_spec(OWN.name), OWN) == OWN


def test_the_model_is_the_one_of_the_own_file() -> None:
    pinned = OWN.model_copy(
        update={"model": "dear-model", "models": ("dear", "dearer"), "tier": Tier.CAPABLE}
    )

    granted = grant_spec(pinned, OWN)

    assert (granted.model, granted.models, granted.tier) == ("own-model", None, OWN.tier)


def test_limits_can_be_lowered_and_not_raised() -> None:
    pinned = OWN.model_copy(
        update={"max_turns": 1_000, "max_output_tokens": 5, "max_usd": None, "max_seconds": 60}
    )

    granted = grant_spec(pinned, OWN)

    assert (granted.max_turns, granted.max_output_tokens) == (4, 5)
    assert (granted.max_usd, granted.max_seconds) == (0.5, 60)


def test_every_limit_of_a_message_and_of_a_handoff_is_lowered_to_the_own_file() -> None:
    names = [name for name in SpecialistSpec.model_fields if name.startswith("max_")]
    low, high = dict.fromkeys(names, 2), dict.fromkeys(names, 3)
    own = OWN.model_copy(update=low)
    limits = HandoffLimits(**{_handoff_name(name): _amount(name, 3) for name in names})

    spec = grant_spec(OWN.model_copy(update=high), own)
    granted = grant_limits(limits, own)

    assert {name: getattr(spec, name) for name in names} == low
    for name in names:
        assert getattr(granted, _handoff_name(name)) == _amount(name, 2)


def _handoff_name(name: str) -> str:
    """Return the name of a specialist's limit in the limits of a handoff."""
    if name == "max_usd":
        return "max_microusd"
    return name


def _amount(name: str, number: int) -> int:
    """Return a specialist's limit in the unit of a handoff's limit."""
    if name == "max_usd":
        return number * MICROUSD
    return number


def test_a_handoffs_limits_stay_within_the_own_file() -> None:
    own = OWN.model_copy(update={"max_seconds": 30})

    granted = grant_limits(HandoffLimits(max_turns=1_000, max_output_tokens=10**6), own)

    assert granted == HandoffLimits(
        max_turns=4, max_output_tokens=own.max_output_tokens, max_microusd=500_000, max_seconds=30
    )


def test_the_spec_of_another_specialist_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="the spec of writer came with a handoff for"):
        grant_spec(OWN.model_copy(update={"name": "writer"}), OWN)
