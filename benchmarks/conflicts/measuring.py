"""Runs labelled claims through the contradiction finder.

The planted set has one claim a line. `contradicts` names another claim of the set that
contradicts it. Claims without the label are consistent with all others, however similar they
look: other units, other words, other things, other times. The sets of pairs have two claims a
line, and whether they contradict each other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from handoff_queue.shared.types.handoff import Claim
from handoff_queue.supervisor.text.claim_conflicts import contradicts

FOLDER = Path(__file__).parent
PAIRS = ("walked", "held_out")
"""walked: written to find misses, and the finder was improved for its general cases. held_out:
written before, and only measured.
"""
Pair = frozenset[str]


@dataclass(frozen=True, slots=True)
class FinderScore:
    """Result of one set: its contradicting pairs, and the pairs that the finder reported."""

    planted: frozenset[Pair]
    reported: frozenset[Pair]
    consistent: int
    """Number of consistent claims, or of consistent pairs in a set of pairs."""

    @property
    def recall(self) -> float:
        return len(self.planted & self.reported) / len(self.planted)

    @property
    def missed(self) -> frozenset[Pair]:
        return self.planted - self.reported

    @property
    def false_alarms(self) -> frozenset[Pair]:
        return self.reported - self.planted


def load_planted_claims() -> tuple[dict[str, Claim], frozenset[Pair]]:
    """Return the planted set: the claims by id, and the contradicting pairs."""
    rows = _read_rows("claims")
    planted_pairs: set[Pair] = set()
    claims: dict[str, Claim] = {}
    for row in rows:
        if "contradicts" in row:
            planted_pairs.add(Pair((row["id"], row.pop("contradicts"))))
        claims[row["id"]] = _build_claim(**row)
    return claims, frozenset(planted_pairs)


def load_pairs(name: str) -> tuple[dict[str, Claim], frozenset[Pair], frozenset[Pair]]:
    """Return a set of pairs: the claims by id, all pairs, and the contradicting pairs."""
    claims: dict[str, Claim] = {}
    all_pairs: dict[Pair, bool] = {}
    for number, row in enumerate(_read_rows(name), start=1):
        both: list[Claim] = []
        for side, part in (("a", "one"), ("b", "other")):
            both.append(_build_claim(id=f"{side}{number}.c1", **row[part]))
        claims |= {claim.id: claim for claim in both}
        all_pairs[Pair(claim.id for claim in both)] = row["contradict"]
    return (
        claims,
        frozenset(all_pairs),
        frozenset(pair for pair, do_contradict in all_pairs.items() if do_contradict),
    )


def measure_planted_claims() -> FinderScore:
    """Measure the planted set, each claim against each."""
    claims, planted_pairs = load_planted_claims()
    reported_pairs = frozenset(
        Pair((claim.id, other.id))
        for claim, other in combinations(claims.values(), 2)
        if contradicts(claim, other)
    )
    return FinderScore(planted_pairs, reported_pairs, len(claims) - 2 * len(planted_pairs))


def measure_pairs(name: str) -> FinderScore:
    """Measure a set of pairs, each pair separately."""
    claims, pairs, planted_pairs = load_pairs(name)
    return FinderScore(
        planted_pairs,
        frozenset(pair for pair in pairs if contradicts(*(claims[claim_id] for claim_id in pair))),
        len(pairs - planted_pairs),
    )


def _read_rows(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        rows.append(json.loads(line))
    return rows


def _build_claim(**parts: Any) -> Claim:
    return Claim(**parts, text=f"{parts['subject']}: {parts['attribute']}: {parts['value']}")
