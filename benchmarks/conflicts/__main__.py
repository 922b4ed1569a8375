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
    Found,
    labelled,
    measured,
    measured_in_pairs,
    pairs_of,
)
from handoff_queue.shared.types.handoff import Claim


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wrong", action="store_true")
    options = parser.parse_args()
    sets = {"planted": (measured(), labelled()[0])} | {
        name: (measured_in_pairs(name), pairs_of(name)[0]) for name in PAIRS
    }
    print("| set | contradictions | consistent | recall | false alarms |\n|---|---|---|---|---|")
    for name, (found, _) in sets.items():
        print(
            f"| {name} | {len(found.planted)} | {found.consistent} | {found.recall:.1%} | {len(found.false_alarms)} |"
        )
    if options.wrong:
        for name, (found, claims) in sets.items():
            _list(name, found, claims)


def _list(name: str, found: Found, claims: Mapping[str, Claim]) -> None:
    for what, pairs in (("missed", found.missed), ("false alarm", found.false_alarms)):
        for pair in sorted(map(sorted, pairs)):
            print(
                f"\n{name}, {what}: "
                + "\n  ".join(
                    str(claims[one].model_dump(exclude_none=True, exclude={"text"})) for one in pair
                )
            )


if __name__ == "__main__":
    main()
