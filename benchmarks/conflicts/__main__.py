"""`python -m benchmarks.conflicts`: how many contradictions are found, and how many consistent
claims are reported as contradictions; `--wrong` lists both.

There are three sets: contradictions among consistent claims, and two sets of pairs (see
`measuring.PAIRS`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from benchmarks.conflicts.measuring import (
    PAIRS,
    FinderScore,
    load_pairs,
    load_planted_claims,
    measure_pairs,
    measure_planted_claims,
)
from handoff_queue.shared.types.handoff import Claim


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wrong", action="store_true")
    options = parser.parse_args()
    sets = {"planted": (measure_planted_claims(), load_planted_claims()[0])}
    for name in PAIRS:
        sets[name] = measure_pairs(name), load_pairs(name)[0]
    print("| set | contradictions | consistent | recall | false alarms |\n|---|---|---|---|---|")
    for name, (result, _) in sets.items():
        print(
            f"| {name} | {len(result.planted)} | {result.consistent} | {result.recall:.1%} |"
            f" {len(result.false_alarms)} |"
        )
    if options.wrong:
        for name, (result, claims) in sets.items():
            _print_claims(name, result, claims)


def _print_claims(name: str, result: FinderScore, claims: Mapping[str, Claim]) -> None:
    for kind, pairs in (("missed", result.missed), ("false alarm", result.false_alarms)):
        for pair in sorted(map(sorted, pairs)):
            claim_texts: list[str] = []
            for claim_id in pair:
                claim_texts.append(
                    str(claims[claim_id].model_dump(exclude_none=True, exclude={"text"}))
                )
            print(f"\n{name}, {kind}: " + "\n  ".join(claim_texts))


if __name__ == "__main__":
    main()
