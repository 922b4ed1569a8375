"""Labelled claims through the finder as it is.

Labels, one claim a line: `contradicts` names the claim of the set that it can't be true beside; claims without it are consistent with all
others, however alike they look: other units, other words, other things, other times.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from shared.wire.handoff import Claim
from supervisor.lifecycle.conflicts import contradicts

CLAIMS = Path(__file__).parent / "claims.jsonl"
Pair = frozenset[str]


@dataclass(frozen=True, slots=True)
class Found:
    """What was planted among how many consistent claims, and what was found."""

    planted: frozenset[Pair]
    found: frozenset[Pair]
    consistent: int

    @property
    def recall(self) -> float:
        return len(self.planted & self.found) / len(self.planted)

    @property
    def missed(self) -> frozenset[Pair]:
        return self.planted - self.found

    @property
    def false_alarms(self) -> frozenset[Pair]:
        return self.found - self.planted


def labelled() -> tuple[dict[str, Claim], frozenset[Pair]]:
    """The claims by id, and the pairs of them that contradict each other."""
    rows = [json.loads(line) for line in CLAIMS.read_text(encoding="utf-8").splitlines()]
    planted = frozenset(Pair((row["id"], row.pop("contradicts"))) for row in rows if "contradicts" in row)
    claims = [Claim(**row, text=f"{row['subject']}: {row['attribute']}: {row['value']}") for row in rows]
    return {claim.id: claim for claim in claims}, planted


def measured() -> Found:
    claims, planted = labelled()
    found = frozenset(Pair((one.id, other.id)) for one, other in combinations(claims.values(), 2) if contradicts(one, other))
    return Found(planted, found, len(claims) - 2 * len(planted))
